"""What the bounds refuse, counted: against a dictionary, one event at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.ingest.bounds import SURPLUS, Bounds, BoundSpec, SurplusBounds
from agents.protocol.ingest.user_table import BUCKETS
from agents.protocol.release.merge import BlockMerge
from schemas.blocks import Block
from schemas.errors import GapError
from tests.protocol.test_bounds import EVENTS, SPECS, SlowBounds, arrays

COUNTING = st.builds(lambda spec, surplus: replace(spec, surplus=surplus), SPECS, st.integers(1, 4))
Events = list[tuple[tuple[int, int], int]]


class SlowSurplus:
    """The rule itself."""

    def __init__(self, spec: BoundSpec) -> None:
        self.spec, self.bounds = spec, SlowBounds(spec)
        self.counts: Counter[object] = Counter()

    def accept(self, user: tuple[int, int], step: int) -> tuple[bool, bool]:
        if self.bounds.accept(user, step):
            return True, False
        period = 0 if self.spec.period_steps is None else step // self.spec.period_steps
        self.counts[user, period] += 1
        return False, self.counts[user, period] <= self.spec.surplus


@given(spec=COUNTING, batches=st.lists(EVENTS, max_size=5))
def test_batches_are_counted_as_single_events(spec: BoundSpec, batches: list[Events]) -> None:
    fast, slow, plain = SurplusBounds(spec), SlowSurplus(spec), Bounds(replace(spec, surplus=0))
    for events in batches:
        accepted, counted, rows, charges = fast.accept_and_count(*arrays(events))
        assert list(zip(accepted.tolist(), counted.tolist(), strict=True)) == [slow.accept(*each) for each in events]
        assert int(charges.sum()) == spec.charge * int(accepted.sum()) + int(counted.sum())
        assert (charges > 0).all()
        assert len(np.unique(rows, axis=0)) == len(rows)
        assert plain.accept(*arrays(events))[0].tolist() == accepted.tolist(), "counting decides nothing"


@given(spec=COUNTING, batches=st.lists(EVENTS, max_size=5), last=EVENTS, open_step=st.integers(0, 12))
def test_charges_and_snapshots_restore_the_counts(
    spec: BoundSpec, batches: list[Events], last: Events, open_step: int
) -> None:
    lived, folded, loaded = SurplusBounds(spec), SurplusBounds(spec), SurplusBounds(spec)
    for events in batches:
        _, _, rows, charges = lived.accept_and_count(*arrays(events))
        folded.add(rows, charges)
    for kind, slot, table in lived.tables():
        for bucket in range(BUCKETS):
            users, counts = table.bucket(bucket)
            if len(users):
                loaded.put(**{kind: slot}, users=users, counts=counts)
    lived.expire(open_step)
    later = [(user, max(step, open_step)) for user, step in last]
    found = [
        [array.tolist() for array in each.accept_and_count(*arrays(later))[:2]] for each in (lived, folded, loaded)
    ]
    assert found[0] == found[1] == found[2]


def test_closed_periods_are_forgotten() -> None:
    bounds = SurplusBounds(BoundSpec(max_contributions=1, period_steps=1, surplus=1))
    for step in range(50):
        bounds.expire(step)
        bounds.accept_and_count(*arrays([((step + 1, step), step)] * 2))
    assert [(kind, slot, len(table)) for kind, slot, table in bounds.tables()] == [
        ("period", 49, 1),
        ("period", SURPLUS + 49, 1),
    ]
    with pytest.raises(ValueError, match="at least 1"):
        SurplusBounds(BoundSpec(max_contributions=1))


def block(lo: int, *, tick: int = -1, **surplus: int) -> Block:
    return Block("s", 0, lo, lo + 1, tick, {}, surplus={int(step[1:]): count for step, count in surplus.items()})


def test_blocks_carry_the_surplus_to_its_step() -> None:
    read = Block.decode(block(0, s0=3, s7=1).encode())
    assert read.surplus == {0: 3, 7: 1}
    assert Block.decode(block(0).encode()).surplus == {}
    merge = BlockMerge("s", 1, 1)
    merge.fold(0, read)
    merge.fold(1, block(1, s7=2))
    restored = BlockMerge("s", 1, 1)
    restored.restore(merge.progress(), merge.arrays())
    for each in (merge, restored):
        each.fold(2, block(2, tick=0))
        assert [each.take_surplus(step) for step in (0, 0, 7, 8)] == [3, 0, 3, 0]
        with pytest.raises(GapError, match="reopens"):
            each.fold(3, block(3, s0=1))


@pytest.mark.parametrize("period", [1, 2, 5])
def test_a_period_that_is_open_is_not_forgotten(period: int) -> None:
    """Whichever of its steps is the open one: a user's surplus would count again."""
    for open_step in range(2 * period, 3 * period):
        bounds = SurplusBounds(BoundSpec(max_contributions=1, period_steps=period, surplus=1))
        user = (7, 7)
        accepted, counted, _, _ = bounds.accept_and_count(*arrays([(user, open_step)] * 3))
        assert (accepted.tolist(), counted.tolist()) == ([True, False, False], [False, True, False])
        bounds.expire(open_step)
        accepted, counted, _, _ = bounds.accept_and_count(*arrays([(user, open_step)]))
        assert not accepted.any()
        assert not counted.any()
