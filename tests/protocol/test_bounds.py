"""The contribution bounds against the obvious twin: a dictionary, one event at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.ingest.bounds import SURPLUS, Bounds, BoundSpec
from agents.protocol.ingest.user_table import BUCKETS
from agents.protocol.release.merge import BlockMerge
from schemas.blocks import Block
from schemas.errors import GapError

Events = list[tuple[tuple[int, int], int]]

# Users with equal first words, equal second words, neighbours in the table, and both ends of it.
WORDS = [1, 2, 3, 1 << 32, (1 << 32) + 1, 1 << 56, (1 << 63) + 5, (1 << 64) - 2, (1 << 64) - 1]
USERS = st.tuples(st.sampled_from(WORDS), st.sampled_from([0, 1, 2, (1 << 64) - 1]))
EVENTS = st.lists(st.tuples(USERS, st.integers(0, 12)), max_size=40)
SPECS = st.builds(
    BoundSpec,
    max_contributions=st.integers(1, 6),
    charge=st.integers(1, 2),
    max_per_step=st.one_of(st.none(), st.integers(1, 3)),
    period_steps=st.one_of(st.none(), st.integers(1, 5)),
    surplus=st.integers(0, 4),
)


class SlowBounds:
    """The rule itself: whether an event is accepted, and whether it counts as surplus."""

    def __init__(self, spec: BoundSpec) -> None:
        self.spec = spec
        self.periods: Counter[object] = Counter()
        self.steps: Counter[object] = Counter()
        self.refused: Counter[object] = Counter()

    def accept(self, user: tuple[int, int], step: int) -> tuple[bool, bool]:
        spec = self.spec
        period = 0 if spec.period_steps is None else step // spec.period_steps
        in_step = spec.max_per_step is None or self.steps[user, step] < spec.max_per_step
        if in_step and self.periods[user, period] + spec.charge <= spec.max_contributions:
            self.steps[user, step] += 1
            self.periods[user, period] += spec.charge
            return True, False
        self.refused[user, period] += 1
        return False, self.refused[user, period] <= spec.surplus


def arrays(events: Events) -> tuple[np.ndarray, np.ndarray]:
    hashes = np.array([user for user, _ in events], np.uint64).reshape(-1, 2)
    return hashes, np.array([step for _, step in events], np.int64)


def decided(bounds: Bounds, events: Events) -> list[tuple[bool, bool]]:
    found = bounds.accept(*arrays(events))
    counted = [False] * len(events) if found.surplus is None else found.surplus.tolist()
    return list(zip(found.accepted.tolist(), counted, strict=True))


@given(spec=SPECS, batches=st.lists(EVENTS, max_size=5))
def test_batches_are_bounded_as_single_events(spec: BoundSpec, batches: list[Events]) -> None:
    fast, slow, plain = Bounds(spec), SlowBounds(spec), Bounds(replace(spec, surplus=0))
    for events in batches:
        accepted, rows, charges, counted, *_ = fast.accept(*arrays(events))
        expected = [slow.accept(*each) for each in events]
        assert accepted.tolist() == [each for each, _ in expected]
        assert ([False] * len(events) if counted is None else counted.tolist()) == [each for _, each in expected]
        assert int(charges.sum()) == spec.charge * int(accepted.sum()) + sum(each for _, each in expected)
        assert (charges > 0).all()
        assert len(np.unique(rows, axis=0)) == len(rows)
        assert plain.accept(*arrays(events)).accepted.tolist() == accepted.tolist(), "counting decides nothing"


@given(spec=SPECS, batches=st.lists(EVENTS, max_size=5), last=EVENTS, open_step=st.integers(0, 12))
def test_charges_and_snapshots_restore_the_bounds_and_what_is_forgotten_is_never_asked_for(
    spec: BoundSpec, batches: list[Events], last: Events, open_step: int
) -> None:
    lived, folded, loaded, slow = Bounds(spec), Bounds(spec), Bounds(spec), SlowBounds(spec)
    for events in batches:
        found = lived.accept(*arrays(events))
        folded.add(found.rows, found.charges)
        for each in events:
            slow.accept(*each)
    copy_tables(lived, loaded)
    lived.expire(open_step)
    later = [(user, max(step, open_step)) for user, step in last]
    expected = [slow.accept(*each) for each in later]
    assert [decided(each, later) for each in (lived, folded, loaded)] == [expected] * 3


def copy_tables(old: Bounds, new: Bounds) -> None:
    """What `BucketLog` does: every slot of every table, in another worker's tables."""
    for kind, slot, table in old.tables():
        buckets = {bucket: table.bucket(bucket) for bucket in range(BUCKETS)}
        new.fill(kind, slot, {bucket: held for bucket, held in buckets.items() if len(held[0])})


def test_expired_periods_give_their_memory_back() -> None:
    bounds = Bounds(BoundSpec(max_contributions=1, period_steps=1, surplus=1))
    for step in range(50):
        bounds.expire(step)
        bounds.accept(*arrays([((step + 1, step), step)] * 2))
    assert bounds.users == 1
    assert [(slot, len(table)) for _, slot, table in bounds.tables()] == [(49, 1), (SURPLUS + 49, 1)]


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
