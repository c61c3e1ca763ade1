"""Counts by user hash: a table with open addressing in two numpy arrays, looked up and filled a batch at a time.

A slot is 16 bytes of hash and 2 or 4 of count; with 47 to 70 % of the slots in use that is 26 to 39 bytes a user with
bounds up to 65,535. The home slot of a hash grows with the hash, so the users of a range of hashes lie together (a
snapshot reads one of 256 such ranges) and growing is one sorted pass instead of probing. Nothing is ever removed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from schemas.arrays import IntArray

Hashes = npt.NDArray[np.uint64]

BUCKETS = 256
MAX_LOAD = 0.7
GROWTH = 1.5
_SMALLEST = 1024
_SLACK = 256  # slots behind the last home slot: probing never wraps around


def buckets_of(hashes: Hashes) -> IntArray:
    """Bucket of each hash: its top 8 bits."""
    return (hashes[:, 0] >> np.uint64(56)).astype(np.int64)


class UserTable:
    """See the module. Hashes are `(users, 2)` uint64; a first word of 0 is never one (`userhash.hash_ids`)."""

    def __init__(self, largest_count: int) -> None:
        self._count_type = np.uint16 if largest_count < 1 << 16 else np.uint32
        self._homes = _SMALLEST
        self._users = 0
        self._hashes: Hashes = np.zeros((_SMALLEST + _SLACK, 2), np.uint64)
        self._counts = np.zeros(_SMALLEST + _SLACK, self._count_type)

    def __len__(self) -> int:
        return self._users

    @property
    def nbytes(self) -> int:
        return self._hashes.nbytes + self._counts.nbytes

    def read(self, hashes: Hashes) -> IntArray:
        """Counts of DISTINCT users, 0 for one who is not here."""
        slots = self._find(hashes)
        return np.where(slots >= 0, self._counts[slots], 0).astype(np.int64)

    def slots(self, hashes: Hashes) -> IntArray:
        """Slots of DISTINCT users, who are entered with count 0 where they are new; good until the next call."""
        if self._users + len(hashes) > MAX_LOAD * self._homes:
            self._grow(self._users + len(hashes))
        while True:
            slots = self._enter(hashes)
            if slots is not None:
                return slots
            self._grow(self._users)  # ran off the end: those entered so far are found again

    def counts_at(self, slots: IntArray) -> IntArray:
        return self._counts[slots].astype(np.int64)

    def set_at(self, slots: IntArray, counts: IntArray) -> None:
        self._counts[slots] = counts

    def bucket(self, bucket: int) -> tuple[Hashes, IntArray]:
        """Users of one bucket and their counts."""
        begin = self._home(bucket << 56)
        end = self._home((bucket + 1) << 56)
        while end < len(self._hashes) and self._hashes[end, 0]:  # the run that the bucket's last users may lie in
            end += 1
        hashes = self._hashes[begin:end]
        mine = (hashes[:, 0] != 0) & (hashes[:, 0] >> np.uint64(56) == bucket)
        return hashes[mine], self._counts[begin:end][mine].astype(np.int64)

    def _home(self, first_word: int) -> int:
        return (first_word >> 32) * self._homes >> 32

    def _home_slots(self, first_words: npt.NDArray[np.uint64]) -> IntArray:
        return ((first_words >> np.uint64(32)) * np.uint64(self._homes) >> np.uint64(32)).astype(np.int64)

    def _find(self, hashes: Hashes) -> IntArray:
        found = np.full(len(hashes), -1, np.int64)
        slots = self._home_slots(hashes[:, 0])
        open_rows = np.arange(len(hashes))
        while len(open_rows):
            inside = slots[open_rows] < len(self._hashes)
            open_rows = open_rows[inside]
            here = slots[open_rows]
            there = self._hashes[here]
            hit = (there[:, 0] == hashes[open_rows, 0]) & (there[:, 1] == hashes[open_rows, 1])
            found[open_rows[hit]] = here[hit]
            open_rows = open_rows[~hit & (there[:, 0] != 0)]
            slots[open_rows] += 1
        return found

    def _enter(self, hashes: Hashes) -> IntArray | None:
        """Find or enter; None where probing came to the end of the table."""
        found = np.empty(len(hashes), np.int64)
        first, second = np.ascontiguousarray(hashes[:, 0]), np.ascontiguousarray(hashes[:, 1])
        flat = self._hashes.reshape(-1)
        rows = np.arange(len(hashes))
        here = self._home_slots(first)
        while len(rows):
            if int(here.max()) >= len(self._hashes):
                return None
            there = flat[2 * here]
            wanted = first[rows]
            free = there == 0
            if free.any():
                # Several new users may want the same free slot: all write, the last write of both words stays.
                flat[2 * here[free]] = wanted[free]
                flat[2 * here[free] + 1] = second[rows[free]]
                there = flat[2 * here]
            done = there == wanted
            done &= flat[2 * here + 1] == second[rows]
            self._users += int((done & free).sum())
            found[rows[done]] = here[done]
            rest = ~done
            rows = rows[rest]
            here = here[rest] + 1
        return found

    def _grow(self, users: int) -> None:
        """Make room: sort by hash, then each goes to its home slot or right behind the one before."""
        live = self._hashes[:, 0] != 0
        hashes, counts = self._hashes[live], self._counts[live]
        order = np.argsort(hashes[:, 0], kind="stable")  # nearly sorted already
        self._homes = int(max(users / MAX_LOAD + 1, self._homes * GROWTH))
        index = np.arange(len(order))
        slots = index + np.maximum.accumulate(self._home_slots(hashes[order, 0]) - index)
        size = max(self._homes, int(slots[-1]) + 1 if len(slots) else 0) + _SLACK
        self._hashes = np.zeros((size, 2), np.uint64)
        self._counts = np.zeros(size, self._count_type)
        self._hashes[slots] = hashes[order]
        self._counts[slots] = counts[order]
