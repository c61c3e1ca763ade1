"""No interleaving, batch, crash or replay lets a user contribute more trips than configured.

Records go through `TripBounds` in batches; at random places the worker is lost and another one folds committed rows,
or loads snapshots; what passes goes through `Assembly`, the engine's side. Counted at the end: trips handed out, by
user and period.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.protocol.ingest.bounds import Bounds, BoundSpec
from agents.protocol.ingest.trip_bounds import TripBounds
from engines.trajectory.domain import Assembly, Closing
from engines.trajectory.trips import Trips
from schemas.blocks import Folded
from tests.examples import examples
from tests.protocol.test_bounds import copy_tables

STEPS = 14
RECORD = st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 3), st.booleans())
"""User, trip, steps ahead of the open one, whether it ends the trip."""


def hashes(numbers: list[int]) -> np.ndarray:
    return np.array([[number + 1, 7] for number in numbers], np.uint64).reshape(-1, 2)


def admit(bounds: TripBounds, users: np.ndarray, trips: list[int], steps: np.ndarray) -> tuple[np.ndarray, ...]:
    """Accepted, admitting steps, rows and charges."""
    found = bounds.accept(users, steps, hashes(trips))
    assert found.admitted is not None
    return found.accepted, found.admitted, found.rows, found.charges


class OneByOne:
    """The rule as a sentence: a record passes if an admission of its trip reaches it, or if its user has room."""

    def __init__(self, spec: BoundSpec) -> None:
        self.spec = spec
        self.bounds = TripBounds(spec)
        self.admissions: set[tuple[int, int]] = set()
        self.charges: Counter[tuple[int, int]] = Counter()

    def accept(self, user: int, trip: int, step: int) -> int | None:
        """The admitting step, or None."""
        period = self.spec.period_steps or 0
        reaching = [first for name, first in self.admissions if name == trip and self._reaches(first, step)]
        if reaching:
            first = max(reaching)
            return first if self.spec.max_per_step is None or first <= step else None
        key, in_step = (user, step // period if period else 0), (user, -1 - step)
        cap = self.spec.max_per_step or self.spec.max_contributions
        if self.charges[key] >= self.spec.max_contributions or self.charges[in_step] >= cap:
            return None
        self.charges[key] += 1
        self.charges[in_step] += 1
        self.admissions.add((trip, step))
        return step

    def _reaches(self, first: int, step: int) -> bool:
        same = self.spec.period_steps is None or first // self.spec.period_steps == step // self.spec.period_steps
        assert self.spec.trip_life is not None
        begin = self.bounds.start_of(self.bounds.cell_of(first))
        return same and begin <= step < first + self.spec.trip_life


@settings(max_examples=examples(2))
@given(
    moments=st.lists(st.lists(RECORD, max_size=8), min_size=STEPS, max_size=STEPS),
    cuts=st.lists(st.integers(1, 5), min_size=1, max_size=8),
    crashes=st.sets(st.integers(0, 40), max_size=6),
    most=st.integers(1, 5),
    cap=st.sampled_from([None, 1, 2]),
    life=st.integers(1, 5),
    period=st.sampled_from([None, 1, 3, 4]),
    idle=st.integers(1, 3),
)
def test_no_user_contributes_more_trips_than_configured(
    moments: list[list[tuple[int, int, int, bool]]],
    cuts: list[int],
    crashes: set[int],
    most: int,
    cap: int | None,
    life: int,
    period: int | None,
    idle: int,
) -> None:
    spec = BoundSpec(max_contributions=most, max_per_step=cap, period_steps=period, trip_life=life)
    rules = Closing(idle=idle, life=life, period=period)
    bounds, plain = TripBounds(spec), OneByOne(spec)
    committed: list[tuple[np.ndarray, np.ndarray]] = []
    waiting: dict[int, list[list[int]]] = {step: [] for step in range(STEPS + 4)}
    assembly, batch_number, serial = Assembly.nothing(), 0, 0
    names_of: list[tuple[int, int]] = []
    handed: list[tuple[int, int]] = []
    for open_step, records in enumerate(moments):
        bounds.expire(open_step)
        rest = list(records)
        while rest:
            size = cuts[batch_number % len(cuts)]
            batch, rest = rest[:size], rest[size:]
            users = hashes([user for user, _, _, _ in batch])
            names = [10 * (user + 1) + trip for user, trip, _, _ in batch]
            steps = np.array([open_step + ahead for _, _, ahead, _ in batch], np.int64)
            accepted, admitted, rows, charges = admit(bounds, users, names, steps)
            committed.append((rows, charges))
            for row, (user, _, _, ends) in enumerate(batch):
                expected = plain.accept(user, names[row], int(steps[row]))
                assert (int(admitted[row]) if accepted[row] else None) == expected
                if accepted[row]:
                    serial += 1
                    # A contribution's place on the lattice is its number, so that trips handed out can be told.
                    name = (names[row], int(admitted[row]))
                    if name not in names_of:
                        names_of.append(name)
                    key = [names[row] + 1, 7, name[1], serial, names_of.index(name), int(ends)]
                    waiting[int(steps[row])].append(key)
            batch_number += 1
            if batch_number in crashes:
                lost, bounds = bounds, TripBounds(spec)
                if batch_number % 2:
                    copy_tables(lost, bounds)
                else:
                    for done, charged in committed:
                        bounds.add(done, charged)
                bounds.expire(open_step)
        keys = np.array(waiting[open_step], np.uint64).reshape(-1, 6)
        assembly, trips = assembly.with_step(Folded.from_keys(keys), step=open_step, rules=rules)
        handed += [(number, open_step) for number in trips.y[trips.offsets[:-1]].tolist()]
    numbers = [number for number, _ in handed]
    assert len(set(numbers)) == len(numbers), "a contribution was handed out twice"
    users_and_periods = Counter(
        (names_of[number][0] // 10, 0 if period is None else step // period) for number, step in handed
    )
    assert all(count <= most for count in users_and_periods.values())
    in_one_step = Counter((names_of[number][0] // 10, step) for number, step in handed)
    assert all(count <= rules.together(most, cap) for count in in_one_step.values())


def test_a_trip_is_refused_where_its_step_is_full_and_later_records_of_others_pass() -> None:
    bounds = TripBounds(BoundSpec(max_contributions=9, max_per_step=2, trip_life=3))
    accepted, admitted, _, _ = admit(bounds, hashes([1] * 5), [11, 12, 13, 11, 13], np.array([4, 4, 4, 4, 5]))
    assert accepted.tolist() == [True, True, False, True, True]
    assert admitted[accepted].tolist() == [4, 4, 4, 5]
    # One place is left in step 5, none in step 4; trips 11 and 12 go on.
    asked = [14, 11, 15, 16, 12], np.array([4, 5, 5, 5, 6])
    assert admit(bounds, hashes([1] * 5), *asked)[0].tolist() == [False, True, True, False, True]


def ahead_of_their_end(cap: int | None) -> int:
    """How many trips of a user close in step 3, of all that can be: some are sent ahead of it, and end there."""
    spec, rules = BoundSpec(max_contributions=99, max_per_step=cap, trip_life=3), Closing(idle=9, life=3)
    bounds, assembly = TripBounds(spec), Assembly.nothing()
    closed = Trips.none()
    for open_step in range(4):
        bounds.expire(open_step)
        # In step 3, a cell of 3 to 5 begins.
        begins = [open_step] if open_step < 3 else [3, 4, 5]
        records = [(step, step) for step in begins] + [(begin, 3) for begin in range(1, 6) if open_step == 3]
        steps = np.array([step for _, step in records], np.int64)
        names = [10 + begin for begin, _ in records]
        accepted, admitted, _, _ = admit(bounds, hashes([1] * len(records)), names, steps)
        keys = [
            [10 + begin, 7, int(at), step, 0, int(step == 3 and open_step == 3)]
            for (begin, step), passed, at in zip(records, accepted, admitted, strict=True)
            if passed and step == open_step
        ]
        keys_now = np.unique(np.array(keys, np.uint64).reshape(-1, 6), axis=0)
        assembly, closed = assembly.with_step(Folded.from_keys(keys_now), step=open_step, rules=rules)
    return len(closed)


def test_what_begins_later_does_not_end_in_a_step_under_a_cap() -> None:
    """Without one all five that begin in steps 1 to 5 end in step 3; with one, those of the three steps up to it."""
    assert ahead_of_their_end(None) == 5
    assert ahead_of_their_end(1) == 3 == Closing(idle=9, life=3).together(99, 1)


def test_what_no_record_can_reach_is_forgotten() -> None:
    bounds = TripBounds(BoundSpec(max_contributions=99, max_per_step=9, period_steps=6, trip_life=4))
    for step in range(60):
        bounds.expire(step)
        admit(bounds, hashes([step]), [step], np.array([step]))
        assert len(bounds.periods) <= 5
        assert len(bounds.steps) <= 1


@pytest.mark.parametrize("life", [0, 1 << 16])
def test_a_life_that_no_row_can_hold_is_refused(life: int) -> None:
    with pytest.raises(ValueError, match="lives"):
        TripBounds(BoundSpec(max_contributions=1, trip_life=life))


def test_a_bound_that_charges_records_would_be_caught() -> None:
    """The bound of records refuses the second record of the one trip that a user may send."""
    found = Bounds(BoundSpec(max_contributions=1)).accept(hashes([1, 1]), np.array([0, 0], np.int64))
    assert found.accepted.tolist() == [True, False]
    trips = TripBounds(BoundSpec(max_contributions=1, trip_life=2))
    assert admit(trips, hashes([1, 1]), [5, 5], np.array([0, 0]))[0].all()
