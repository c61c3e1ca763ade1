"""Contribution bounds where one contribution is a pair of user and key, however many records say it.

The first record of a pair that is admitted in a period charges its user one. Later records of the pair in that period
charge nobody: they are accepted as long as the pair has fewer than `pairs` (one, unless events are counted), and are
*repeats* from then on, which join no step. A record of a pair beyond the bound is refused, and where its step alone was
full, a later record of the pair in another step is a first one again.
Guarantee: in each period at most `max_contributions` pairs of a user are accepted, in each step at most `max_per_step`
    new ones, and of each pair at most `pairs` events. So a key has at most so many events of a user in a period.

A pair is one row, (hash of user and key, period) -> its accepted events; rows stand in tables beside those of users,
under slots from `ADMITTED` on, and in blocks and snapshots like them.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from agents.protocol.ingest.bounds import ADMITTED, Accepted, Bounds, BoundSpec, Groups, Kind, charged_rows
from agents.protocol.ingest.user_table import Hashes
from schemas.arrays import BoolArray, IntArray, KeyArray, rows_by


class PairBounds(Bounds):
    """The bounds of one source partition, by pairs."""

    def __init__(self, spec: BoundSpec) -> None:
        super().__init__(spec)
        if spec.surplus or spec.charge != 1 or spec.trip_life is not None:
            raise ValueError("a pair is charged once, and no surplus of pairs is counted")

    def accept(self, hashes: Hashes, steps: IntArray, parts: Hashes | None = None) -> Accepted:
        """Decide on records in offset order, and remember what was admitted; rows of pairs are among those charged."""
        assert parts is not None, "records without pairs are bounded by `Bounds`"
        accepted, first, repeated = (np.zeros(len(steps), bool) for _ in range(3))
        rows: list[KeyArray] = [np.zeros((0, 3), np.uint64)]
        charges: list[IntArray] = [np.zeros(0, np.int64)]

        def charge(groups: Groups, slot: int) -> None:
            rows.append(charged_rows(groups.users, slot))
            charges.append(groups.sizes)

        periods = self.spec.period_of(steps)
        for period, events in rows_by(periods):
            here = Groups.from_hashes(parts[events])
            had = self._table("period", ADMITTED + period).read(here.users)
            accepted[events], first[events], repeated[events] = self._admitted(
                hashes[events], steps[events], here, had, period
            )
            charge(Groups.from_hashes(parts[events[accepted[events]]]), ADMITTED + period)
        # The slot of a user's charge is the step where there is a cap on steps, as in `Bounds`.
        slots = periods if self.spec.max_per_step is None else steps
        of_first = hashes[first]
        for slot, those in rows_by(slots[first]):
            charge(Groups.from_hashes(of_first[those]), slot)
        charged = Accepted(accepted, np.concatenate(rows), np.concatenate(charges), repeated=repeated)
        self.add(charged.rows, charged.charges)
        return charged

    def _admitted(
        self, hashes: Hashes, steps: IntArray, pairs: Groups, had: IntArray, period: int
    ) -> tuple[BoolArray, BoolArray, BoolArray]:
        """Return which records of one period are admitted, which of them are the first of a pair, and which others are
        repeats; remembers nothing.

        Args: had: `(pairs,)` events that each has already.
        """
        users = Groups.from_hashes(hashes)
        room = self.spec.max_contributions - self._table("period", period).read(users.users)
        of_pair, of_user = _places(pairs), _places(users)
        accepted, first, repeated = (
            np.zeros(len(steps), bool),
            np.zeros(len(steps), bool),
            had[of_pair] >= self.spec.pairs,
        )
        undecided = np.flatnonzero(~repeated & ((room[of_user] > 0) | (had[of_pair] > 0)))
        left, taken = room.tolist(), had.tolist()
        # Only where steps have a cap does it matter which step a record joins.
        cap = self.spec.max_per_step or self.spec.max_contributions
        in_step = self._in_steps(hashes, steps, undecided, of_user)
        for row, pair, user, step in zip(
            undecided.tolist(),
            of_pair[undecided].tolist(),
            of_user[undecided].tolist(),
            steps[undecided].tolist(),
            strict=True,
        ):
            if taken[pair] >= self.spec.pairs:
                repeated[row] = True
                continue
            if not taken[pair]:
                if not left[user] or in_step[user, step] >= cap:
                    continue
                left[user] -= 1
                in_step[user, step] += 1
                first[row] = True
            taken[pair] += 1
            accepted[row] = True
        return accepted, first, repeated

    def _in_steps(
        self, hashes: Hashes, steps: IntArray, rows: IntArray, of_user: IntArray
    ) -> defaultdict[tuple[int, int], int]:
        """Return how many pairs were admitted of (place of a user, step) before, where steps have a cap."""
        found: defaultdict[tuple[int, int], int] = defaultdict(int)
        for step, those in rows_by(steps[rows]) if self.spec.max_per_step is not None else ():
            if (table := self.steps.get(step)) is not None:
                users, at = np.unique(of_user[rows[those]], return_index=True)
                counts = table.read(hashes[rows[those][at]])
                found.update({(user, step): count for user, count in zip(users.tolist(), counts.tolist(), strict=True)})
        return found

    def _largest(self, kind: Kind, slot: int) -> int:
        return self.spec.pairs if slot >= ADMITTED else super()._largest(kind, slot)

    def expire(self, open_step: int) -> None:
        """Forget users and pairs of closed periods."""
        super().expire(open_step)
        oldest = ADMITTED + self.spec.period_at(open_step)
        for slot in [slot for slot in self.periods if ADMITTED <= slot < oldest]:
            del self.periods[slot]


def _places(groups: Groups) -> IntArray:
    """Return of each event the place of its group."""
    places = np.empty(len(groups.order), np.int64)
    places[groups.order] = np.repeat(np.arange(len(groups.users)), groups.sizes)
    return places
