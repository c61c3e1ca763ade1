"""A worker that is told to stop is gone some time later, whatever its libraries wait for."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading
from types import SimpleNamespace
import agents.worker
agents.worker.EXIT_S = 0.1
stuck = SimpleNamespace(should_stop=False)
threading.Thread(target=agents.worker.limit_exit, args=(stuck, SimpleNamespace(should_stop=False)), daemon=True).start()
print("runs", flush=True)
sys.stdin.readline()
stuck.should_stop = True
threading.Event().wait()
"""


def test_a_worker_whose_libraries_never_end_is_ended() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        assert process.poll() is None
        process.communicate("\n", timeout=120)
        assert process.returncode == 1
    finally:
        process.kill()
        process.wait()
