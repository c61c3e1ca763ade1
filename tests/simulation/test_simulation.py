"""The simulated job: its promises over many seeds, its power to find planted faults, and that a seed is a seed.

Each test runs `python -m tests.simulation`, whose processes have the hash seed that makes a seed repeatable.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.__main__ import ITS_OWN

pytestmark = pytest.mark.seconds(4)

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 8
STEPS = 2


def simulate(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, last line, everything that was printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    lines = done.stdout.splitlines()
    assert lines, done.stderr[-2000:]
    return done.returncode, json.loads(lines[-1]), done.stdout


@pytest.mark.slow
@pytest.mark.seconds(15)
def test_many_seeds_keep_every_promise() -> None:
    code, last, printed = simulate("--seeds", str(SEEDS), "--steps", str(STEPS))
    assert last["violations"] == 0, printed
    assert (code, last["seeds"]) == (0, SEEDS)


@pytest.mark.parametrize(
    ("plant", "seeds"),
    [
        ("ledger not read", 1),
        ("tick forgotten", 1),
        ("trimmed by position", 1),
        ("stale snapshot", 2),
        ("live forgotten", 4),
    ],
)
def test_a_planted_fault_is_found(plant: str, seeds: int) -> None:
    """The quick ones; `make simulate-job` looks for all of them. Deterministic: the same seeds find them each time."""
    code, last, printed = simulate("--plant", plant, "--seeds", str(seeds))
    assert code == 1, printed
    assert not any(mark in printed for mark in ITS_OWN), "the simulation itself is broken, which finds nothing"
    assert last["violations"] > 0


def test_a_cluster_that_is_put_back_answers_nothing_twice_and_a_late_mark_is_found() -> None:
    arguments = ("--seed", "6", "--steps", "4")
    code, last, printed = simulate(*arguments, "--put-back")
    assert (code, last["violations"]) == (0, 0), printed
    assert "the cluster is put back" in printed
    code, last, printed = simulate(*arguments, "--plant", "witness late")
    assert "has several answers" in printed, printed
    assert code == 1


@pytest.mark.parametrize(
    ("part", "seed", "steps", "told"),
    [
        ("engine", 1, 4, "engine of partition"),
        ("publisher", 1, 8, "publisher of"),
        ("audit", 8, 4, "audit of"),
        ("ingest", 1, 8, "ingest: reads the sources"),
        ("clock", 1, 4, "clock of the steps"),
    ],
)
def test_a_probe_finds_what_is_frozen(part: str, seed: int, steps: int, told: str) -> None:
    """And no probe finds anything in the seeds without a planted fault, whatever stops, stalls or is away there."""
    code, _, printed = simulate(
        "--plant", f"frozen {part}", "--seed", str(seed), "--steps", str(steps), "--faults", "0"
    )
    assert code == 1
    assert f"dead to its probe: {told}" in printed, printed


def test_a_seed_replays_exactly() -> None:
    """All that any topic ever held is the same: alone, and after another seed in one process."""
    digests = {simulate("--seed", "7", "--steps", "3")[1]["digest"] for _ in range(2)}
    assert len(digests) == 1
    assert simulate("--seed", "8", "--steps", "3")[1]["digest"] not in digests
