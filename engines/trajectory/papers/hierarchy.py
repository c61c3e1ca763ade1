"""A partition of the box by PrivTree over the points of trips: the `paper` mode's cells.

Cells are found by halving, x first, at most 20 times. A trip of t points weighs 1/t at each of them.
Guarantee: epsilon-DP for one trip, although its weight lies in many cells: a mean over the trip's points of
    PrivTree's own bound (docs/notes/0050-a-tree-over-parts.md).
Source: [kumar2024], algorithm 16, with PrivTree of [zhang2016].
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.noise import NoiseSource, aggregate
from engines.core.noise.split import laplace_exceeds
from engines.spatial.domain.box import BoxDomain
from engines.spatial.split import UNIT as SCORE_UNIT
from engines.spatial.split import SplitRule
from engines.trajectory.chance import uniforms
from engines.trajectory.histograms import equal_shares
from engines.trajectory.trips import LATTICE, LATTICE_BITS, Trips
from schemas.arrays import FloatArray, IntArray

DEPTH = 20
BOX = BoxDomain("x", "y", (0.0, 0.0, LATTICE, LATTICE), DEPTH)
"""Numbers its cells: bits of x and y by turns, x first."""


def codes_of(x: IntArray, y: IntArray) -> IntArray:
    """Return the cells of lattice points, `(points,)`."""
    return BOX.cells(x, y)  # type: ignore[arg-type]  # exact in float64


def margins(scores: IntArray, *, depth: int, rule: SplitRule) -> IntArray:
    """Return what each cell's noise must exceed for a split, in units of 2**-20 trips; the threshold is 0."""
    return np.minimum(depth * rule.decay_units - scores, rule.decay_units)


@dataclass(frozen=True, slots=True, eq=False)
class Hierarchy:
    """Released leaves, in the order of their codes.

    Attributes:
        starts: `(leaves,)` first code of each.
        depths: `(leaves,)`.
    """

    starts: IntArray
    depths: IntArray

    def __len__(self) -> int:
        return len(self.starts)

    def leaves_of(self, codes: IntArray) -> IntArray:
        return np.searchsorted(self.starts, codes, side="right") - 1

    def corners(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return lowest x and y of each leaf and its width and height, in lattice steps."""
        nodes = ((np.int64(1) << DEPTH) + self.starts) >> (DEPTH - self.depths)
        west, south, east, north = (side.astype(np.int64) for side in BOX.corners(nodes, self.depths))
        return west, south, east - west, north - south

    def raster(self) -> IntArray:
        """Return the leaf at each cell of a grid as fine as the smallest leaf: `(1024, 1024)` at most."""
        bits = (int(self.depths.max()) + 1) // 2
        x, y, width, height = (values >> (LATTICE_BITS - bits) for values in self.corners())
        # At an odd depth the smallest leaf is higher than a cell is; none is narrower.
        raster = np.zeros((1 << bits, 1 << bits), np.int64)
        for leaf in range(len(self)):
            raster[x[leaf] : x[leaf] + width[leaf], y[leaf] : y[leaf] + height[leaf]] = leaf
        return raster

    def adjacent(self) -> tuple[IntArray, IntArray]:
        """Return pairs of leaves that touch, both ways round, and each leaf with itself, in ascending order."""
        raster = self.raster()
        sides = [
            (raster[1:], raster[:-1]),
            (raster[:, 1:], raster[:, :-1]),
            (raster[1:, 1:], raster[:-1, :-1]),
            (raster[1:, :-1], raster[:-1, 1:]),
        ]
        count = len(self)
        pairs = [np.arange(count) * (count + 1)]
        for left, right in sides:
            touching = np.unique((left * count + right)[left != right])
            pairs += [touching, touching % count * count + touching // count]
        every = np.unique(np.concatenate(pairs))
        return every // count, every % count

    def points(self, leaves: IntArray, noise: NoiseSource) -> tuple[IntArray, IntArray]:
        """Draw uniform lattice points in these leaves."""
        x, y, width, height = self.corners()
        chance: FloatArray = uniforms(2 * len(leaves), noise).reshape(2, -1)
        across = (chance[0] * width[leaves]).astype(np.int64)
        return x[leaves] + across, y[leaves] + (chance[1] * height[leaves]).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class PointWeights:
    """Weights of the points of trips, PRIVATE.

    Attributes:
        codes: `(points,)` ascending.
        sums: `(points + 1,)` weights of the points before each, in units of 2**-20 trips.
    """

    codes: IntArray
    sums: IntArray

    @staticmethod
    @aggregate
    def of(trips: Trips) -> PointWeights:
        codes = codes_of(trips.x, trips.y)
        order = np.argsort(codes, kind="stable")
        shares = np.repeat(equal_shares(trips.sizes), trips.sizes)
        return PointWeights(codes[order], np.append(0, np.cumsum(shares[order])))

    @aggregate
    def between(self, starts: IntArray, ends: IntArray) -> IntArray:
        """Weigh codes from `starts[i]` to before `ends[i]`, `(ranges,)`; a trip weighs one in disjoint ranges."""
        return self.sums[np.searchsorted(self.codes, ends)] - self.sums[np.searchsorted(self.codes, starts)]


def discretised(trips: Trips, *, epsilon: Fraction, noise: NoiseSource) -> Hierarchy:
    """Draw the partition. See the module for its guarantee."""
    rule = SplitRule(epsilon=epsilon, fanout=2)
    weights = PointWeights.of(trips)
    nodes, starts, depths = np.zeros(1, np.int64), [], []
    for depth in range(DEPTH + 1):
        first = nodes << (DEPTH - depth)
        split = np.zeros(len(nodes), bool)
        if depth < DEPTH and len(nodes):
            scores = weights.between(first, first + (1 << (DEPTH - depth)))
            thresholds = margins(scores, depth=depth, rule=rule)
            split = laplace_exceeds(thresholds, unit=SCORE_UNIT, scale=rule.scale, source=noise.child("split", depth))
        starts.append(first[~split])
        depths.append(np.full(int((~split).sum()), depth))
        nodes = (nodes[split, None] * 2 + np.arange(2)).reshape(-1)
    every, at = np.concatenate(starts), np.concatenate(depths)
    order = np.argsort(every)
    return Hierarchy(every[order], at[order])
