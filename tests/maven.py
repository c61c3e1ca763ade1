"""What tests run beside the broker and take from Maven Central: each pinned by hash, kept in this user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import tarfile
import tempfile
from pathlib import Path

from agents.local.broker.jars import _cache_folder


def kept(coordinate: str, sha256: str) -> Path:
    """A jar, or the folder of an unpacked archive; fetched once, and kept only with the hash that it must have.

    Args: coordinate: group:artifact:version, of an archive with :classifier:packaging.
    """
    group, artifact, version, *archive = coordinate.split(":")
    cache = _cache_folder()
    place = cache / (f"{artifact}-{version}" if archive else f"{artifact}-{version}.jar")
    if place.exists():
        return place
    from jgo.maven import MavenContext

    cache.mkdir(parents=True, exist_ok=True)
    with (
        (cache / f".lock-{artifact}").open("w") as lock,
        tempfile.TemporaryDirectory(dir=cache, prefix=f".{artifact}-") as scratch,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.exists():
            return place
        project = MavenContext(repo_cache=Path(scratch), timeout=300).project(group, artifact)
        found = project.at_version(version).artifact(*archive).resolve()
        assert hashlib.sha256(found.read_bytes()).hexdigest() == sha256, f"{coordinate} is not the one that was pinned"
        if archive:
            with tarfile.open(found) as file:
                found = Path(scratch) / "unpacked"
                file.extractall(found, filter="data")
        found.rename(place)
    return place
