"""How many points a synthetic trip has, and how many of them in each cell of its path.

Post-processing: sees released values only.
A trip with fewer points than cells passes some of them without one, evenly. Any other has one point in each, and the
rest are shared out in proportion to a weight of each visit: the rate of its cell times a draw of the Gamma law. Among
trips with about as many moves, those with the largest sums of weights have the most points. So a place where some wait
for long makes those trips long that pass it. Rates are fitted until the expected share of points in each cell is what
the histogram of points says; the first and the last cell of a trip have a factor each, fitted to their shares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.noise import NoiseSource
from engines.trajectory.chance import gammas, uniforms
from engines.trajectory.trips import FloatArray
from schemas.blocks import IntArray

ROUNDS = 12
EXPONENT = 0.8
"""Of a round's correction: one would overshoot, for trips pass through many cells."""
_ENOUGH_TRIPS = 200
"""Below it the factors of first and last cells would follow noise."""


@dataclass(frozen=True, slots=True, eq=False)
class Visits:
    """The paths that points are given to.

    Attributes:
        cells: of all paths; `offsets` is `(trips + 1,)`.
        luck: `(cells of paths,)` the draw of each visit.
        rows: `(trips,)` class of moves; trips of a class swap their sizes.
    """

    cells: IntArray
    offsets: IntArray
    luck: FloatArray
    rows: IntArray

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


def drawn_visits(cells: IntArray, offsets: IntArray, rows: IntArray, noise: NoiseSource) -> Visits:
    """Visits with their luck."""
    return Visits(cells, offsets, gammas(len(cells), noise), rows)


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
    owners = np.repeat(np.arange(trips), visits.lengths)
    only = visits.lengths == 1
    for _ in range(ROUNDS):
        weights = rates.weights(visits)
        sizes = sizes_of(per_cell, visits, most=most)
        extra = np.maximum(sizes - visits.lengths, 0)
        sums = np.add.reduceat(weights, visits.offsets[:-1])
        shares = (_always(visits, sizes) + weights * (extra / sums)[owners]) / sizes[owners]
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


def _always(visits: Visits, sizes: IntArray) -> FloatArray:
    """`(cells of paths,)` expected points in each cell before weights count: one, or less where there are too few."""
    inner = np.where(sizes < visits.lengths, (sizes - 2) / np.maximum(visits.lengths - 2, 1), 1.0)
    always = np.repeat(inner, visits.lengths)
    always[visits.offsets[:-1]] = 1.0
    always[visits.offsets[1:] - 1] = 1.0
    return always


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
    first, last = visits.offsets[:-1], visits.offsets[1:] - 1
    inner = _always(visits, sizes)
    inner[first], inner[last] = 0.0, 0.0
    passing = np.maximum(np.minimum(sizes, visits.lengths) - 2, 0)
    points = _evenly(inner, passing, visits.offsets, uniforms(len(sizes), noise.child("passing")))
    # Rounding may leave one for the last cell, which has its own: hand it to the cell before.
    long = last[visits.lengths > 2]
    points[long - 1] += points[long]
    points[first], points[last] = 1, 1
    extra = np.maximum(sizes - visits.lengths, 0)
    expected = weights * np.repeat(extra / np.add.reduceat(weights, first), visits.lengths)
    return points + _evenly(expected, extra, visits.offsets, uniforms(len(sizes), noise.child("shift")))
