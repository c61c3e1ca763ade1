"""Where the points of a synthetic trip lie in the cells of its path.

Post-processing: sees released values only.
Each visit of a cell has an anchor, drawn from the fine histogram; its points lie evenly on the line that comes in half
way from the anchor before, passes the anchor, and goes out half way to the one after, kept inside the cell. A trip that
ends in the cell in which it started ends in the same fine cell or in another one, as it is told; if it never left that
cell, its points lie on the line from start to end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.core.noise import NoiseSource
from engines.trajectory.chance import uniforms
from engines.trajectory.grid import Grid
from engines.trajectory.trips import LATTICE, Trips
from schemas.arrays import BoolArray, FloatArray, IntArray

_CHUNK = 1 << 17
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
    """Trips with `points` points in each cell of each path.

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
        line = _Line.of(anchors, offsets).without_moves(last[back[still]], ends[still])
        lines.append(_points(line, cells, points, grid))
    totals = np.append(0, np.cumsum(points))
    return Trips(lines[0], lines[1], totals[offsets])


def _picked(sums: FloatArray, cells: IntArray, limits: FloatArray) -> IntArray:
    """The finer cell at which the running sums of each cell's shares exceed its limit."""
    picked = np.zeros(len(cells), np.int64)
    for part in range(sums.shape[1] - 1):
        picked += sums[cells, part] <= limits
    return picked


def _others(sums: FloatArray, cells: IntArray, parts: IntArray, chance: FloatArray) -> IntArray:
    """Finer cells of these cells by their shares, but for `parts`."""
    if sums.shape[1] == 1:
        return parts
    upper = sums[cells, parts]
    lower = np.where(parts > 0, sums[cells, np.maximum(parts - 1, 0)], 0.0)
    limits = chance * (sums[cells, -1] - (upper - lower))
    return _picked(sums, cells, np.where(limits >= lower, limits + (upper - lower), limits))


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """One coordinate of each visit's line, in cells: where it comes in, passes, goes out; `whole` ones are trips."""

    entry: FloatArray
    anchor: FloatArray
    leave: FloatArray
    whole: BoolArray

    def at(self, visits: slice) -> _Line:
        return _Line(self.entry[visits], self.anchor[visits], self.leave[visits], self.whole[visits])

    @staticmethod
    def of(anchors: FloatArray, offsets: IntArray) -> _Line:
        middle = (anchors[1:] + anchors[:-1]) / 2
        entry, leave = np.append(anchors[0], middle), np.append(middle, anchors[-1])
        entry[offsets[:-1]] = anchors[offsets[:-1]]
        leave[offsets[1:] - 1] = anchors[offsets[1:] - 1]
        return _Line(entry, anchors, leave, np.zeros(len(anchors), bool))

    def without_moves(self, visits: IntArray, ends: FloatArray) -> _Line:
        """These visits are whole trips: straight from the anchor, where they start, to their ends."""
        anchor, leave, whole = self.anchor.copy(), self.leave.copy(), self.whole.copy()
        leave[visits], whole[visits] = ends, True
        anchor[visits] = (self.entry[visits] + ends) / 2
        return _Line(self.entry, anchor, leave, whole)


def _points(line: _Line, cells: IntArray, points: IntArray, grid: Grid) -> IntArray:
    """All points on the lattice; `cells` are columns or rows."""
    until = np.append(0, np.cumsum(points))
    lattice = np.empty(int(until[-1]), np.int64)
    for low in range(0, len(cells), _CHUNK):
        visits = slice(low, min(low + _CHUNK, len(cells)))
        lattice[until[low] : until[visits.stop]] = _points_of(line.at(visits), cells[visits], points[visits], grid)
    return lattice


def _points_of(line: _Line, cells: IntArray, points: IntArray, grid: Grid) -> IntArray:
    rank = np.arange(int(points.sum())) - np.repeat(np.cumsum(points) - points, points)
    number = np.repeat(points, points)
    # A trip that never leaves its cell has its first and its last point at the ends of its line.
    along = np.where(
        np.repeat(line.whole, points) & (number > 1), rank / np.maximum(number - 1, 1), (rank + 0.5) / number
    )
    anchor = np.repeat(line.anchor, points)
    before, after = 1 - 2 * np.minimum(along, 0.5), 2 * np.maximum(along, 0.5) - 1
    values = anchor + before * (np.repeat(line.entry, points) - anchor)
    values += after * (np.repeat(line.leave, points) - anchor)
    # Whole lattice steps from the first to the last of a cell: points of a cell's visit stay in it.
    low, high = -(-cells * LATTICE // grid.side), -(-(cells + 1) * LATTICE // grid.side) - 1
    lattice = np.floor(values * (LATTICE / grid.side)).astype(np.int64)
    return np.clip(lattice, np.repeat(low, points), np.repeat(high, points))
