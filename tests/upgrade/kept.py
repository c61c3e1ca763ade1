"""A job of an earlier version as it stood when it was killed: the broker's own files, and the worker's.

`python -m tests.upgrade.kept` makes `kept/` anew from the version that `earlier.py` names: for when that one is too old
to be upgraded from. What is kept are the logs, without the indexes that Kafka makes of them.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from agents.broker.embedded import EmbeddedBroker
from schemas.config import Config
from tests.crash.field import Field, two_streams
from tests.crash.test_crash import ended
from tests.upgrade.earlier import earlier_tree

FOLDER = Path(__file__).parent / "kept"
ARCHIVE = FOLDER / "job.tar.xz"
STEPS = 6


class KeptBroker(EmbeddedBroker):
    """Starts on the files of another broker, at addresses of its own."""

    def __init__(self, data: Path) -> None:
        super().__init__()
        self._data = data

    def _format(self, class_path: str) -> None:
        assert self._folder is not None
        shutil.copytree(self._data, self._folder / "data")


def unpacked(folder: Path) -> tuple[Path, dict[str, object]]:
    """The broker's files in `folder`, those of worker `a` beside them, and what the job was."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "broker", json.loads((folder / "job.json").read_text())


def config_of(bootstrap: str, folder: Path, job: dict[str, object]) -> Config:
    name, names = job["job"], job["streams"]
    assert isinstance(name, str)
    assert isinstance(names, list)
    return two_streams(bootstrap, folder, job=name, names=names)


async def made(broker: EmbeddedBroker, folder: Path) -> dict[str, object]:
    """Let a worker of the earlier version publish some steps and kill it in the middle of one."""
    field = Field(broker.bootstrap, folder, seed=6)
    field.trees = {"a": earlier_tree(folder / "earlier")}
    try:
        await field.open(pause_s=1.5, per_step=10)
        field.start("a", failpoint=f"candidate_appended:{2 * STEPS}")
        await ended(field.workers["a"].process.poll)
    finally:
        await field.close()
    streams = [stream.name for stream in field.config.streams]
    return {"job": field.config.job.name, "streams": streams, "steps": field.steps}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with EmbeddedBroker() as broker:
            job = asyncio.run(made(broker, folder))
            broker.kill()
            shutil.copytree(broker.log_path.parent / "data", folder / "broker")
        (folder / "job.json").write_text(json.dumps(job))
        with tarfile.open(ARCHIVE, "w:xz") as archive:
            for name in ("broker", "data-a", "job.json"):
                archive.add(folder / name, arcname=name, filter=_kept)
    sys.stdout.write(f"{ARCHIVE.name}: {ARCHIVE.stat().st_size:,} bytes, {job['steps']} steps\n")


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without what is made of the rest, and anything that names this machine or its user."""
    name = Path(entry.name).name
    if name.endswith((".index", ".timeindex", ".lock")) or name.startswith(("LOCK", "LOG", "OPTIONS")):
        return None
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main()
