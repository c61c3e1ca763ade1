"""How many points a synthetic trip has, how many of them in each cell of its path, and where they lie in it.

Post-processing: sees released values only.
Points of a trip are evenly spaced in time, so a visit of a cell has as many as it lasts: the rate of its cell times a
draw, part of it the same for all, part of the Gamma law. Short visits have none. But a cell without a point must lie
on the line between its neighbours, or the path would not show that it was there: every other one has a point first.
Rates are fitted until the expected share of points in each cell is what the histogram of points says; the first and
the last cell of a trip have a factor each, fitted to their shares.
Each visit of a cell has an anchor, drawn from the fine histogram; its points lie evenly on the line that comes in half
way from the anchor before, passes the anchor, and goes out half way to the one after, kept inside the cell. A trip that
ends in the cell in which it started ends in the same fine cell or in another one, as it is told; if it never left that
cell, its points lie on the line from start to end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.core.noise import NoiseSource
from engines.trajectory.chance import gammas, uniforms
from engines.trajectory.grid import Grid, passed
from engines.trajectory.trips import LATTICE, Trips
from schemas.arrays import BoolArray, FloatArray, IntArray

ROUNDS = 12
EXPONENT = 0.8
"""Exponent of a round's correction: one would overshoot, for trips pass through many cells."""
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
    """Rates of dwelling: `cells` is `(all cells,)`; `first` and `last` are factors of a path's ends."""

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
    """Draw each visit's luck; `groups`, `(trips,)`, are those of points per cell."""
    needed = (~passed(paths, offsets, grid)).astype(np.float64)
    turning = needed.copy()
    turning[offsets[:-1]] = turning[offsets[1:] - 1] = 0.0
    luck = PASSING + (1 - PASSING) * gammas(len(paths), noise)
    cells = np.repeat(groups, np.diff(offsets)) * grid.size + paths
    return Visits(cells, offsets, luck, turning, needed)


def sizes_of(per_cell: FloatArray, visits: Visits, *, most: int) -> IntArray:
    """Return each trip's points, `(trips,)`: one that moves has a first and a last one."""
    sizes = np.floor(per_cell * visits.lengths + 0.5).astype(np.int64)
    clipped: IntArray = np.clip(sizes, np.where(visits.lengths > 1, 2, 1), most)
    return clipped


def fitted(
    per_cell: FloatArray, visits: Visits, *, wanted: FloatArray, deviation: float, ends: FloatArray | None, most: int
) -> Rates:
    """Fit rates under which trips dwell where the released histograms say.

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
    """Round to integers path by path, by systematic sampling; each path's add up to its total."""
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
    """Share each trip's points out to its cells, `(cells of paths,)`; its first and last cell have one at least."""
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
    """Split points, but for the first and the last one, into those where the path turns and the rest."""
    inner = sizes - np.where(visits.lengths > 1, 2, 1)
    turns = np.minimum(np.add.reduceat(visits.turning, visits.offsets[:-1]).astype(np.int64), inner)
    return turns, inner - turns


def _further(weights: FloatArray, sizes: IntArray, rest: IntArray, visits: Visits) -> FloatArray:
    """`(cells of paths,)` points expected beside those that each path needs: the worth of a visit's time, less them."""
    whole = _spread(weights, sizes, visits)
    return _spread(np.maximum(whole - visits.needed, LEAST * whole), rest, visits)


def _spread(weights: FloatArray, totals: IntArray, visits: Visits) -> FloatArray:
    """Scale each trip's weights to its total."""
    sums = np.add.reduceat(weights, visits.offsets[:-1])
    spread: FloatArray = weights * np.repeat(totals / np.maximum(sums, 1e-300), visits.lengths)
    return spread


_VISITS = 1 << 17
"""Visits whose points are worked out at once: a window's memory is not theirs."""


