"""What Java keeps so that the next broker starts in half the time: an AOT cache (JEP 483), beside Kafka's jars.

The JVM writes it when a process ends that was asked to: the first start on a machine is such a run, made once, and each
later one maps classes that are loaded and linked already. It is 65 MB, made for one Java, one Kafka and one set of
options, which its name says. Where it is missing, damaged or of another machine Java starts without it, only slower.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

KEPT = 4
"""Caches beside Kafka's jars, the youngest ones."""


class QuickStart:
    """The cache for one command.

    Args:
        java: the program. class_path: of Kafka's jars; the cache is kept in their folder.
        options: those of the JVM. Those that a cache adds are no part of them.
    """

    def __init__(self, java: Path, class_path: str, options: Sequence[str]) -> None:
        jars = [Path(jar) for jar in class_path.split(os.pathsep)]
        self._folder = jars[0].parent
        # Java compares the times of the jars with those that it saw, and a cache that does not fit says so in the log.
        said = [*options, *(_state(path) for path in (java, java.parent.parent / "lib" / "modules", *jars))]
        self._path = self._folder / f"start-{hashlib.sha256(repr(said).encode()).hexdigest()[:16]}.aot"

    @property
    def options(self) -> tuple[str, ...]:
        """What lets Java use the cache, without a word where it cannot; nothing where there is none."""
        if not self._path.exists() or not self._path.stat().st_size:
            return ()
        return (f"-XX:AOTCache={self._path}", "-Xlog:aot*=off", "-Xlog:cds*=off")

    @contextlib.contextmanager
    def made(self) -> Iterator[tuple[str, ...]]:
        """Options for a process that is to end, cleanly, before this is left: it writes the cache as it ends.

        Empty where there is one, where another process is making one, and where none can be kept. One that could not
        be made is not tried again.
        """
        if self._path.exists():
            yield ()
            return
        with contextlib.ExitStack() as held:
            try:
                lock = held.enter_context((self._folder / ".start-lock").open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield ()
                return
            if self._path.exists():
                yield ()
                return
            new = self._folder / f".{self._path.name}.new"
            yield (f"-XX:AOTCacheOutput={new}",)
            new.replace(self._path) if new.exists() else self._path.touch()
            # Each environment of this user has a Java of its own; those of long ago are asked for by nobody.
            made = sorted(self._folder.glob("start-*.aot"), key=lambda path: path.stat().st_mtime_ns)
            for old in made[:-KEPT]:
                old.unlink(missing_ok=True)
            for unfinished in self._folder.glob(".start-*.new*"):
                unfinished.unlink(missing_ok=True)


def _state(path: Path) -> tuple[str, int, int]:
    found = path.stat()
    return str(path), found.st_size, found.st_mtime_ns
