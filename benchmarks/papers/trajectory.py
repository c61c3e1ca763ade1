"""Trips by one coarse uniform grid: density, transitions, all pairs of cells and lengths, each measured flat.

Guarantee: epsilon-DP for one trip; it weighs one at most in each histogram, and their shares add up to epsilon.
Source: after the common outline of DP-Star and AdaTrace as [kumar2024] describes it in sections 5.3.2 to
5.3.8; only the density is refined, inside the cells, as far as its noise allows.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from engines.core.noise import NoiseSource
from engines.core.shares import PureShares
from engines.trajectory.chance import choices, uniforms
from engines.trajectory.engine import Limits
from engines.trajectory.grid import Grid
from engines.trajectory.histograms import UNIT, Histogram, Noisy, equal_shares, measure
from engines.trajectory.trips import LATTICE, Trips
from engines.trajectory.walks import Errands, EvenGraph, walk
from schemas.arrays import FloatArray, IntArray

SHARES = {
    "trips": Fraction(5, 100),
    "density": Fraction(25, 1000),
    "fine density": Fraction(25, 1000),
    "transitions": Fraction(35, 100),
    "pairs": Fraction(45, 100),
    "lengths": Fraction(10, 100),
}
FARTHEST, LENGTHS = 6, 24
"""Classes of hops, the last one open, and of a trip's points: thirds of octaves."""


def grid_trips(trips: Trips, *, epsilon: Fraction, limits: Limits, noise: NoiseSource, side: int = 6) -> Trips:
    """Make synthetic trips at this epsilon for one of the private `trips`; `side` is that of the grid."""
    trips, shares = trips.first(limits.points), PureShares(epsilon)
    grid, drawn, chance = Grid(side), noise.child("noise"), noise.child("chance")
    laws = {name: shares.cells(epsilon * share, UNIT) for name, share in SHARES.items()}
    targets = np.concatenate([np.arange(grid.size)[:, None], grid.neighbours()], axis=1)
    noisy = {
        histogram.name: measure(histogram, law=laws[histogram.name], noise=drawn)
        for histogram in coarse_histograms(trips, grid)
    }
    parts = _parts(noisy["density"], epsilon * SHARES["density"], grid)
    fine = measure(fine_histogram(trips, grid, parts), law=laws["fine density"], noise=drawn)
    del trips
    # From here on nothing private is in reach.
    count = max(round(float(noisy["trips"].values[0])), 0)
    if not count:
        return Trips.none()
    pairs = np.maximum(noisy["pairs"].values, 0.0)
    pair = choices(pairs if pairs.sum() > 0 else np.ones_like(pairs), count, chance.child("pairs"))
    starts, ends = pair // grid.size, pair % grid.size
    moves = _moves(grid.hops(starts, ends), noisy["lengths"], limits, chance.child("lengths"))
    weights = np.maximum(noisy["transitions"].values.reshape(grid.size, 9), 0.0) * (targets >= 0)
    weights = np.where(weights.sum(axis=1, keepdims=True) > 0, weights, targets >= 0)
    weights = np.maximum(weights / weights.sum(axis=1, keepdims=True), 1e-9 * (targets >= 0))
    errands = Errands(starts, ends, moves)
    cells = walk(errands, EvenGraph(targets, weights), chance.child("walks"))
    return _positioned(cells, errands.offsets, grid, fine, parts, chance.child("positions"))


