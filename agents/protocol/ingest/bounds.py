"""Contribution bounds: how many events of a user count, in offset order, however records are cut into batches.

Guarantee: in each period at most `max_contributions` charges of a user are accepted, and in each step at most
`max_per_step` events. This is what lets an engine run at epsilon / max_contributions.
A period is that of the step which an event JOINS, since that is the step whose release it moves: a late event is
charged to the period of its release. All pure filters come before: a refused record charges nobody.

Memory: one table for each period, and for each open step where there is a cap; those that can get no more events go.

Where `surplus` is configured, bounds also count how much they refuse, up to a bound of its own. A refused event is part
of its user's *surplus* while that user has less than `surplus` of them in the period. It joins no step as an
event: the engine is told how many there were in a step, and nothing else of them.
Guarantee: in each period at most `surplus` events of a user are counted, beside at most `max_contributions` charges;
    which events are accepted does not depend on what is counted.
The counts stand in tables like those of users, under slots from `SURPLUS` on, and in blocks and snapshots like them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from agents.protocol.ingest.user_table import BUCKETS, Counts, Hashes, UserTable
from schemas.arrays import BoolArray, IntArray, KeyArray, rows_by

Kind = Literal["period", "step"]
SURPLUS = 1 << 42
"""First slot of surplus; periods and steps are below `STEP_LIMIT`, which is smaller."""
ADMITTED = 1 << 41
"""First slot of trips or pairs that were admitted, of each of which several records may come; no surplus is then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSpec:
    """The settings of bounds; public constants.

    Attributes:
        max_contributions: charges of one user in a period.
        charge: of one event; 2 for an insert whose expiry is measured as a delete.
        max_per_step: events of one user in one step, or None; where trips are bounded, trips that are admitted in it.
        period_steps: length of the aligned periods, or None where the bound never renews.
        trip_life: steps in which records of a trip pass after its first one, where trips are bounded (`trip_bounds`).
        pairs: events of one user with one key in a period, where pairs of both are bounded (`pair_bounds`); 0: they
            are not.
        surplus: refused events of one user that are counted in a period; 0: none are.
    """

    max_contributions: int
    charge: int = 1
    max_per_step: int | None = None
    period_steps: int | None = None
    trip_life: int | None = None
    pairs: int = 0
    surplus: int = 0

    def period_of(self, steps: IntArray) -> IntArray:
        return np.zeros_like(steps) if self.period_steps is None else steps // self.period_steps

    def period_at(self, step: int) -> int:
        """Return the period of one step."""
        return 0 if self.period_steps is None else step // self.period_steps


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Events by user: `order` sorts them so that a user's stand together, still in offset order."""

    order: IntArray
    begins: IntArray
    sizes: IntArray
    users: Hashes

    @staticmethod
    def from_hashes(hashes: Hashes) -> Groups:
        order = np.argsort(hashes[:, 0], kind="stable")
        first = hashes[order, 0]
        second = hashes[order, 1]
        same_first = first[1:] == first[:-1]
        if np.any(same_first & (second[1:] != second[:-1])):  # two users with equal first words may be interleaved
            order = np.lexsort((hashes[:, 1], hashes[:, 0]))
            first, second = hashes[order, 0], hashes[order, 1]
            same_first = first[1:] == first[:-1]
        new = np.ones(len(order), bool)
        np.logical_not(same_first & (second[1:] == second[:-1]), out=new[1:])
        begins = np.flatnonzero(new)
        sizes = np.diff(np.append(begins, len(order)))
        return Groups(order, begins, sizes, np.stack((first[begins], second[begins]), axis=1))

    def first_of_each(self, room: IntArray) -> BoolArray:
        """Mark the first `room` events of each user."""
        rank = np.arange(len(self.order)) - np.repeat(self.begins, self.sizes)
        accepted = np.empty(len(self.order), bool)
        accepted[self.order] = rank < np.repeat(room, self.sizes)
        return accepted


class Accepted(NamedTuple):
    """What bounds decide on a batch of events.

    Attributes:
        accepted: `(events,)` whether each is.
        rows, charges: `(rows, 3)` user hash and slot of what was charged, and how much: the slot is the step where
            there is a cap on steps, else the period.
        surplus: `(events,)` refused and counted; None where nothing is counted.
        admitted: `(events,)` the admitting step of each accepted record's trip; None where no trips are bounded.
        repeated: `(events,)` not accepted, of a pair that is admitted already; None where no pairs are bounded.
    """

    accepted: BoolArray
    rows: KeyArray
    charges: IntArray
    surplus: BoolArray | None = None
    admitted: IntArray | None = None
    repeated: BoolArray | None = None


