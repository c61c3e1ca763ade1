"""All claims that can be audited, quickly: nothing is violated, every row could have been, and all that can happen to a
stream did.

Null hypothesis: each claim holds. False alarms: 1e-6 for each Monte Carlo row; seeds are fixed. Each row prints the
smallest fault that it would have seen; `make audit`, which is not in CI, makes more runs and sees smaller ones.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import engines.noise
from agents.offline.audit_stream import StreamAudit
from engines.audited.every import cases
from engines.audited.mechanisms import MECHANISMS, PARTS
from engines.auditor import COVERED, audit
from engines.auditor.cases import Case
from engines.counters import COUNTERS
from engines.noise import seeded
from engines.registry import part
from schemas.config import ENGINES
from tests.audit.small_stream import stream

pytestmark = pytest.mark.seconds(2)

CASES = cases()
LONG = {
    "counter unbounded-blt",
    "engine tabular, mode default, delta",
    "engine trajectory, mode default, delta",
}
"""Not in CI: in enough runs for its claim it takes a minute. `make audit` has it, and the cost of engines is worked out
exactly by `tests/couple/test_tabular_delta.py` and `test_trajectory_delta.py`.
"""

RUNS, STREAM_RUNS = 44, 50
"""Of an engine, and of a stream: enough for every row to be able to fail, be it by a total leak only."""


def in_ci(case: Case) -> bool:
    """All but engines in other than their default modes: in so few runs their rows see a total leak at most. Coupled
    pairs hold them to their claims, exactly (`tests/couple`), and `make audit` audits them.
    """
    return case.name not in LONG and (case.kind != "engine" or ", mode default" in case.name)


BOX = {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0]}


@pytest.mark.parametrize("case", [case for case in CASES if in_ci(case)], ids=lambda case: case.name)
def test_a_claim_is_kept_that_could_be_broken(case: Case) -> None:
    findings = list(audit(case, runs=RUNS, source=seeded(5)))
    assert findings
    assert not [(found.check, found.verdict) for found in findings if found.failed]


def test_everything_that_happens_to_a_stream_is_in_some_case() -> None:
    """That it occurs, and how often, is counted by the case itself (above)."""
    asked = {what for case in CASES for canaries in case.canaries for what in canaries.covers}
    asked |= {what for canaries in StreamAudit(stream(**RENEWED)).case().canaries for what in canaries.covers}
    assert asked == set(COVERED)
    in_default = {
        what
        for case in CASES
        if case.name.startswith("engine spatial, mode default")
        for canaries in case.canaries
        for what in canaries.covers
    }
    assert in_default == set(COVERED) - {"period's end"}


RENEWED: dict[str, Any] = {
    "contributions": 2,
    "privacy": {"epsilon": 1.5, "unit": "user", "user": "u", "max_contributions": 2, "per": "3h"},
}


@pytest.mark.parametrize(
    "changes",
    [
        {"unit": "event"},
        {"contributions": 2, "mode": "default"},
        {"contributions": 2, "domain": {**BOX, "op": "o"}},
        RENEWED,
    ],
    ids=["event", "default mode", "deletes", "renewed bounds"],
)
def test_a_stream_keeps_its_claim_end_to_end(changes: dict[str, Any]) -> None:
    case = StreamAudit(stream(**changes)).case()
    findings = list(audit(case, runs=STREAM_RUNS, source=seeded(6)))
    assert len([found for found in findings if found.detector == "monte carlo"]) >= 2
    assert not [(found.check, found.verdict) for found in findings if found.failed]


def test_more_events_than_the_bound_change_nothing_more() -> None:
    """What the audited user sends beyond the bound, and on other partitions, is not in the blocks."""
    made = StreamAudit(stream(contributions=2))
    from schemas.blocks import Block

    name, sent = next(iter(made.units()))
    assert "insert" in name
    blocks = [Block.decode(data) for data in made.blocks(sent)]
    assert len(sent) == 3
    assert sum(events.total for block in blocks for events in block.steps.values()) == 2
    reasons = {name for block in blocks for name, count in block.counts.items() if count}
    assert {"OVER_BOUND", "WRONG_PARTITION"} <= reasons


def test_everything_in_the_noise_package_is_audited_or_said_to_be_a_part() -> None:
    drawing = {
        name
        for name in engines.noise.__all__
        if inspect.isfunction(made := getattr(engines.noise, name)) and "source" in inspect.signature(made).parameters
    }
    assert drawing == MECHANISMS.keys() | PARTS.keys()
    assert not MECHANISMS.keys() & PARTS.keys()


def test_every_counter_engine_and_mode_is_audited() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    for name in COUNTERS:
        assert f"counter {name}" in names
    for name, spec in ENGINES.items():
        for mode in spec.facts.modes:
            assert f"engine {name}, mode {mode}" in names


@pytest.mark.parametrize(
    "name", [name for name, spec in ENGINES.items() if {"user", "replace"} & set(spec.facts.units)]
)
def test_users_of_every_engine_and_mode_are_audited(name: str) -> None:
    """With several events each, at the user's claim: an engine is, where the stream of its fixture bounds users to more
    than one event.
    """
    for mode in ENGINES[name].facts.modes:
        several = [case for case in part(name, "audit")(mode) if case.contributions > 1]
        assert several, mode
