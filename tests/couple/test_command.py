"""`python -m tests.couple`, as `make couple` calls it: few pairs, a planted fault, and the last line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_last_line_says_what_was_found() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.couple",
        "--runs",
        "2",
        "--only",
        "markov/paper/6",
        "--faults",
        "1",
        "--seed",
        "5",
        "--workers",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    last = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout
    assert (last["engines"], last["modes"], last["settings"]) == (1, 1, 1)
    assert (last["runs"], last["violations"], last["unreached"], last["uncoupled"]) == (2 + 1, 0, [], [])
    assert last["worst_loss"] <= 1 + 1e-9
    assert last["planted"] == last["planted_caught"] == 2


def test_runs_that_leave_a_setting_out_are_refused() -> None:
    command = [sys.executable, "-m", "tests.couple", "--runs", "20"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "settings with less than 2 pairs. Fix: --runs" in done.stderr
