"""Events cut into groups of the same shape, so that a release can look at some before the others.

The k-th event of a key (a cell and an operation) is at place `(start(key) + k) mod places`, `start` being a fixed
public function of the stream's name, and each place belongs to one group. Events of one key are exchangeable, so one
event more is one event more in ONE group: the cut has L1 sensitivity 1 and needs no coins.
Source: ours; docs/notes/0030-held-leaf-counters.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np

from engines.core.noise import aggregate
from engines.spatial.partition import Changes
from engines.spatial.placement import Placement
from schemas.arrays import IntArray
from schemas.blocks import Folded

STRIDE = 7
"""Places of a group that follow each other lie so far apart: it has few common divisors with numbers of places."""


def group_counts(events: Folded, *, sizes: Sequence[int], placement: Placement) -> IntArray:
    """How many of each row's events are in each group, `(groups, rows)` int64; PRIVATE, like the events.

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
    """The events of each group."""
    parts = []
    for counts in group_counts(events, sizes=sizes, placement=placement):
        there = counts > 0
        parts.append(Changes.of(Folded(events.keys[there], counts[there])))
    return parts
