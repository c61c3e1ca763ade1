"""Events cut into groups of about equal size and shape, so that a release can look at some before the others.

The k-th event of a key (a cell and an operation) is in group `(place(key) + k) mod groups`, `place` being a fixed
public function of the stream's name. Events of one key are exchangeable, so one event more is one event more in ONE
group: the cut has L1 sensitivity 1 and needs no coins.
Source: ours; docs/notes/0030-held-leaf-counters.md.
"""

from __future__ import annotations

import numpy as np

from engines.spatial.partition import Changes
from engines.spatial.placement import Placement
from schemas.blocks import Folded, IntArray


def group_counts(events: Folded, *, groups: int, placement: Placement) -> IntArray:
    """How many of each row's events are in each group, `(groups, rows)` int64; PRIVATE, like the events.

    >>> group_counts(Folded(np.array([[6]], np.uint64), np.array([9])), groups=4, placement=Placement("docs"))[:, 0]
    array([2, 2, 3, 2])
    """
    place = (placement.words(events.keys[:, 0].astype(np.int64)) % np.uint64(groups)).astype(np.int64)
    rank = (np.arange(groups)[:, None] - place) % groups
    counts: IntArray = (events.counts + groups - 1 - rank) // groups
    return counts


def grouped(events: Folded, *, groups: int, placement: Placement) -> list[Changes]:
    """The events of each group."""
    parts = []
    for counts in group_counts(events, groups=groups, placement=placement):
        there = counts > 0
        parts.append(Changes.of(Folded(events.keys[there], counts[there])))
    return parts
