"""Contribution bounds where one contribution is a trip of many records.

The first record of a user's trip that is admitted charges the user one; that step is the trip's *admission*. Later
records of the trip pass free for `life` steps, within the period of the charge. A record that comes after that, or
whose first one was refused, is a first record again: it is charged, or refused. The hash of (user, trip) and the
admitting step together name one contribution, and the engine hands each out once (`engines.trajectory.domain`).
Guarantee: in each period a user has at most `max_contributions` admissions, in each step at most `max_per_step`, and
    every record that passes belongs to one of them. So the steps of a period release at most `max_contributions` trips
    of a user, for a trip closes in the period of its admission. Under `max_per_step` one step releases at most as many
    admissions of each of the `life` steps that end with it: no record passes that joins an earlier step than that of
    its admission, so no trip closes before.

Steps are cut into *cells* of at most `life` steps that end with their period. A trip is admitted in a cell once at
most: from then on all its records that join steps of this cell pass, and those of the next cell while the trip lives.
So an admission is one row, (hash of user and trip, cell) -> place of the step in its cell, plus one; rows stand in
tables beside those of users, under slots from `ADMITTED` on, and in blocks and snapshots like them.
"""

from __future__ import annotations

import numpy as np

from agents.protocol.ingest.bounds import ADMITTED, Accepted, Bounds, BoundSpec, Groups, Kind
from agents.protocol.ingest.user_table import Hashes
from schemas.arrays import IntArray, KeyArray, rows_by

MAX_LIFE = (1 << 16) - 2
"""Steps: places in a cell are counts of a table, see `user_table`."""


class TripBounds(Bounds):
    """The bounds of one source partition, by trips."""

    def __init__(self, spec: BoundSpec) -> None:
        super().__init__(spec)
        if spec.trip_life is None or not 1 <= spec.trip_life <= MAX_LIFE:
            raise ValueError(f"a trip lives 1 to {MAX_LIFE} steps")
        self._life = spec.trip_life
        self._period = spec.period_steps

    def cell_of(self, step: int) -> int:
        if self._period is None:
            return step // self._life
        return step // self._period * -(-self._period // self._life) + step % self._period // self._life

    def start_of(self, cell: int) -> int:
        """Return the first step of a cell."""
        if self._period is None:
            return cell * self._life
        cells = -(-self._period // self._life)
        return cell // cells * self._period + cell % cells * self._life

    def accept(self, hashes: Hashes, steps: IntArray, parts: Hashes | None = None) -> Accepted:
        """Decide on records in offset order, and remember what was admitted; rows of trips are among those charged."""
        trips = parts
        assert trips is not None, "records without trips are bounded by `Bounds`"
        period_at, step_list = self.spec.period_at, steps.tolist()
        by_step = dict(rows_by(steps))
        cells = {step: self.cell_of(step) for step in by_step}
        admitted = self._known(trips, np.array([cells[step] for step in step_list], np.int64))
        # Whose room matters in a period or a step: looked up once one of them asks.
        asking: dict[tuple[Kind, int], IntArray] = {
            ("period", period): rows for period, rows in rows_by(self.spec.period_of(steps))
        }
        asking |= {("step", step): rows for step, rows in by_step.items()}
        left: dict[tuple[Kind, int], dict[tuple[int, int], int]] = {}
        accepted, admissions = np.zeros(len(steps), bool), np.zeros(len(steps), np.int64)
        charged: dict[tuple[int, tuple[int, int]], int] = {}
        entered: dict[tuple[int, tuple[int, int]], int] = {}
        user_names, trip_names = list(map(tuple, hashes.tolist())), list(map(tuple, trips.tolist()))
        for row, (user, trip, step) in enumerate(zip(user_names, trip_names, step_list, strict=True)):
            cell = cells[step]
            first = admitted.get((cell, trip))
            if first is None:
                before = admitted.get((cell - 1, trip))
                if before is not None and step < before + self._life and period_at(before) == period_at(step):
                    first = before
            elif self.spec.max_per_step is not None and step < first:
                continue
            if first is None:
                places: list[tuple[Kind, int]] = [("period", period_at(step))]
                if self.spec.max_per_step is not None:
                    places.append(("step", step))
                for place in places:
                    if place not in left:
                        left[place] = self._rooms(*place, hashes[asking[place]])
                if not all(left[place][user] for place in places):
                    continue
                for place in places:
                    left[place][user] -= 1
                # The slot is the step where there is a cap on steps, as in `Bounds`.
                slot = places[-1][1], user
                charged[slot] = charged.get(slot, 0) + 1
                first = admitted[cell, trip] = step
                entered[cell, trip] = step - self.start_of(cell) + 1
            accepted[row], admissions[row] = True, first
        rows, charges = _rows_of(charged, {(ADMITTED + cell, trip): place for (cell, trip), place in entered.items()})
        self.add(rows, charges)
        return Accepted(accepted, rows, charges, admitted=admissions)

    def _rooms(self, kind: Kind, slot: int, hashes: Hashes) -> dict[tuple[int, int], int]:
        """Return how many trips may still be admitted of each of these users in a period, or in a step."""
        most, tables = self._largest(kind, slot), self._tables_of(kind)
        users = Groups.from_hashes(hashes).users
        used = tables[slot].read(users) if slot in tables else np.zeros(len(users), np.int64)
        return dict(zip(map(tuple, users.tolist()), (most - used).tolist(), strict=True))

    def _largest(self, kind: Kind, slot: int) -> int:
        return self._life if slot >= ADMITTED else super()._largest(kind, slot)

    def _known(self, trips: Hashes, cells: IntArray) -> dict[tuple[int, tuple[int, int]], int]:
        """Return the admitting step by (cell, trip), for these trips and the cells that matter to them.

        Args: cells: `(trips,)` which each joins.
        """
        known = {}
        for joined, rows in rows_by(cells):
            names = Groups.from_hashes(trips[rows]).users
            for cell in (joined - 1, joined):
                table = self.periods.get(ADMITTED + cell)
                if table is not None:
                    places = table.read(names)
                    there = np.flatnonzero(places)
                    start = self.start_of(cell) - 1
                    for name, place in zip(names[there].tolist(), places[there].tolist(), strict=True):
                        known[cell, (name[0], name[1])] = start + place
        return known

    def expire(self, open_step: int) -> None:
        """Forget users of closed periods, and trips of which no record can pass any more."""
        super().expire(open_step)
        oldest = ADMITTED + self.cell_of(open_step) - 1
        for slot in [slot for slot in self.periods if ADMITTED <= slot < oldest]:
            del self.periods[slot]


def _rows_of(*groups: dict[tuple[int, tuple[int, int]], int]) -> tuple[KeyArray, IntArray]:
    rows = [(first, second, slot) for group in groups for slot, (first, second) in group]
    charges = [charge for group in groups for charge in group.values()]
    if not rows:
        return np.zeros((0, 3), np.uint64), np.zeros(0, np.int64)
    return np.array(rows, np.uint64), np.array(charges, np.int64)
