"""What a worker's machine does to it: a wall clock that steps, a disk that is full."""

from __future__ import annotations

import errno
import mmap
import os
import random
import struct
import subprocess
import time
from pathlib import Path

CLOCK_VARIABLE = "PRIVSTREAM_TEST_CLOCK"
"""Names the file that holds the seconds by which a worker's clock is ahead. `tests.crash.worker` alone knows it."""
STEPS_S = (1.0, 30.0, 900.0, 86_400.0)
DISK_BYTES = 64 << 20
CHUNK = bytes(64 << 10)
_OFFSET = struct.Struct("d")


class Clock:
    """The wall clock of one worker. It stays where it was put when the process is started again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set(0.0)

    def set(self, ahead_s: float) -> None:
        self.path.write_bytes(_OFFSET.pack(ahead_s))

    def step(self, chance: random.Random) -> None:
        """Forth or back, up to a day from the true time."""
        self.set(chance.choice((-1, 1)) * chance.choice(STEPS_S))


def follow_clock(path: Path) -> None:
    """In a worker: `time.time` tells the time of that clock from now on. What is monotonic stays so."""
    with path.open("rb") as file:
        shared = mmap.mmap(file.fileno(), _OFFSET.size, prot=mmap.PROT_READ)
    true_s, true_ns = time.time, time.time_ns

    def ahead_s() -> float:
        return float(_OFFSET.unpack_from(shared)[0])

    time.time = lambda: true_s() + ahead_s()
    time.time_ns = lambda: true_ns() + int(ahead_s() * 1e9)


class Disk:
    """The data folder of one worker on a small file system of its own."""

    def __init__(self, folder: Path) -> None:
        """Raises: OSError where nothing can be mounted."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._filler = folder / "filler"
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "privstream-test", str(folder)]
        done = subprocess.run(mount, capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"no file system can be mounted here ({done.stderr.strip()})")

    def fill(self) -> None:
        """Not a byte is left."""
        with self._filler.open("ab", buffering=0) as file:
            try:
                while file.write(CHUNK):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        """Gone, with all that it held; its worker has ended."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


def can_mount(folder: Path) -> str:
    """Why no disk can be made below `folder`; empty: one can."""
    try:
        Disk(folder / "tried").close()
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    return ""
