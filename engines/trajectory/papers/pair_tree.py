"""Start and end leaves of trips by PrivTree over pairs of cells: the `paper` mode's start-end part.

A node is a pair of nodes of the hierarchy; its children are the pairs of theirs, four at most. A trip is ONE unit in
ONE leaf of this tree (the pair of its first and its last cell), which is PrivTree's own setting.
Nodes are `(2, nodes)` arrays, of the cell where trips start and of that where they end: the first code of each, and how
often it was halved.
Guarantee: epsilon-DP for one trip: half for the tree, half for its leaves' counts. PrivTree's noise is that of fanout
    4; its privacy proof asks for the decay of a level only, not for how many children there are.
Source: [kumar2024], algorithms 18 and 19; pairs are counted by equation 5.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.noise import NoiseSource, aggregate
from engines.core.noise.split import laplace_exceeds
from engines.core.shares import LaplaceCells
from engines.spatial.split import UNIT as SCORE_UNIT
from engines.spatial.split import SplitRule
from engines.trajectory.chance import uniforms
from engines.trajectory.histograms import UNIT, UNIT_BITS, Histogram, Noisy, measure
from engines.trajectory.papers.hierarchy import DEPTH, Hierarchy, codes_of, margins
from engines.trajectory.trips import Trips
from schemas.arrays import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class _Members:
    """Trips on their way down the tree. PRIVATE.

    Attributes:
        ends: `(2, trips)` codes of their first and last points.
        node: `(trips,)` the node of this level that each is in; -1 for those in leaves above.
    """

    ends: IntArray
    node: IntArray

    @staticmethod
    @aggregate
    def of(trips: Trips) -> _Members:
        """Put all trips in the root."""
        places = trips.offsets[:-1], trips.offsets[1:] - 1
        ends = np.stack([codes_of(trips.x[at], trips.y[at]) for at in places])
        return _Members(ends, np.zeros(len(trips), np.int64))

    @aggregate
    def sizes(self, count: int) -> IntArray:
        """Count the trips in each node of the level, `(count,)`; a trip is in one at most."""
        return np.bincount(self.node[self.node >= 0], minlength=count)

    @aggregate
    def below(self, depths: IntArray, final: BoolArray, split: BoolArray, rank: IntArray) -> _Members:
        """Move trips to the children of the nodes that are split, numbered by `rank`; see `pair_counts`."""
        inside = self.node >= 0
        at = np.where(inside, self.node, 0)
        halves = np.where(final[:, at], 0, (self.ends >> np.maximum(DEPTH - 1 - depths[:, at], 0)) & 1)
        child = rank[4 * at + 2 * halves[0] + halves[1]]
        return _Members(self.ends, np.where(inside & split[at], child, -1))


def pair_counts(
    trips: Trips, cells: Hierarchy, *, epsilon: Fraction, noise: NoiseSource
) -> tuple[Noisy, IntArray, IntArray]:
    """Count private trips in the leaves of the tree of pairs; return noisy counts, first codes and depths."""
    rule = SplitRule(epsilon=epsilon / 2, fanout=4)
    starts, depths = np.zeros((2, 2, 1), np.int64)
    members = _Members.of(trips)
    leaves: list[tuple[IntArray, IntArray, IntArray]] = []
    for depth in range(2 * DEPTH):
        count = starts.shape[1]
        if not count:
            break
        sizes = members.sizes(count)
        # A leaf of the hierarchy has no children of its own.
        final: BoolArray = cells.depths[cells.leaves_of(starts)] <= depths
        thresholds = margins(sizes << UNIT_BITS, depth=depth, rule=rule)
        split = laplace_exceeds(thresholds, unit=SCORE_UNIT, scale=rule.scale, source=noise.child("split", depth))
        split &= ~final.all(axis=0)
        leaves.append((starts[:, ~split], depths[:, ~split], sizes[~split]))
        # Four children each; those that repeat, because a side has none of its own, are dropped.
        parents = np.repeat(np.flatnonzero(split), 4)
        halves = np.tile([[0, 0, 1, 1], [0, 1, 0, 1]], len(parents) // 4)
        real = ~(final[:, parents] & (halves == 1)).any(axis=0)
        parents, halves = parents[real], halves[:, real]
        rank = np.full(4 * count, -1)
        rank[4 * parents + 2 * halves[0] + halves[1]] = np.arange(len(parents))
        members = members.below(depths, final, split, rank)
        depths = depths[:, parents] + ~final[:, parents]
        starts = starts[:, parents] + (halves << (DEPTH - depths))
    starts, depths, sizes = (np.concatenate(part, axis=-1) for part in zip(*leaves, strict=True))
    histogram = Histogram("pairs", sizes.astype(np.int64) << UNIT_BITS)
    return measure(histogram, law=LaplaceCells(epsilon / 2, UNIT), noise=noise), starts, depths


def sampled(
    noisy: Noisy, starts: IntArray, depths: IntArray, cells: Hierarchy, noise: NoiseSource
) -> tuple[IntArray, IntArray]:
    """Draw start and end leaves: as many as counted, rounded down, evenly over each pair's leaves."""
    copies = np.maximum(np.floor(noisy.values), 0).astype(np.int64)
    low = cells.leaves_of(starts)
    width = np.searchsorted(cells.starts, starts + (np.int64(1) << (DEPTH - depths))) - low
    low, width = np.repeat(low, copies, axis=1), np.repeat(width, copies, axis=1)
    chance = [uniforms(low.shape[1], noise.child(name)) for name in ("start", "end")]
    first, last = low + (np.stack(chance) * width).astype(np.int64)
    return first, last
