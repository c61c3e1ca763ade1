"""The private events of one release, sorted by cell, and the same events cut into groups.

`Changes` gives counts of public ranges of cells and nothing else.
A release can look at some groups before the others: the k-th event of a key (a cell and an operation) is at place
`(start(key) + k) mod places`, `start` being a fixed public function of the stream's name, and each place belongs to one
group. Events of one key are exchangeable, so one event more is one event more in ONE group: the cut has L1 sensitivity
1 and needs no coins.
Source: ours; docs/notes/0030-held-leaf-counters.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from engines.core.noise import aggregate
from engines.core.state import signs_of
from engines.spatial.points import Placement
from schemas.arrays import IntArray
from schemas.blocks import Folded


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """The private events of one release, sorted by cell.

    Attributes:
        codes: `(rows,)` int64 finest cells, ascending.
        moves: `(rows + 1,)` int64, how many events, inserted or deleted, lie before a row.
        gains: `(rows + 1,)` int64, inserts minus deletes before a row.
    """

    codes: IntArray
    moves: IntArray
    gains: IntArray

    @staticmethod
    @aggregate
    def of(events: Folded) -> Changes:
        keys = events.keys[:, 0]
        moves = np.append(0, np.cumsum(events.counts))
        gains = np.append(0, np.cumsum(events.counts * signs_of(events.keys)))
        return Changes((keys >> np.uint64(1)).astype(np.int64), moves, gains)

    @aggregate
    def net(self, starts: IntArray, ends: IntArray) -> IntArray:
        """Return inserts minus deletes of finest cells from `starts[i]` to before `ends[i]`, `(ranges,)`; private.

        One event moves it by one in the ranges that hold its cell.
        """
        return self.gains[np.searchsorted(self.codes, ends)] - self.gains[np.searchsorted(self.codes, starts)]

    @aggregate
    def moved(self, starts: IntArray, ends: IntArray) -> IntArray:
        """Return inserts plus deletes of ranges of cells, as `net` takes them; private."""
        return self.moves[np.searchsorted(self.codes, ends)] - self.moves[np.searchsorted(self.codes, starts)]

    @aggregate
    def net_between(self, edges: IntArray) -> IntArray:
        """Return `net` of the ranges between ascending edges, `(edges - 1,)`; private."""
        gains: IntArray = np.diff(self.gains[np.searchsorted(self.codes, edges)])
        return gains


STRIDE = 7
"""Places of a group that follow each other lie so far apart: it has few common divisors with numbers of places."""


def group_counts(events: Folded, *, sizes: Sequence[int], placement: Placement) -> IntArray:
    """Count the events of each row in each group, `(groups, rows)` int64; PRIVATE, like the events.

    Args:
        sizes: of the groups, in shares of their sum; each at least 1.

    >>> events = Folded(np.array([[6]], np.uint64), np.array([16]))
    >>> group_counts(events, sizes=(1, 3), placement=Placement("docs"))[:, 0]
    array([ 4, 12])
    """
    places = sum(sizes)
    assert gcd(STRIDE, places) == 1
    owner = np.repeat(np.arange(len(sizes)), sizes)[np.arange(places) * STRIDE % places]
    start = (placement.words(events.keys[:, 0].astype(np.int64)) % np.uint64(places)).astype(np.int64)
    counts = np.zeros((len(sizes), len(events.counts)), np.int64)
    for place, group in enumerate(owner.tolist()):
        counts[group] += (events.counts + places - 1 - (place - start) % places) // places
    return counts


@aggregate
def grouped(events: Folded, *, sizes: Sequence[int], placement: Placement) -> list[Changes]:
    """Return the events of each group."""
    parts = []
    for counts in group_counts(events, sizes=sizes, placement=placement):
        there = counts > 0
        parts.append(Changes.of(Folded(events.keys[there], counts[there])))
    return parts