class Bounds:
    """The bounds of one source partition."""

    def __init__(self, spec: BoundSpec) -> None:
        self.spec = spec
        self._beyond = None
        if spec.surplus:
            self._beyond = Bounds(
                replace(spec, max_contributions=spec.surplus, charge=1, max_per_step=None, surplus=0, trip_life=None)
            )
        self.periods: dict[int, UserTable] = {}
        self.steps: dict[int, UserTable] = {}

    def accept(self, hashes: Hashes, steps: IntArray, parts: Hashes | None = None) -> Accepted:
        """Decide on events in offset order, and remember what was accepted.

        Args: hashes: `(events, 2)` of the users. parts: `(events, 2)` of the trips or pairs that events are parts of,
            where those are bounded.
        """
        accepted = self._under_step_cap(hashes, steps)
        rows: list[KeyArray] = []
        charges: list[IntArray] = []
        periods = self.spec.period_of(steps)
        for period, those in rows_by(periods):
            events = those[accepted[those]]
            groups = Groups.from_hashes(hashes[events])
            table = self._table("period", period)
            found = table.find(groups.users)
            room = (self.spec.max_contributions - found.counts) // self.spec.charge
            accepted[events] = groups.first_of_each(room)
            charged = np.minimum(groups.sizes, np.maximum(room, 0)) * self.spec.charge
            found.write(found.counts + charged)
            if self.spec.max_per_step is None:
                rows.append(charged_rows(groups.users, period)[charged > 0])
                charges.append(charged[charged > 0])
        if self.spec.max_per_step is not None:
            passed = hashes[accepted]
            for step, events in rows_by(steps[accepted]):
                groups = Groups.from_hashes(passed[events])
                self._add("step", step, groups.users, groups.sizes)
                rows.append(charged_rows(groups.users, step))
                charges.append(groups.sizes * self.spec.charge)
        surplus = None
        if self._beyond is not None:
            surplus = np.zeros(len(steps), bool)
            refused = np.flatnonzero(~accepted)
            surplus[refused], more, counts, *_ = self._beyond.accept(hashes[refused], steps[refused])
            rows.append(more + np.array([0, 0, SURPLUS], np.uint64))
            charges.append(counts)
        if not rows:
            return Accepted(accepted, np.zeros((0, 3), np.uint64), np.zeros(0, np.int64))
        return Accepted(accepted, np.concatenate(rows), np.concatenate(charges), surplus)

    def _under_step_cap(self, hashes: Hashes, steps: IntArray) -> BoolArray:
        """Return which events are among the first `max_per_step` of their user and step.

        An event that the period then refuses uses up a place here, which changes nothing: that user is at the bound, so
        nothing more of the user counts in any step of the period.
        """
        accepted = np.ones(len(steps), bool)
        cap = self.spec.max_per_step
        if cap is None:
            return accepted
        for step, events in rows_by(steps):
            groups = Groups.from_hashes(hashes[events])
            table = self.steps.get(step)
            before = np.zeros(len(groups.users), np.int64) if table is None else table.read(groups.users)
            accepted[events] = groups.first_of_each(cap - before)
        return accepted

    def add(self, rows: KeyArray, charges: IntArray) -> None:
        """Fold the charged rows of a committed block, as `accept` gave them."""
        if self._beyond is not None:
            counted = rows[:, 2] >= np.uint64(SURPLUS)
            self._beyond.add(rows[counted] - np.array([0, 0, SURPLUS], np.uint64), charges[counted])
            rows, charges = rows[~counted], charges[~counted]
        slots = rows[:, 2].astype(np.int64)
        for slot, here in rows_by(slots):
            groups = Groups.from_hashes(rows[here, :2])
            charged = np.add.reduceat(charges[here][groups.order], groups.begins)
            period = slot
            if slot < ADMITTED and self.spec.max_per_step is not None:  # it names a step, and no period
                self._add("step", slot, groups.users, charged // self.spec.charge)
                period = self.spec.period_at(slot)
            self._add("period", period, groups.users, charged)

    def fill(self, kind: Kind, slot: int, buckets: Mapping[int, tuple[Hashes, Counts]]) -> None:
        """Set the table of a period or of a step to what all snapshots hold, see `UserTable.of_buckets`.

        Raises: ValueError if something is counted there already: it would be forgotten.
        """
        if slot >= SURPLUS and self._beyond is not None:
            self._beyond.fill(kind, slot - SURPLUS, buckets)
            return
        tables = self._tables_of(kind)
        if slot in tables:
            raise ValueError(f"snapshots of {kind} {slot} are loaded at once, before any event")
        tables[slot] = UserTable.of_buckets(self._largest(kind, slot), buckets)

    def expire(self, open_step: int) -> None:
        """Forget what no event can join any more: steps before the open one, and the periods before its own."""
        open_period = self.spec.period_at(open_step)
        for period in [period for period in self.periods if period < open_period]:
            del self.periods[period]
        for step in [step for step in self.steps if step < open_step]:
            del self.steps[step]
        if self._beyond is not None:
            self._beyond.expire(open_step)

    def tables(self) -> Iterator[tuple[Kind, int, UserTable]]:
        """Yield kind ("period" or "step"), slot and table of all that is remembered: what snapshots hold."""
        yield from (("period", slot, table) for slot, table in sorted(self.periods.items()))
        yield from (("step", slot, table) for slot, table in sorted(self.steps.items()))
        if self._beyond is not None:
            yield from ((kind, SURPLUS + slot, table) for kind, slot, table in self._beyond.tables())

    @property
    def users(self) -> int:
        """The number of users with a count, a user of two periods twice."""
        return sum(len(table) for slot, table in self.periods.items() if slot < ADMITTED)

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for _, _, table in self.tables())

    def bucket_bytes(self) -> int:
        """Return about how large the snapshot of one bucket is."""
        return 200 + 20 * sum(len(table) for _, _, table in self.tables()) // BUCKETS

    def _largest(self, kind: Kind, slot: int) -> int:
        """Return what no count of this table is above."""
        return self.spec.max_contributions if kind == "period" else self.spec.max_per_step or 0

    def _tables_of(self, kind: Kind) -> dict[int, UserTable]:
        return self.periods if kind == "period" else self.steps

    def _table(self, kind: Kind, slot: int) -> UserTable:
        tables = self._tables_of(kind)
        if slot not in tables:
            tables[slot] = UserTable(self._largest(kind, slot))
        return tables[slot]

    def _add(self, kind: Kind, slot: int, users: Hashes, charged: IntArray) -> None:
        found = self._table(kind, slot).find(users)
        found.write(found.counts + charged)


def charged_rows(users: Hashes, slot: int) -> KeyArray:
    """Return `(rows, 3)` of hashes and one slot."""
    return np.concatenate((users, np.full((len(users), 1), slot, np.uint64)), axis=1)
