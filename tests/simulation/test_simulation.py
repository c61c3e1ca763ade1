"""The simulated job: its promises over many seeds, its power to find planted faults, and that a seed is a seed.

They ask one `python -m tests.simulation --each`, whose processes have the hash seed that makes a seed repeatable.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.__main__ import ITS_OWN

pytestmark = pytest.mark.seconds(4)

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 4
STEPS = 2


@pytest.fixture(scope="module")
def simulator() -> Iterator[subprocess.Popen[str]]:
    with started("--each") as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.simulation", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def simulate(simulator: subprocess.Popen[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, last line, everything that was printed."""
    assert simulator.stdin is not None
    assert simulator.stdout is not None
    simulator.stdin.write(shlex.join(arguments) + "\n")
    simulator.stdin.flush()
    done = json.loads(simulator.stdout.readline())
    return done["code"], json.loads(done["printed"].splitlines()[-1]), done["printed"]


@pytest.mark.slow
@pytest.mark.seconds(15)
def test_many_seeds_keep_every_promise(simulator: subprocess.Popen[str]) -> None:
    code, last, printed = simulate(simulator, "--seeds", str(SEEDS), "--steps", str(STEPS))
    assert last["violations"] == 0, printed
    assert (code, last["seeds"]) == (0, SEEDS)


@pytest.mark.parametrize(
    ("plant", "seed", "steps"),
    [
        ("ledger not read", 1, 4),
        ("tick forgotten", 2, 3),
        ("trimmed by position", 1, 4),
        ("stale snapshot", 2, 4),
        ("live forgotten", 4, 2),
        ("copies outside", 10, 2),
        ("parts overlap", 2, 2),
    ],
)
def test_a_planted_fault_is_found(simulator: subprocess.Popen[str], plant: str, seed: int, steps: int) -> None:
    """The quick ones; `make simulate-job` looks for all of them. Deterministic: the same seed finds one each time."""
    code, last, printed = simulate(
        simulator, "--plant", plant, "--first", str(seed), "--seeds", "1", "--steps", str(steps)
    )
    assert code == 1, printed
    assert not any(mark in printed for mark in ITS_OWN), "the simulation itself is broken, which finds nothing"
    assert last["violations"] > 0


def test_a_cluster_that_is_put_back_answers_nothing_twice_and_a_late_mark_is_found(
    simulator: subprocess.Popen[str],
) -> None:
    arguments = ("--seed", "4", "--steps", "4")
    code, last, printed = simulate(simulator, *arguments, "--put-back")
    assert (code, last["violations"]) == (0, 0), printed
    assert "the cluster is put back" in printed
    code, last, printed = simulate(simulator, *arguments, "--plant", "witness late")
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
def test_a_probe_finds_what_is_frozen(
    simulator: subprocess.Popen[str], part: str, seed: int, steps: int, told: str
) -> None:
    """And no probe finds anything in the seeds without a planted fault, whatever stops, stalls or is away there."""
    code, _, printed = simulate(
        simulator, "--plant", f"frozen {part}", "--seed", str(seed), "--steps", str(steps), "--faults", "0"
    )
    assert code == 1
    assert f"dead to its probe: {told}" in printed, printed


def test_a_seed_replays_exactly(simulator: subprocess.Popen[str]) -> None:
    """All that any topic ever held is the same: behind other seeds, and in a process of its own."""
    arguments = ("--seed", "7", "--steps", str(STEPS))
    with started(*arguments) as alone:
        printed, _ = alone.communicate()
    digest = json.loads(printed.splitlines()[-1])["digest"]
    assert simulate(simulator, *arguments)[1]["digest"] == digest
    assert simulate(simulator, "--seed", "8", "--steps", str(STEPS))[1]["digest"] != digest
