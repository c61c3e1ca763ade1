"""Worker processes as an operator runs them, and what can be seen of them from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]
ASK_S = 5.0
END_S = 20.0


class Worker:
    """`privstream run`, from its start, with one arena of malloc as in the image; begins when it is made.

    Args: environment: variables of its own.
    """

    def __init__(self, name: str, config: Path, *, environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = config.parent / f"{name}.log"
        self._port = free_port()
        self._command = [sys.executable, "-W", "ignore", "-m", "agents.cli", "run", str(config)]
        self._environment = {
            **os.environ,
            "MALLOC_ARENA_MAX": "1",
            "PRIVSTREAM_JOB__DATA_DIR": str(config.parent / f"data-{name}"),
            "PRIVSTREAM_JOB__HTTP_PORT": str(self._port),
            **(environment or {}),
        }
        self.start()

    def start(self) -> None:
        """Again, after `kill`: in the same folder, as a supervisor would."""
        self.begun = time.time()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=ROOT
            )
        self._seen = psutil.Process(self._process.pid)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where that takes too long."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def check(self) -> None:
        """Raises: RuntimeError where it has ended."""
        if (code := self._process.poll()) is not None:
            end = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"worker {self.name} ended with code {code}:\n{end}")

    @property
    def rss_mb(self) -> float:
        """Resident memory in 10^6 bytes."""
        return float(self._seen.memory_info().rss) / 1e6

    @property
    def cpu_s(self) -> float:
        """Processor seconds since its start."""
        times = self._seen.cpu_times()
        return float(times.user + times.system)

    @property
    def ready(self) -> bool:
        """Whether `/readyz` says 200."""
        try:
            return self._get("/readyz") is not None
        except urllib.error.HTTPError:
            return False

    def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """(name, labels) -> value."""
        text = (self._get("/metrics") or b"").decode()
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def _get(self, path: str) -> bytes | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=ASK_S) as answer:
                body: bytes = answer.read()
                return body
        except (urllib.error.URLError, OSError) as error:
            if isinstance(error, urllib.error.HTTPError):
                raise
            return None


def total(metrics: Mapping[tuple[str, tuple[tuple[str, str], ...]], float], name: str, **labels: str) -> float:
    """The sum of a metric over all labels but the given ones."""
    return sum(
        value for (each, seen), value in metrics.items() if each == name and labels.items() <= dict(seen).items()
    )


def phases(before: Mapping[Any, float], after: Mapping[Any, float], stream: str) -> dict[str, float]:
    """Mean milliseconds of each phase of a release between two looks at the metrics."""
    name = "privstream_release_phase_seconds"
    found: dict[str, float] = {}
    for phase in ("seed", "compute", "candidate", "publish"):
        parts = Counter(
            {
                kind: total(after, f"{name}_{kind}", stream=stream, phase=phase)
                - total(before, f"{name}_{kind}", stream=stream, phase=phase)
                for kind in ("sum", "count")
            }
        )
        if parts["count"]:
            found[phase] = 1e3 * parts["sum"] / parts["count"]
    return found


def free_port() -> int:
    """One that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def feeding(order: Mapping[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """The producer's process, see `benchmarks.scale.feed`; it ends with the block."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.scale.feed"]
    process = subprocess.Popen(
        [*command, json.dumps({**order, "parent": os.getpid()})],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def fed(process: subprocess.Popen[str], *, wait: bool = False) -> int | None:
    """Events that were sent, None while it sends. Raises: RuntimeError where it has failed."""
    if not wait and process.poll() is None:
        return None
    process.wait()
    assert process.stdout is not None
    if process.returncode:
        raise RuntimeError(f"the producer ended with code {process.returncode}")
    return int(json.loads(process.stdout.read())["events"])
