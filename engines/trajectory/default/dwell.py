"""How many points a synthetic trip has, and how many of them in each cell of its path.

Post-processing: sees released values only.
Points of a trip are evenly spaced in time, so a visit of a cell has as many as it lasts: the rate of its cell times a
draw, part of it the same for all, part of the Gamma law. Short visits have none. But a cell without a point must lie
on the line between its neighbours, or the path would not show that it was there: every other one has a point first.
Rates are fitted until the expected share of points in each cell is what the histogram of points says; the first and
the last cell of a trip have a factor each, fitted to their shares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.core.noise import NoiseSource
from engines.trajectory.chance import gammas, uniforms
from engines.trajectory.default.paths import passed
from engines.trajectory.grid import Grid
from schemas.arrays import FloatArray, IntArray

ROUNDS = 12
EXPONENT = 0.8
"""Of a round's correction: one would overshoot, for trips pass through many cells."""
PASSING = 0.5
"""Part of a visit's time that is the same for all visits of a cell."""
LEAST = 0.02
"""Part of a visit's time that counts for further points however short it is: no path is without a place for them."""
_ENOUGH_TRIPS = 200
"""Below it the factors of first and last cells would follow noise."""


@dataclass(frozen=True, slots=True, eq=False)
class Visits:
    """The paths that points are given to.

    Attributes:
        cells: of all paths; `offsets` is `(trips + 1,)`.
        luck: `(cells of paths,)` the draw of each visit.
        turning: `(cells of paths,)` 1 where an inner visit needs a point, or the path would not show that it was there.
        needed: the same, and 1 where a path starts and ends.
    """

    cells: IntArray
    offsets: IntArray
    luck: FloatArray
    turning: FloatArray
    needed: FloatArray

    @property
    def lengths(self) -> IntArray:
        return np.diff(self.offsets)


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """Of dwelling: `cells` is `(all cells,)`; `first` and `last` are factors of a path's ends."""

    cells: FloatArray
    first: float = 1.0
    last: float = 1.0

    def weights(self, visits: Visits) -> FloatArray:
        """`(cells of paths,)`."""
        weights = self.cells[visits.cells] * visits.luck
        weights[visits.offsets[:-1]] *= self.first
        weights[visits.offsets[1:] - 1] *= self.last
        return weights


def drawn_visits(paths: IntArray, offsets: IntArray, *, groups: IntArray, grid: Grid, noise: NoiseSource) -> Visits:
    """Visits with their luck; `groups`, `(trips,)`, are those of points per cell."""
    needed = (~passed(paths, offsets, grid)).astype(np.float64)
    turning = needed.copy()
    turning[offsets[:-1]] = turning[offsets[1:] - 1] = 0.0
    luck = PASSING + (1 - PASSING) * gammas(len(paths), noise)
    cells = np.repeat(groups, np.diff(offsets)) * grid.size + paths
    return Visits(cells, offsets, luck, turning, needed)


def sizes_of(per_cell: FloatArray, visits: Visits, *, most: int) -> IntArray:
    """`(trips,)` points: a trip that moves has a first and a last one."""
    sizes = np.floor(per_cell * visits.lengths + 0.5).astype(np.int64)
    clipped: IntArray = np.clip(sizes, np.where(visits.lengths > 1, 2, 1), most)
    return clipped


def fitted(
    per_cell: FloatArray, visits: Visits, *, wanted: FloatArray, deviation: float, ends: FloatArray | None, most: int
) -> Rates:
    """Rates under which trips dwell where the released histograms say.

    Args:
        per_cell: `(trips,)` points per cell of the path, in any order within classes of moves.
        wanted: `(all cells,)` trips' shares of points in each cell, with noise of this `deviation`.
        ends: `(3,)` shares of points in first, last and other cells, non-negative; None if they were not asked for.
        most: points of a trip.
    """
    rates, trips = Rates(np.ones(len(wanted))), len(per_cell)
    sizes = sizes_of(per_cell, visits, most=most)
    turns, rest = _split(sizes, visits)
    fixed = _spread(visits.turning, turns, visits)
    fixed[visits.offsets[:-1]] = fixed[visits.offsets[1:] - 1] = 1.0
    each = np.repeat(1.0 / sizes, visits.lengths)
    only = visits.lengths == 1
    for _ in range(ROUNDS):
        shares = (fixed + _further(rates.weights(visits), sizes, rest, visits)) * each
        found = np.bincount(visits.cells, shares, minlength=len(wanted))
        cells = rates.cells * np.clip((wanted + 0.5 * deviation) / (found + 0.5 * deviation), 0.2, 5.0) ** EXPONENT
        first, last = rates.first, rates.last
        if ends is not None and trips > _ENOUGH_TRIPS:
            aims = ends / max(float(ends.sum()), 1e-9)
            opening = shares[visits.offsets[:-1]].sum() / trips
            closing = shares[visits.offsets[1:] - 1][~only].sum() / trips
            first = float(np.clip(first * (aims[0] + 0.01) / (opening + 0.01), 0.1, 20))
            last = float(np.clip(last * (aims[1] + 0.01) / (closing + 0.01), 0.1, 20))
        rates = Rates(np.clip(cells, 1e-3, 1e3), first, last)
    return rates


def _evenly(values: FloatArray, totals: IntArray, offsets: IntArray, shift: FloatArray) -> IntArray:
    """Integers with these expectations, path by path, by systematic sampling; each path's add up to its total."""
    lengths = np.diff(offsets)
    sums = np.cumsum(values)
    before = np.append(0.0, sums)[offsets[:-1]]
    until = np.floor(sums - np.repeat(before - shift, lengths)).astype(np.int64)
    until = np.clip(until, 0, np.repeat(totals, lengths))
    until[offsets[1:] - 1] = totals
    given = np.diff(until, prepend=0)
    given[offsets[:-1]] = until[offsets[:-1]]
    return given


def shared_out(sizes: IntArray, weights: FloatArray, visits: Visits, noise: NoiseSource) -> IntArray:
    """`(cells of paths,)` points in each; each trip's add up to its size, its first and last cell have one at least."""
    turns, rest = _split(sizes, visits)
    points = _evenly(
        _spread(visits.turning, turns, visits), turns, visits.offsets, uniforms(len(sizes), noise.child(0))
    )
    points += _evenly(
        _further(weights, sizes, rest, visits), rest, visits.offsets, uniforms(len(sizes), noise.child(1))
    )
    points[visits.offsets[:-1]] += 1
    points[visits.offsets[1:] - 1] += visits.lengths > 1
    return points


def _split(sizes: IntArray, visits: Visits) -> tuple[IntArray, IntArray]:
    """`(trips,)` points where the path turns, and the rest; the first and the last one are in neither."""
    inner = sizes - np.where(visits.lengths > 1, 2, 1)
    turns = np.minimum(np.add.reduceat(visits.turning, visits.offsets[:-1]).astype(np.int64), inner)
    return turns, inner - turns


def _further(weights: FloatArray, sizes: IntArray, rest: IntArray, visits: Visits) -> FloatArray:
    """`(cells of paths,)` points expected beside those that each path needs: the worth of a visit's time, less them."""
    whole = _spread(weights, sizes, visits)
    return _spread(np.maximum(whole - visits.needed, LEAST * whole), rest, visits)


def _spread(weights: FloatArray, totals: IntArray, visits: Visits) -> FloatArray:
    """Weights, each trip's scaled to its total."""
    sums = np.add.reduceat(weights, visits.offsets[:-1])
    spread: FloatArray = weights * np.repeat(totals / np.maximum(sums, 1e-300), visits.lengths)
    return spread
