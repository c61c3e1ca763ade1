"""Ends a process, and removes its folder, when the process that started it is gone: however it went."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Reads standard input until its writer, the process that started it, is gone; then ends the other process and removes
# its folder. A process of its own because nothing inside a process survives SIGKILL, and because Linux' parent-death
# signal fires when the starting thread ends, which for one started from a worker thread is at once.
_PROGRAM = """\
import os, shutil, signal, sys
while os.read(0, 64):
    pass
try:
    os.kill(int(sys.argv[1]), signal.SIGKILL)
except OSError:
    pass
shutil.rmtree(sys.argv[2], ignore_errors=True)
"""


class Watchdog:
    """Watches from when it is made until `call_off`."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(pid), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def call_off(self) -> None:
        """Before the watched process is ended by its owner: while the process id it would signal is still ours."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
