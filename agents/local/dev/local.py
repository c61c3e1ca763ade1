"""What runs on one machine, for a while: a broker, a worker as a process of its own, a key. Of `dev` and the demo."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from agents.local.broker.embedded import Broker
from agents.local.broker.watchdog import Watchdog
from engines.core.noise import fresh_seed
from schemas.errors import PrivstreamError

LAST_LINES = 15
Told = Callable[[str, int, int], None]
"""What goes on, how much of it is done, of how much."""


class WorkerEndedError(PrivstreamError):
    """The worker of a run on this machine has ended, and nobody asked it to."""


class WorkerProcess:
    """`privstream run` as a process of its own, as in a deployment; it ends with this one, however this one ends.

    Args:
        folder: for its log; removed with this process where that is killed.
    """

    def __init__(self, config: Path, environment: Mapping[str, str], folder: Path) -> None:
        self._command = [sys.executable, "-m", "agents.cli", "run", str(config)]
        self._environment = dict(environment)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: Watchdog | None = None

    @property
    def log(self) -> Path:
        """What it says."""
        return self._folder / "worker.log"

    def start(self) -> None:
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C is for the command, which then stops the worker in order.
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        self._watchdog = Watchdog(self._process.pid, self._folder)

    def check(self) -> None:
        """Raises: WorkerEndedError."""
        if self._process is not None and (code := self._process.poll()) is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_LINES:])
            raise WorkerEndedError(f"the worker ended with code {code}. Its last lines:\n{tail}")

    def wait(self) -> None:
        """Until it ends. Raises: WorkerEndedError."""
        if self._process is not None:
            self._process.wait()
            self.check()

    def stop(self) -> None:
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.call_off()
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def started(broker: Broker, stack: contextlib.ExitStack) -> Broker:
    """The same broker, up until the stack is left. Raises: BrokerError."""
    broker.start()
    stack.callback(broker.stop)
    return broker


def throwaway_key(folder: Path) -> Path:
    """A file with a secret for hashes of user ids, as an operator would make it. Gone with the folder."""
    path = folder / "user.key"
    path.touch(mode=0o600)
    path.write_bytes(fresh_seed())
    return path


def without_settings(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without what would win over a configuration file."""
    found = os.environ if environment is None else environment
    return {name: value for name, value in found.items() if not name.startswith("PRIVSTREAM_")}
