"""Start and end leaves of trips by PrivTree over pairs of cells: the `paper` mode's start-end part.

A node is a pair of nodes of the hierarchy; its children are the pairs of theirs, four at most. A trip is ONE unit in
ONE leaf of this tree (the pair of its first and its last cell), which is PrivTree's own setting.
Guarantee: epsilon-DP for one trip: half for the tree, half for its leaves' counts. PrivTree's noise is that of fanout
    4; its privacy proof asks for the decay of a level only, not for how many children there are.
Source: [kumar2024], algorithms 18 and 19; pairs are counted by equation 5.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.noise import NoiseSource, aggregate, laplace_exceeds
from engines.core.shares import LaplaceCells
from engines.spatial.split import UNIT as SCORE_UNIT
from engines.spatial.split import SplitRule
from engines.trajectory.chance import uniforms
from engines.trajectory.histograms import UNIT, UNIT_BITS, Histogram, Noisy, measure
from engines.trajectory.papers.hierarchy import DEPTH, Hierarchy, codes_of, margins
from engines.trajectory.trips import Trips
from schemas.arrays import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One half of nodes: codes from `start`, `depth` halvings; a leaf of the hierarchy has no children of its own."""

    start: IntArray
    depth: IntArray

    def is_leaf(self, cells: Hierarchy) -> np.ndarray:
        leaf: np.ndarray = cells.depths[cells.leaves_of(self.start)] <= self.depth
        return leaf

    def at(self, index: IntArray) -> _Side:
        return _Side(self.start[index], self.depth[index])

    def child(self, which: IntArray, leaf: np.ndarray) -> _Side:
        """The lower (0) or upper (1) half, or the node itself if it is a leaf."""
        depth = np.where(leaf, self.depth, self.depth + 1)
        return _Side(np.where(leaf, self.start, self.start + (which << (DEPTH - depth))), depth)


@dataclass(frozen=True, slots=True, eq=False)
class _Members:
    """Trips on their way down the tree. PRIVATE.

    Attributes:
        first, last: `(trips,)` codes of their first and last points.
        node: `(trips,)` the node of this level that each is in; -1 for those in leaves above.
    """

    first: IntArray
    last: IntArray
    node: IntArray

    @staticmethod
    @aggregate
    def of(trips: Trips) -> _Members:
        """Put all trips in the root."""
        ends = trips.offsets[:-1], trips.offsets[1:] - 1
        first, last = (codes_of(trips.x[at], trips.y[at]) for at in ends)
        return _Members(first, last, np.zeros(len(trips), np.int64))

    @aggregate
    def sizes(self, count: int) -> IntArray:
        """`(count,)` trips in each node of the level; a trip is in one at most."""
        return np.bincount(self.node[self.node >= 0], minlength=count)

    @aggregate
    def below(self, nodes: tuple[_Side, _Side], final: list[BoolArray], split: BoolArray, rank: IntArray) -> _Members:
        """Move trips to the children of the nodes that are split, numbered by `rank`; see `pair_counts`."""
        inside = self.node >= 0
        at = np.where(inside, self.node, 0)
        lower = _half(self.first, nodes[0], final[0], at)
        upper = _half(self.last, nodes[1], final[1], at)
        return _Members(self.first, self.last, np.where(inside & split[at], rank[4 * at + 2 * lower + upper], -1))


def pair_counts(trips: Trips, cells: Hierarchy, *, epsilon: Fraction, noise: NoiseSource) -> tuple[Noisy, _Side, _Side]:
    """Noisy trips in each leaf of the tree of pairs, and the leaf's two sides. `trips` are private."""
    rule = SplitRule(epsilon=epsilon / 2, fanout=4)
    nodes = (_Side(np.zeros(1, np.int64), np.zeros(1, np.int64)), _Side(np.zeros(1, np.int64), np.zeros(1, np.int64)))
    members = _Members.of(trips)
    leaves: list[tuple[_Side, _Side, IntArray]] = []
    for depth in range(2 * DEPTH):
        count = len(nodes[0].start)
        if not count:
            break
        sizes = members.sizes(count)
        final = [side.is_leaf(cells) for side in nodes]
        thresholds = margins(sizes << UNIT_BITS, depth=depth, rule=rule)
        split = laplace_exceeds(thresholds, unit=SCORE_UNIT, scale=rule.scale, source=noise.child("split", depth))
        split &= ~(final[0] & final[1])
        done, going = np.flatnonzero(~split), np.flatnonzero(split)
        leaves.append((nodes[0].at(done), nodes[1].at(done), sizes[done]))
        # Four children each; those that repeat, because a side has none of its own, are dropped.
        which = np.arange(4)
        parents, low, high = np.repeat(going, 4), np.tile(which >> 1, len(going)), np.tile(which & 1, len(going))
        real = ~(final[0][parents] & (low == 1)) & ~(final[1][parents] & (high == 1))
        rank = np.full(4 * count, -1)
        rank[(4 * parents + 2 * low + high)[real]] = np.arange(int(real.sum()))
        members = members.below(nodes, final, split, rank)
        parents, low, high = parents[real], low[real], high[real]
        nodes = (
            nodes[0].at(parents).child(low, final[0][parents]),
            nodes[1].at(parents).child(high, final[1][parents]),
        )
    start = _Side(*(np.concatenate([getattr(leaf[0], name) for leaf in leaves]) for name in ("start", "depth")))
    end = _Side(*(np.concatenate([getattr(leaf[1], name) for leaf in leaves]) for name in ("start", "depth")))
    sizes = np.concatenate([leaf[2] for leaf in leaves])
    histogram = Histogram("pairs", sizes.astype(np.int64) << UNIT_BITS)
    return measure(histogram, law=LaplaceCells(epsilon / 2, UNIT), noise=noise), start, end


def _half(codes: IntArray, nodes: _Side, leaf: np.ndarray, at: IntArray) -> IntArray:
    """The half of its node that each trip is in; 0 where the node is a leaf."""
    bit = (codes >> np.maximum(DEPTH - 1 - nodes.depth[at], 0)) & 1
    return np.where(leaf[at], 0, bit)


def sampled(noisy: Noisy, start: _Side, end: _Side, cells: Hierarchy, noise: NoiseSource) -> tuple[IntArray, IntArray]:
    """Start and end leaves of the hierarchy: as many as counted, rounded down, evenly over each pair's leaves."""
    copies = np.maximum(np.floor(noisy.values), 0).astype(np.int64)
    return (
        _leaves_within(start, copies, cells, noise.child("start")),
        _leaves_within(end, copies, cells, noise.child("end")),
    )


def _leaves_within(side: _Side, copies: IntArray, cells: Hierarchy, noise: NoiseSource) -> IntArray:
    low = cells.leaves_of(side.start)
    high = np.searchsorted(cells.starts, side.start + (np.int64(1) << (DEPTH - side.depth)))
    low, width = np.repeat(low, copies), np.repeat(high - low, copies)
    leaves: IntArray = low + (uniforms(len(low), noise) * width).astype(np.int64)
    return leaves