def coarse_histograms(trips: Trips, grid: Grid) -> list[Histogram]:
    """Count all but the fine density, which needs the released density."""
    cells = grid.cells(trips.x, trips.y)
    starts, ends = cells[trips.offsets[:-1]], cells[trips.offsets[1:] - 1]
    inside = trips.owners[1:] == trips.owners[:-1]
    source, target = cells[:-1][inside], cells[1:][inside]
    number = np.repeat(trips.sizes - 1, trips.sizes)[:-1][inside]
    near = grid.hops(source, target) <= 1
    source, target, number = source[near], target[near], number[near]
    # The move number: 0 stays, then the eight directions.
    move = grid.directions(source, target) + 1
    lengths = np.minimum(np.floor(3 * np.log2(trips.sizes)).astype(np.int64), LENGTHS - 1)
    far = np.minimum(grid.hops(starts, ends), FARTHEST - 1)
    shares = np.repeat(equal_shares(trips.sizes), trips.sizes)
    return [
        Histogram.of("trips", np.zeros(len(trips), np.int64), size=1),
        Histogram.of("density", cells, size=grid.size, weights=shares),
        Histogram.of("transitions", source * 9 + move, size=grid.size * 9, weights=equal_shares(number)),
        Histogram.of("pairs", starts * grid.size + ends, size=grid.size**2),
        Histogram.of("lengths", far * LENGTHS + lengths, size=FARTHEST * LENGTHS),
    ]


def fine_histogram(trips: Trips, grid: Grid, parts: IntArray) -> Histogram:
    """Count the density in `parts` x `parts` of each cell."""
    cells = grid.cells(trips.x, trips.y)
    n = parts[cells]
    column, row = (trips.x * grid.side % LATTICE * n) // LATTICE, (trips.y * grid.side % LATTICE * n) // LATTICE
    first = np.cumsum(parts**2) - parts**2
    shares = np.repeat(equal_shares(trips.sizes), trips.sizes)
    return Histogram.of("fine density", first[cells] + column * n + row, size=int((parts**2).sum()), weights=shares)


def _parts(density: Noisy, epsilon: Fraction, grid: Grid) -> IntArray:
    """`(cells,)` parts along each side of a cell, by the rule of adaptive grids; from released density."""
    parts = np.round(np.sqrt(np.maximum(density.values, 0.0) * float(epsilon) / 5))
    return np.clip(parts, 1, 40 // grid.side + 3).astype(np.int64)


def _moves(hops: IntArray, noisy: Noisy, limits: Limits, noise: NoiseSource) -> IntArray:
    table = np.maximum(noisy.values.reshape(FARTHEST, LENGTHS), 0.0) + 1e-9
    far = np.minimum(hops, FARTHEST - 1)
    classes = np.zeros(len(hops), np.int64)
    for row in range(FARTHEST):
        members = np.flatnonzero(far == row)
        if len(members):
            classes[members] = choices(table[row], len(members), noise.child(row))
    sizes = np.floor(2 ** ((classes + uniforms(len(hops), noise.child("within"))) / 3)).astype(np.int64)
    return np.clip(np.maximum(sizes - 1, hops), 1, min(limits.moves, limits.points - 1))


def _positioned(
    cells: IntArray, offsets: IntArray, grid: Grid, fine: Noisy, parts: IntArray, noise: NoiseSource
) -> Trips:
    """A point for each cell of each walk, in a part of it by the fine density."""
    first = np.cumsum(parts**2) - parts**2
    mass = np.maximum(fine.values, 0.0)
    empty = np.add.reduceat(mass, first) <= 0
    mass = np.where(np.repeat(empty, parts**2), 1.0, mass)
    sums: FloatArray = np.append(0.0, np.cumsum(mass))
    chance = uniforms(3 * len(cells), noise).reshape(3, -1)
    low, high = sums[first[cells]], sums[(first + parts**2)[cells]]
    part = np.searchsorted(sums, low + chance[0] * (high - low), side="right") - 1
    part = np.clip(part, first[cells], (first + parts**2 - 1)[cells]) - first[cells]
    n = parts[cells]
    x = (cells // grid.side + (part // n + chance[1]) / n) * (LATTICE / grid.side)
    y = (cells % grid.side + (part % n + chance[2]) / n) * (LATTICE / grid.side)
    limit = LATTICE - 1
    return Trips(np.minimum(x.astype(np.int64), limit), np.minimum(y.astype(np.int64), limit), offsets)
