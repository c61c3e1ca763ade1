"""Whoever shares work with other processes leaves none behind, however it is ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.kafka.support import WAIT_AT_MOST_S

ROOT = Path(__file__).resolve().parents[2]
POOL = """
import time
from agents.local.offline.processes import process_pool
if __name__ == "__main__":
    with process_pool(2) as pool:
        [task.result() for task in [pool.submit(time.sleep, 3600) for _ in range(2)]]
"""
FORK = """
import os, time
from agents.local.offline.processes import end_with
parent = os.getpid()
for _ in range(2):
    if not os.fork():
        end_with(parent)
        time.sleep(3600)
time.sleep(3600)
"""
ALONE = "from benchmarks.ingest.__main__ import measured_memory; measured_memory(50_000_000)"
# What is started, and how many processes it has beside itself when it is ended.
COMMANDS = {
    "a fork": (["-c", FORK], 2),
    "bench-ingest": (["-c", ALONE], 1),
    "audit": (["-m", "agents.cli", "audit", "--workers", "2"], 2),
    "bench-spatial": (["-m", "benchmarks.spatial", "--seeds", "50"], 2),
}


def workers_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Its children, without the bookkeeper of `multiprocessing`, which ends with its pipe."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
        return [child for child in children if "resource_tracker" not in " ".join(child.cmdline())]
    except psutil.Error:
        return []


def wait_for(condition: object, what: str) -> None:
    assert callable(condition)
    end = time.monotonic() + WAIT_AT_MOST_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def ends_with_its_parent(arguments: list[str], workers: int, how: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "QUICK": ""},
    )  # fmt: skip
    children: list[psutil.Process] = []

    def begun() -> bool:
        children[:] = workers_of(parent)  # looked at once: the next moment one may be done
        return parent.poll() is not None or len(children) >= workers

    try:
        wait_for(begun, "no worker was started")
        assert parent.poll() is None, "it ended by itself"
        parent.send_signal(how)
        parent.wait()
        wait_for(lambda: not any(child.is_running() for child in children), "a worker lives on")
    finally:
        parent.kill()
        parent.wait()
        for child in children:
            if child.is_running():
                child.kill()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_pool_ends_with_its_parent(tmp_path: Path, how: signal.Signals) -> None:
    script = tmp_path / "pool.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{POOL}")
    ends_with_its_parent([str(script)], 2, how)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_what_make_starts_ends_with_its_parent(command: str) -> None:
    ends_with_its_parent(*COMMANDS[command], signal.SIGTERM)


def test_there_is_one_way_to_make_a_pool() -> None:
    """Another one would have to be told all of this again."""
    made = [
        str(path.relative_to(ROOT))
        for folder in ("agents", "engines", "schemas", "benchmarks", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"ProcessPoolExecutor\(|multiprocessing\.Pool|\.Process\(target", path.read_text())
    ]
    assert sorted(made) == ["agents/local/offline/processes.py"]


def test_a_worker_that_crashes_leaves_no_copy_of_its_memory() -> None:
    """Before it has read a secret, whatever becomes of it then: here a cluster that is not there. A limit of 0 is not
    heeded where the kernel hands cores to a program, as many machines and clusters are set up.
    """
    program = (
        "import ctypes, resource\n"
        "from agents.worker import process\n"
        "def settings(*_):\n"
        "    dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)\n"  # PR_GET_DUMPABLE
        "    print(resource.getrlimit(resource.RLIMIT_CORE), dumpable)\n"
        "    raise SystemExit\n"
        "process.Vitals = settings\n"
        "process.run_worker(None)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "(0, 0) 0\n"