def positioned(
    paths: IntArray,
    offsets: IntArray,
    points: IntArray,
    together: BoolArray,
    *,
    shares: FloatArray,
    grid: Grid,
    noise: NoiseSource,
) -> Trips:
    """Make trips with `points` points in each cell of each path.

    Args:
        together: `(trips,)` of those that end in their first cell, which end in its fine cell.
        shares: `(cells, n * n)` of the finer cells in each cell, rows first as in `Grid`; only ratios matter.
    """
    first, last = offsets[:-1], offsets[1:] - 1
    sums = np.cumsum(shares + 1e-6 * shares.sum() / shares.size + 1e-300, axis=1)
    drawn = uniforms(3 * len(paths), noise.child("anchors")).reshape(3, -1)
    parts = _picked(sums, paths, drawn[0] * sums[paths, -1])
    # Where trips end that come back to their first cell.
    back = np.flatnonzero(paths[first] == paths[last])
    ending = uniforms(3 * len(back), noise.child("ends")).reshape(3, -1)
    final = np.where(
        together[back], parts[first[back]], _others(sums, paths[first[back]], parts[first[back]], ending[0])
    )
    still = first[back] == last[back]
    side = round(shares.shape[1] ** 0.5)
    lines = []
    for at, cells, part, end in (
        (1, paths // grid.side, parts // side, final // side),
        (2, paths % grid.side, parts % side, final % side),
    ):
        anchors = cells + (part + drawn[at]) / side
        ends = cells[last[back]] + (end + ending[at]) / side
        anchors[last[back[~still]]] = ends[~still]
        line, whole = _lines(anchors, offsets), last[back[still]]
        # These visits are whole trips: straight from the anchor, where they start, to their ends.
        line[1, whole] = (line[0, whole] + ends[still]) / 2
        line[2, whole] = ends[still]
        trips = np.isin(np.arange(len(cells)), whole)
        lines.append(_points(line, trips, cells, points, grid))
    totals = np.append(0, np.cumsum(points))
    return Trips(lines[0], lines[1], totals[offsets])


def _picked(sums: FloatArray, cells: IntArray, limits: FloatArray) -> IntArray:
    """Return the finer cell at which the running sums of each cell's shares exceed its limit."""
    picked = np.zeros(len(cells), np.int64)
    for part in range(sums.shape[1] - 1):
        picked += sums[cells, part] <= limits
    return picked


def _others(sums: FloatArray, cells: IntArray, parts: IntArray, chance: FloatArray) -> IntArray:
    """Draw finer cells of these cells by their shares, but for `parts`."""
    if sums.shape[1] == 1:
        return parts
    upper = sums[cells, parts]
    lower = np.where(parts > 0, sums[cells, np.maximum(parts - 1, 0)], 0.0)
    limits = chance * (sums[cells, -1] - (upper - lower))
    return _picked(sums, cells, np.where(limits >= lower, limits + (upper - lower), limits))


def _lines(anchors: FloatArray, offsets: IntArray) -> FloatArray:
    """`(3, visits)`, one coordinate in cells: where each visit's line comes in, what it passes, where it goes out."""
    middle = (anchors[1:] + anchors[:-1]) / 2
    entry, leave = np.append(anchors[0], middle), np.append(middle, anchors[-1])
    entry[offsets[:-1]] = anchors[offsets[:-1]]
    leave[offsets[1:] - 1] = anchors[offsets[1:] - 1]
    return np.stack([entry, anchors, leave])


def _points(line: FloatArray, whole: BoolArray, cells: IntArray, points: IntArray, grid: Grid) -> IntArray:
    """Return all points on the lattice; `cells` are columns or rows, `whole` visits are trips."""
    until = np.append(0, np.cumsum(points))
    lattice = np.empty(int(until[-1]), np.int64)
    for low in range(0, len(cells), _VISITS):
        visits = slice(low, min(low + _VISITS, len(cells)))
        lattice[until[low] : until[visits.stop]] = _points_of(
            line[:, visits], whole[visits], cells[visits], points[visits], grid
        )
    return lattice


def _points_of(line: FloatArray, whole: BoolArray, cells: IntArray, points: IntArray, grid: Grid) -> IntArray:
    rank = np.arange(int(points.sum())) - np.repeat(np.cumsum(points) - points, points)
    number = np.repeat(points, points)
    # A trip that never leaves its cell has its first and its last point at the ends of its line.
    along = np.where(np.repeat(whole, points) & (number > 1), rank / np.maximum(number - 1, 1), (rank + 0.5) / number)
    entry, anchor, leave = np.repeat(line, points, axis=1)
    before, after = 1 - 2 * np.minimum(along, 0.5), 2 * np.maximum(along, 0.5) - 1
    values = anchor + before * (entry - anchor)
    values += after * (leave - anchor)
    # Whole lattice steps from the first to the last of a cell: points of a cell's visit stay in it.
    low, high = -(-cells * LATTICE // grid.side), -(-(cells + 1) * LATTICE // grid.side) - 1
    lattice = np.floor(values * (LATTICE / grid.side)).astype(np.int64)
    clipped: IntArray = np.clip(lattice, np.repeat(low, points), np.repeat(high, points))
    return clipped
