"""Audited units that are users with several events: which events they have, and that all or none of them are there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engines.auditor.fixture import AuditFixture
from engines.auditor.worlds import Canary, World
from engines.registry import build_engine
from schemas.blocks import Folded
from tests.audit.small_stream import stream


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ([5, 5, 5], [5, 6, 7])),
        ({"max_per_step": 2}, ([5, 5, 6], [5, 6, 7])),
        ({"per": "3h"}, ([5, 5, 5], [5])),
        ({"per": "2h", "max_per_step": 1}, ([5], [5])),
    ],
)
def test_a_user_has_all_events_that_the_bound_lets_through(
    changes: dict[str, Any], expected: tuple[list[int], ...]
) -> None:
    """In one step as far as may be, or in one each, within one period and before the last step."""
    privacy = {"epsilon": 1.0, "unit": "user", "user": "u", "max_contributions": 3, **changes}
    made = AuditFixture(stream(privacy=privacy), Folded.empty(1), {})
    assert tuple(made.steps_of(5, spread=spread, last=9) for spread in (False, True)) == expected
    assert made.steps_of(9, spread=True, last=9) == [9]
    assert AuditFixture(stream(unit="event"), Folded.empty(1), {}).steps_of(4, spread=True, last=9) == [4]


def test_a_user_with_several_events_is_there_with_all_of_them_or_with_none() -> None:
    """What is there in their place is as often."""
    canary = Canary("moved", 1, 7, taken=3, more=((1, 8, 3), (2, 9, None)))
    base = [Folded.of(np.array([[0]], np.uint64)) for _ in range(3)]
    world = World(build_engine, base, [canary])  # type: ignore[arg-type]
    for there, expected in ((True, ([0], [0, 7, 8], [0, 9])), (False, ([0], [0, 3, 3], [0]))):
        batches = [world.batches(step, (there,) if step else ()) for step in range(3)]
        assert tuple(np.repeat(b.events.keys[:, 0], b.events.counts).tolist() for b in batches) == expected
