"""Contribution bounds that also count how much they refuse, up to a bound of its own.

An event that a bound refuses is part of its user's *surplus* while that user has less than `surplus` of them in the
period. It joins no step as an event: the engine is told how many there were in a step, and nothing else of them.
Guarantee: in each period at most `surplus` events of a user are counted, beside at most `max_contributions` charges;
    which events are accepted does not depend on what is counted.

The counts stand in tables like those of users, under slots from `SURPLUS` on, and in blocks and snapshots like them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from agents.protocol.ingest.bounds import Bounds, BoundSpec
from agents.protocol.ingest.user_table import Hashes, UserTable
from schemas.arrays import BoolArray, IntArray, KeyArray

SURPLUS = 1 << 42
"""First slot of surplus; periods and steps are below `STEP_LIMIT`, which is smaller."""


class SurplusBounds(Bounds):
    """The bounds of one source partition, and what they refused of each user."""

    def __init__(self, spec: BoundSpec) -> None:
        super().__init__(spec)
        if spec.surplus < 1:
            raise ValueError("a surplus that is counted is at least 1")
        self._beyond = Bounds(
            replace(spec, max_contributions=spec.surplus, charge=1, max_per_step=None, surplus=0, trip_life=None)
        )

    def accept_and_count(self, hashes: Hashes, steps: IntArray) -> tuple[BoolArray, BoolArray, KeyArray, IntArray]:
        """As `accept`; the second array marks events that were refused and counted, the rows hold those of both."""
        accepted, rows, charges = super().accept(hashes, steps)
        counted = np.zeros(len(steps), bool)
        refused = np.flatnonzero(~accepted)
        if len(refused) == 0:
            return accepted, counted, rows, charges
        counted[refused], more, numbers = self._beyond.accept(hashes[refused], steps[refused])
        more[:, 2] += np.uint64(SURPLUS)
        return accepted, counted, np.concatenate((rows, more)), np.concatenate((charges, numbers))

    def add(self, rows: KeyArray, charges: IntArray) -> None:
        """See `Bounds.add`."""
        beyond = rows[:, 2] >= np.uint64(SURPLUS)
        super().add(rows[~beyond], charges[~beyond])
        slots = rows[beyond]
        slots[:, 2] -= np.uint64(SURPLUS)
        self._beyond.add(slots, charges[beyond])

    def put(self, *, period: int | None = None, step: int | None = None, users: Hashes, counts: IntArray) -> None:
        """See `Bounds.put`."""
        if period is not None and period >= SURPLUS:
            self._beyond.put(period=period - SURPLUS, users=users, counts=counts)
        else:
            super().put(period=period, step=step, users=users, counts=counts)

    def expire(self, open_step: int) -> None:
        """See `Bounds.expire`."""
        super().expire(open_step)
        self._beyond.expire(open_step)

    def tables(self) -> Iterator[tuple[str, int, UserTable]]:
        """See `Bounds.tables`."""
        yield from super().tables()
        yield from ((kind, SURPLUS + slot, table) for kind, slot, table in self._beyond.tables())
