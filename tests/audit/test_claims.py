"""All claims that can be audited, quickly: nothing is violated, and nothing that draws noise is left out.

Null hypothesis: each claim holds. False alarms: 1e-6 for each Monte Carlo row; seeds are fixed. The power of these few
runs is small for engines: it is `make audit` that presses them.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import engines.noise
from agents.cli.audit_stream import StreamAudit
from engines.auditor import audit, cases, violations
from engines.auditor.cases import Case
from engines.auditor.mechanisms import MECHANISMS, PARTS
from engines.auditor.scenes import SCENES
from engines.counters import COUNTERS
from engines.noise import seeded
from engines.registry import ENGINES
from schemas.config import ENGINE_MODES
from tests.audit.small_stream import stream

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_claim_is_kept(case: Case) -> None:
    findings = list(audit(case, runs=60 if case.kind == "engine" else 200, source=seeded(5)))
    assert findings
    assert not violations(findings)


@pytest.mark.parametrize(
    "changes",
    [
        {"unit": "event"},
        {"contributions": 3},
        {"contributions": 2, "mode": "default"},
        {"contributions": 2, "domain": {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0], "op": "o"}},
        {
            "contributions": 2,
            "domain": {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0], "ttl": "2h"},
        },
    ],
    ids=["event", "three events", "default mode", "deletes", "ttl"],
)
def test_a_stream_keeps_its_claim_end_to_end(changes: dict[str, Any]) -> None:
    case = StreamAudit(stream(**changes)).case()
    findings = list(audit(case, runs=60, source=seeded(6)))
    assert len(findings) == len(case.neighbours) + 1
    assert not violations(findings)


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
    assert SCENES.keys() == ENGINES.keys()
    for name in COUNTERS:
        assert f"counter {name}" in names
    for name, modes in ENGINE_MODES.items():
        for mode in modes:
            assert f"engine {name}, mode {mode}" in names
