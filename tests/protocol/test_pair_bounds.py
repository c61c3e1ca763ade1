"""No batch, crash or replay lets a pair of user and key count twice, or a user have more of them than configured."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.ingest.bounds import ADMITTED, Accepted, Bounds, BoundSpec
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.pair_bounds import PairBounds
from agents.protocol.ingest.partition import PartitionIngest, _bounds_of
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.userhash import PADDING, IdBytes, UserHash
from schemas.arrays import IntArray
from tests.protocol.ingest_runs import KEY, SPEC, body, run, taken, tick_header
from tests.protocol.test_bounds import copy_tables

STEPS = 8
RECORD = st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 2))
"""User, key, steps ahead of the open one."""
SPECS = st.builds(
    BoundSpec,
    max_contributions=st.integers(1, 4),
    max_per_step=st.sampled_from([None, 1, 2]),
    period_steps=st.sampled_from([None, 1, 3]),
    pairs=st.integers(1, 3),
)


class OneByOne:
    """The rule as sentences: a pair is new once in a period, and where its user has room in the period and step. Then
    it has as many events as pairs may have.
    """

    def __init__(self, spec: BoundSpec) -> None:
        self.spec = spec
        self.pairs = Counter[object]()
        self.charges: Counter[tuple[Any, ...]] = Counter()

    def take(self, user: int, key: int, step: int) -> str:
        period, cap = step // (self.spec.period_steps or 999), self.spec.max_per_step or 999
        if had := self.pairs[user, key, period]:
            self.pairs[user, key, period] += had < self.spec.pairs
            return "accepted" if had < self.spec.pairs else "repeated"
        if self.charges[user, "period", period] >= self.spec.max_contributions or self.charges[user, step] >= cap:
            return "over"
        self.pairs[user, key, period] = 1
        self.charges.update([(user, "period", period), (user, step)])
        return "accepted"


def admit(bounds: Bounds, users: list[int], keys: list[int], steps: list[int]) -> Accepted:
    pairs = [[10 * user + key + 1, 7] for user, key in zip(users, keys, strict=True)]
    return bounds.accept(hashes(users), np.array(steps, np.int64), np.array(pairs, np.uint64).reshape(-1, 2))


def hashes(users: list[int]) -> np.ndarray:
    return np.array([[user + 1, 3] for user in users], np.uint64).reshape(-1, 2)


def told(found: Accepted) -> list[str]:
    assert found.repeated is not None
    assert not (found.accepted & found.repeated).any()
    return np.where(found.accepted, "accepted", np.where(found.repeated, "repeated", "over")).tolist()


@given(
    spec=SPECS,
    moments=st.lists(st.lists(RECORD, max_size=12), min_size=STEPS, max_size=STEPS),
    cuts=st.lists(st.integers(1, 7), min_size=1, max_size=8),
    crashes=st.sets(st.integers(0, 30), max_size=8),
)
def test_it_is_as_if_records_came_one_by_one(
    spec: BoundSpec, moments: list[list[tuple[int, int, int]]], cuts: list[int], crashes: set[int]
) -> None:
    """However they are cut, and wherever another worker goes on, from committed rows or from snapshots."""
    bounds, plain, committed, batches = PairBounds(spec), OneByOne(spec), list[tuple[Any, Any]](), 0
    for open_step, rest in enumerate(moments):
        bounds.expire(open_step)
        while rest:
            size = cuts[batches % len(cuts)]
            batch, rest = rest[:size], rest[size:]
            users, keys, ahead = map(list, zip(*batch, strict=True))
            steps = [open_step + each for each in ahead]
            found = admit(bounds, users, keys, steps)
            assert told(found) == [plain.take(*each) for each in zip(users, keys, steps, strict=True)]
            assert (found.charges > 0).all()
            assert len(np.unique(found.rows, axis=0)) == len(found.rows)
            committed.append((found.rows, found.charges))
            batches += 1
            if batches in crashes:
                lost, bounds = bounds, PairBounds(spec)
                if batches % 2:
                    copy_tables(lost, bounds)
                else:
                    for rows, charges in committed:
                        bounds.add(rows, charges)
                bounds.expire(open_step)
    assert all(count <= spec.max_contributions for place, count in plain.charges.items() if "period" in place)


RECORDS = st.lists(
    st.tuples(st.sampled_from(["ann", "bob", "tick"]), st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=40
)


@given(
    entries=RECORDS,
    cuts=st.lists(st.integers(0, 40), max_size=8),
    seals=st.lists(st.booleans(), max_size=8),
    spec=SPECS,
)
def test_how_records_are_cut_into_batches_and_blocks_changes_nothing(
    entries: list[tuple[str, int, int]], cuts: list[int], seals: list[bool], spec: BoundSpec
) -> None:
    records, step = [], 0
    for offset, (user, _, place) in enumerate(entries):
        header = tick_header(step) if user == "tick" else ()
        records.append(RawRecord(offset, -1, None, body(u=user, t=step, x=place / 4), header))
        step += user == "tick"
    source = with_bounds(spec)
    whole = run(records, [], [], spec=source)
    assert run(records, cuts, seals, spec=source) == whole
    assert run(records, list(range(len(records))), [True] * 40, spec=source) == whole
    assert whole.letters == [], "a repeat and a bound at work are no fault of a record"
    assert whole.accepted == sum(charge for row, charge in whole.charges.items() if row[2] >= ADMITTED)
    charged = sum(charge for row, charge in whole.charges.items() if row[2] < ADMITTED)
    assert charged == sum(row[2] >= ADMITTED for row in whole.charges), "each pair once"
    assert whole.counts.keys() <= {"ACCEPTED", "REPEATED", "OVER_BOUND"}


def with_bounds(spec: BoundSpec) -> SourceSpec:
    return replace(SPEC, bounds=spec)


def test_a_repeat_is_counted_and_charges_nobody() -> None:
    source = with_bounds(BoundSpec(max_contributions=2, pairs=1, period_steps=2))
    places = [0.1, 0.1, 0.6, 0.1, 0.9, 0.6]
    records = [RawRecord(offset, -1, None, body(x=x)) for offset, x in enumerate(places)]
    records.append(RawRecord(6, -1, None, body(x=0.1, t=2)))
    block, letters = taken(source, records)
    assert (dict(block.counts), letters) == ({"ACCEPTED": 3, "REPEATED": 3, "OVER_BOUND": 1}, [])
    assert {step: folded.counts.tolist() for step, folded in block.steps.items()} == {0: [1, 1], 2: [1]}
    machine = PartitionIngest(source, 0)
    machine.take(records)
    assert machine.users == 2, "ann of two periods, and no pair"


def test_what_a_full_step_refuses_may_count_in_another() -> None:
    bounds = PairBounds(BoundSpec(max_contributions=9, max_per_step=1, pairs=1))
    assert told(admit(bounds, [1] * 5, [1, 2, 2, 1, 2], [0, 0, 1, 1, 0])) == [
        "accepted", "over", "accepted", "repeated", "repeated",
    ]  # fmt: skip


def test_pairs_of_periods_that_are_over_give_their_memory_back() -> None:
    bounds = PairBounds(BoundSpec(max_contributions=9, max_per_step=9, period_steps=2, pairs=1))
    for step in range(40):
        bounds.expire(step)
        admit(bounds, [step], [0], [step])
    assert {slot for _, slot, _ in bounds.tables()} == {19, ADMITTED + 19, 39}


@pytest.mark.parametrize("more", [{"surplus": 1}, {"charge": 2}, {"trip_life": 2}])
def test_what_pairs_cannot_be_bounded_with_is_refused(more: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="charged once"):
        _bounds_of(BoundSpec(max_contributions=1, pairs=1, **more))


def test_a_pair_is_told_by_user_and_key_and_by_a_secret() -> None:
    """The hash is that of the bytes of both; words of 0 at the end, which every shorter key has, are left out."""
    rows = np.array([[7, 9, 2**63, 0, 0], [7, 9, 2**63, 1, 0], [7, 9, 0, 1, 0], [0] * 5], np.uint64)
    texts = [np.trim_zeros(row, "b").astype("<u8").tobytes() for row in rows]
    data = np.frombuffer(b"".join(texts) + bytes(PADDING), np.uint8)
    lengths: IntArray = np.array([len(text) for text in texts])
    same = IdBytes(data, np.cumsum(lengths) - lengths, lengths, np.ones(len(rows), bool))
    assert UserHash(KEY).of_rows(rows).tolist() == UserHash(KEY).of_ids(same).tolist()
    assert len(np.unique(UserHash(KEY).of_rows(rows), axis=0)) == len(rows)
    assert not (UserHash(KEY).of_rows(rows) == UserHash(KEY[::-1]).of_rows(rows)).any()
    assert UserHash(KEY).of_rows(rows[:0]).shape == (0, 2)


def test_a_bound_that_counts_records_would_be_caught() -> None:
    """The bound of records charges the second record of the one pair that a user may send."""
    records = [RawRecord(offset, -1, None, body()) for offset in range(3)]
    found = [
        run(records, [], [], spec=with_bounds(BoundSpec(max_contributions=2, pairs=pairs))) for pairs in (True, False)
    ]
    assert [each.accepted for each in found] == [1, 2]
