"""Counts by user hash: sorted runs in numpy arrays, looked up and filled a batch at a time.

A user takes 16 bytes of hash, 1, 2 or 4 of count (bounds up to 255, 65,535, more), and 1 to 2 of a directory by hash.
A range of hashes is one segment: a long run, and a short one of users who came lately, at most a 32nd of it, which is
rewritten with each batch of new ones. When it is full the two become one, and a segment of over `SEGMENT_USERS` becomes
two. Only so much is rewritten with each batch, whatever is full, so that nobody waits long: `make bench-ingest` fills
5 * 10^7 users and says what the longest wait was. Nothing is ever removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from schemas.arrays import BoolArray, IntArray

Words = npt.NDArray[np.uint64]
Hashes = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.integer[Any]]

BUCKETS = 256
SEGMENT_USERS = 1 << 20
RECENT_SHARE = 32
_LEAST_RECENT = 512
_REWRITTEN = SEGMENT_USERS  # users of full segments that one batch may rewrite, beside what it brings itself
_WINDOW = 8  # users of the directory's bin that are looked at at once; a bin has 2 to 4, as hashes are uniform


def buckets_of(hashes: Hashes) -> IntArray:
    """Return the bucket of each hash: its top 8 bits."""
    return (hashes[:, 0] >> np.uint64(56)).astype(np.int64)


class UserTable:
    """Counts by user, as the module says. Hashes are `(users, 2)` uint64.

    Args: largest_count: no count is above. It decides how many bytes one takes.
    """

    def __init__(self, largest_count: int) -> None:
        self._largest = largest_count
        self._users = 0
        self._segments = [_Segment(0, 64, _Run.empty(np.min_scalar_type(largest_count)))]
        self._begins: Words = np.zeros(1, np.uint64)

    @staticmethod
    def of_buckets(largest_count: int, buckets: Mapping[int, tuple[Hashes, Counts]]) -> UserTable:
        """Return a table of what `bucket` said of another one; who is not named there has no user. Nobody is looked up,
        and each user is put in its place once.

        Raises: ValueError for a user of another bucket, whom nobody would find, and for a count that does not fit.
        """
        table = UserTable(largest_count)
        none = np.zeros((0, 2), np.uint64), np.zeros(0, np.uint8)
        table._segments = list(table._filled(0, 64, [buckets.get(bucket, none) for bucket in range(BUCKETS)]))
        table._begins = np.array([each.begin for each in table._segments], np.uint64)
        table._users = sum(len(each.run) for each in table._segments)
        return table

    def _filled(self, begin: int, bits: int, buckets: Sequence[tuple[Hashes, Counts]]) -> Iterator[_Segment]:
        """Yield segments of a range of hashes, which are the users of these buckets."""
        if len(buckets) > 1 and sum(len(users) for users, _ in buckets) > SEGMENT_USERS:
            half, middle = len(buckets) // 2, begin + (1 << bits - 1)
            yield from self._filled(begin, bits - 1, buckets[:half])
            yield from self._filled(middle, bits - 1, buckets[half:])
            return
        users = np.concatenate([users for users, _ in buckets])
        counts = np.concatenate([counts for _, counts in buckets])
        self._check(counts)
        first = users[:, 0]
        order = np.argsort(first, kind="stable")  # two sorted runs of each bucket: nearly in order
        run = _Run(first[order], users[order, 1], counts[order].astype(np.min_scalar_type(self._largest)))
        sizes = np.bincount(buckets_of(users), minlength=BUCKETS)
        low = begin >> 56
        if sizes[low : low + len(buckets)].tolist() != [len(users) for users, _ in buckets]:
            raise ValueError("users among those of a bucket that is not theirs")
        yield _Segment(begin, bits, run)

    def _check(self, counts: Counts) -> None:
        """Check counts. Raises: ValueError, if one would be stored as another number."""
        if len(counts) and not 0 <= int(counts.min()) <= int(counts.max()) <= self._largest:
            raise ValueError(f"a count outside 0 to {self._largest}, the largest of this table")

    def __len__(self) -> int:
        return self._users

    @property
    def nbytes(self) -> int:
        return sum(segment.nbytes for segment in self._segments)

    def read(self, hashes: Hashes) -> IntArray:
        """Return the counts of DISTINCT users, 0 for one who is not here."""
        return self.find(hashes).counts

    def find(self, hashes: Hashes) -> FoundUsers:
        """Return where DISTINCT users stand; good until the next `write`."""
        order = None
        first = np.ascontiguousarray(hashes[:, 0])
        if bool((first[1:] < first[:-1]).any()):
            order = np.argsort(first)
            hashes, first = hashes[order], first[order]
        return FoundUsers(self, first, np.ascontiguousarray(hashes[:, 1]), order)

    def bucket(self, bucket: int) -> tuple[Hashes, IntArray]:
        """Return the users of one bucket and their counts."""
        low, high = np.uint64(bucket << 56), np.uint64((bucket + 1 << 56) - 1)
        near = self._segments[self._segment_of(low) : self._segment_of(high) + 1]
        parts = [run.between(low, high) for segment in near for run in segment.runs if len(run)]
        hashes, counts = np.empty((sum(map(len, parts)), 2), np.uint64), np.empty(sum(map(len, parts)), np.int64)
        end = 0
        for part in parts:
            span = slice(end, end := end + len(part))
            hashes[span, 0], hashes[span, 1], counts[span] = part.first, part.second, part.counts
        return hashes, counts

    def _segment_of(self, word: np.uint64) -> int:
        return int(self._begins.searchsorted(word, "right")) - 1

    def _spans(self, first: Words) -> list[tuple[_Segment, slice]]:
        """Return the segments that sorted first words fall into, and which of them do."""
        ends = np.searchsorted(first, self._begins[1:]).tolist()
        spans = zip(self._segments, [0, *ends], [*ends, len(first)], strict=True)
        return [(segment, slice(begin, end)) for segment, begin, end in spans if end > begin]

    def _entered(self, users: int) -> None:
        """Rewrite what is full, now that some were entered: the fullest first, and no more than a batch may."""
        self._users += users
        left = _REWRITTEN + 2 * RECENT_SHARE * users
        full = sorted((each for each in self._segments if each.fullness > 1), key=lambda each: -each.fullness)
        for segment in full:
            if len(segment.run) > left and segment is not full[0]:
                break
            left -= len(segment.run)
            segment.merge()
            if len(segment.run) > SEGMENT_USERS and segment.bits > 1:
                place = self._segments.index(segment)
                self._segments[place : place + 1] = segment.split()
                self._begins = np.array([each.begin for each in self._segments], np.uint64)


class FoundUsers:
    """The places of some users in a table.

    Attributes:
        counts: `(users,)` what each has, in the order in which they were asked for; 0 for who is not there.
    """

    def __init__(self, table: UserTable, first: Words, second: Words, order: IntArray | None) -> None:
        self._table, self._first, self._second, self._order = table, first, second, order
        self._spans = table._spans(first)
        counts = np.zeros(len(first), np.int64)
        self._places: list[tuple[_Place, _Place]] = []
        for segment, span in self._spans:
            run = segment.find(first[span], second[span])
            recent = segment.recent.find(first[span], second[span])
            for each, place in ((segment.run, run), (segment.recent, recent)):
                counts[span][place.there] = each.counts[place.at[place.there]]
            self._places.append((run, recent))
        self.counts = self._asked(counts)

    def write(self, counts: IntArray) -> None:
        """Set their counts, in the order of `counts`; of who is not there only what is not 0.

        Raises: ValueError, if one is above the largest, or below 0: it would be stored as another number.
        """
        self._table._check(counts)
        if self._order is not None:
            counts = counts[self._order]
        entered = 0
        for (segment, span), (run, recent) in zip(self._spans, self._places, strict=True):
            mine = counts[span]
            for each, place in ((segment.run, run), (segment.recent, recent)):
                each.counts[place.at[place.there]] = mine[place.there]
            new = np.flatnonzero(~(run.there | recent.there) & (mine > 0))
            if len(new):
                added = _Run(
                    self._first[span][new], self._second[span][new], mine[new].astype(segment.run.counts.dtype)
                )
                segment.recent = segment.recent.with_others(added, recent.at[new])
                entered += len(new)
        if entered:
            self._table._entered(entered)

    def _asked(self, counts: IntArray) -> IntArray:
        if self._order is None:
            return counts
        asked = np.empty_like(counts)
        asked[self._order] = counts
        return asked


class _Place(NamedTuple):
    """Whether each user is `there` in a run, and `at` which place it is or belongs."""

    at: IntArray
    there: BoolArray


class _Run:
    """Users in ascending order of the first word of their hash, and their counts."""

    __slots__ = ("counts", "first", "second")

    def __init__(self, first: Words, second: Words, counts: npt.NDArray[np.unsignedinteger]) -> None:
        self.first, self.second, self.counts = first, second, counts

    @staticmethod
    def empty(count_type: npt.DTypeLike) -> _Run:
        return _Run(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, count_type))

    def __len__(self) -> int:
        return len(self.first)

    @property
    def nbytes(self) -> int:
        return self.first.nbytes + self.second.nbytes + self.counts.nbytes

    def find(self, first: Words, second: Words) -> _Place:
        at = np.searchsorted(self.first, first)
        if len(self) == 0:
            return _Place(at, np.zeros(len(first), bool))
        near = np.minimum(at, len(self) - 1)
        same = self.first[near] == first
        there = same & (self.second[near] == second)
        other = np.flatnonzero(same & ~there)
        while len(other):  # users whose first words are equal stand side by side, in any order
            near[other] += 1
            other = other[near[other] < len(self)]
            other = other[self.first[near[other]] == first[other]]
            there[other] = self.second[near[other]] == second[other]
            other = other[~there[other]]
        return _Place(np.where(there, near, at), there)

    def with_others(self, others: _Run, at: IntArray) -> _Run:
        """Return both runs as one. Args: at: before which places of this run the others belong."""
        places = at + np.arange(len(others))
        mine = np.ones(len(self) + len(others), bool)
        mine[places] = False
        merged = []
        for old, new in ((self.first, others.first), (self.second, others.second), (self.counts, others.counts)):
            both = np.empty(len(mine), old.dtype)
            both[mine], both[places] = old, new
            merged.append(both)
        return _Run(*merged)

    def between(self, low: np.uint64, high: np.uint64) -> _Run:
        """Return the users with a first word from `low` to `high`."""
        span = slice(int(self.first.searchsorted(low)), int(self.first.searchsorted(high, "right")))
        return _Run(self.first[span], self.second[span], self.counts[span])

    def copy(self) -> _Run:
        return _Run(self.first.copy(), self.second.copy(), self.counts.copy())


class _Segment:
    """The users whose first words share all but the last `bits` bits with `begin`.

    `directory[i]` is the place in `run` of the first user of bin i or a later one; a bin is a range of first words.
    """

    __slots__ = ("_bin_bits", "_directory", "begin", "bits", "recent", "run")

    def __init__(self, begin: int, bits: int, run: _Run) -> None:
        self.begin, self.bits = begin, bits
        self.run, self.recent = run, _Run.empty(run.counts.dtype)
        self._list()

    def _list(self) -> None:
        self._bin_bits = min(max(1, len(self.run).bit_length() - 2), self.bits)
        ends = np.bincount(self._bins(self.run.first), minlength=1 << self._bin_bits)
        self._directory = np.zeros((1 << self._bin_bits) + 1, np.int32)
        np.cumsum(ends, out=self._directory[1:])

    def _bins(self, first: Words) -> IntArray:
        return ((first - np.uint64(self.begin)) >> np.uint64(self.bits - self._bin_bits)).astype(np.int64)

    @property
    def runs(self) -> Sequence[_Run]:
        return self.run, self.recent

    @property
    def nbytes(self) -> int:
        return self.run.nbytes + self.recent.nbytes + self._directory.nbytes

    def find(self, first: Words, second: Words) -> _Place:
        """Find users in the long run; `at` means something only where the user is there."""
        run, bins = self.run, self._bins(first)
        begins = self._directory[bins].astype(np.int64)
        if len(run) == 0:
            return _Place(begins, np.zeros(len(first), bool))
        window = begins[:, None] + np.arange(_WINDOW)
        same = run.first.take(window, mode="clip") == first[:, None]
        at = np.minimum(begins + same.argmax(axis=1), len(run) - 1)
        there = (run.first[at] == first) & (run.second[at] == second)
        crowded = np.flatnonzero(~there & ((self._directory[bins + 1] - begins > _WINDOW) | same.any(axis=1)))
        if len(crowded):
            found = run.find(first[crowded], second[crowded])
            at[crowded], there[crowded] = found.at, found.there
        return _Place(at, there)

    @property
    def fullness(self) -> float:
        """How full the short run is; above 1, it is to be merged."""
        return len(self.recent) / max(_LEAST_RECENT, len(self.run) // RECENT_SHARE)

    def merge(self) -> None:
        at = np.searchsorted(self.run.first, self.recent.first)
        self.run, self.recent = self.run.with_others(self.recent, at), _Run.empty(self.run.counts.dtype)
        self._list()

    def split(self) -> list[_Segment]:
        """Return both halves of the range; only after `merge`."""
        half = 1 << self.bits - 1
        lower = self.run.between(np.uint64(self.begin), np.uint64(self.begin + half - 1))
        upper = self.run.between(np.uint64(self.begin + half), np.uint64(self.begin + 2 * half - 1))
        # Copies: a view of one half would keep the memory of both.
        halves = ((self.begin, lower), (self.begin + half, upper))
        return [_Segment(begin, self.bits - 1, run.copy()) for begin, run in halves]
