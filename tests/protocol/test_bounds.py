"""The contribution bounds against the obvious twin: a dictionary, one event at a time."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.ingest.bounds import Bounds, BoundSpec

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
)


class SlowBounds:
    """The rule itself."""

    def __init__(self, spec: BoundSpec) -> None:
        self.spec = spec
        self.periods: Counter[object] = Counter()
        self.steps: Counter[object] = Counter()

    def accept(self, user: tuple[int, int], step: int) -> bool:
        spec = self.spec
        period = 0 if spec.period_steps is None else step // spec.period_steps
        if spec.max_per_step is not None and self.steps[user, step] >= spec.max_per_step:
            return False
        if self.periods[user, period] + spec.charge > spec.max_contributions:
            return False
        self.steps[user, step] += 1
        self.periods[user, period] += spec.charge
        return True


def arrays(events: list[tuple[tuple[int, int], int]]) -> tuple[np.ndarray, np.ndarray]:
    hashes = np.array([user for user, _ in events], np.uint64).reshape(-1, 2)
    return hashes, np.array([step for _, step in events], np.int64)


@given(spec=SPECS, batches=st.lists(EVENTS, max_size=5))
def test_batches_are_bounded_as_single_events(
    spec: BoundSpec, batches: list[list[tuple[tuple[int, int], int]]]
) -> None:
    fast, slow = Bounds(spec), SlowBounds(spec)
    for events in batches:
        accepted, rows, charges = fast.accept(*arrays(events))
        assert accepted.tolist() == [slow.accept(user, step) for user, step in events]
        assert int(charges.sum()) == spec.charge * int(accepted.sum())
        assert (charges > 0).all()
        assert len(np.unique(rows, axis=0)) == len(rows)


@given(spec=SPECS, batches=st.lists(EVENTS, max_size=5), last=EVENTS)
def test_folding_the_charges_restores_the_bounds(
    spec: BoundSpec, batches: list[list[tuple[tuple[int, int], int]]], last: list[tuple[tuple[int, int], int]]
) -> None:
    lived, restored = Bounds(spec), Bounds(spec)
    for events in batches:
        _, rows, charges = lived.accept(*arrays(events))
        restored.add(rows, charges)
    assert lived.accept(*arrays(last))[0].tolist() == restored.accept(*arrays(last))[0].tolist()


@given(spec=SPECS, before=EVENTS, after=EVENTS, open_step=st.integers(0, 12))
def test_what_is_forgotten_is_never_asked_for(
    spec: BoundSpec,
    before: list[tuple[tuple[int, int], int]],
    after: list[tuple[tuple[int, int], int]],
    open_step: int,
) -> None:
    forgetful, slow = Bounds(spec), SlowBounds(spec)
    forgetful.accept(*arrays(before))
    for user, step in before:
        slow.accept(user, step)
    forgetful.expire(open_step)
    later = [(user, max(step, open_step)) for user, step in after]
    assert forgetful.accept(*arrays(later))[0].tolist() == [slow.accept(user, step) for user, step in later]


def test_expired_periods_give_their_memory_back() -> None:
    bounds = Bounds(BoundSpec(max_contributions=1, period_steps=1))
    for step in range(50):
        bounds.expire(step)
        bounds.accept(*arrays([((step + 1, step), step)]))
    assert bounds.users == 1
