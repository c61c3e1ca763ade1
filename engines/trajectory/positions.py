"""Where the points of a synthetic trip lie in the cells of its path.

Post-processing: sees released values only.
Each visit of a cell has an anchor, drawn from the fine histogram; its points lie evenly on the line that comes in half
way from the anchor before, passes the anchor, and goes out half way to the one after, kept inside the cell.
"""

from __future__ import annotations

import numpy as np

from engines.noise import NoiseSource
from engines.trajectory.chance import uniforms
from engines.trajectory.grid import Grid
from engines.trajectory.trips import LATTICE, FloatArray, Trips
from schemas.blocks import IntArray


def positioned(
    paths: IntArray, offsets: IntArray, points: IntArray, *, shares: FloatArray, grid: Grid, noise: NoiseSource
) -> Trips:
    """Trips with `points` points in each cell of each path.

    Args:
        shares: `(cells, n * n)` of the finer cells in each cell, rows first as in `Grid`; only ratios matter.
    """
    side = round(shares.shape[1] ** 0.5)
    bounds = np.cumsum(shares + 1e-6 * shares.sum() / shares.size + 1e-300, axis=1)
    drawn = uniforms(3 * len(paths), noise).reshape(3, -1)
    picked = np.zeros(len(paths), np.int64)
    limits = drawn[0] * bounds[paths, -1]
    for fine in range(shares.shape[1] - 1):
        picked += bounds[paths, fine] <= limits
    x = _points(paths // grid.side + (picked // side + drawn[1]) / side, paths // grid.side, offsets, points, grid)
    y = _points(paths % grid.side + (picked % side + drawn[2]) / side, paths % grid.side, offsets, points, grid)
    totals = np.append(0, np.cumsum(points))
    return Trips(x, y, totals[offsets])


def _points(anchors: FloatArray, cells: IntArray, offsets: IntArray, points: IntArray, grid: Grid) -> IntArray:
    """One coordinate of all points on the lattice; anchors are in cells, `cells` columns or rows."""
    middle = (anchors[1:] + anchors[:-1]) / 2
    entry, leave = np.append(anchors[0], middle), np.append(middle, anchors[-1])
    entry[offsets[:-1]] = anchors[offsets[:-1]]
    leave[offsets[1:] - 1] = anchors[offsets[1:] - 1]
    rank = np.arange(int(points.sum())) - np.repeat(np.cumsum(points) - points, points)
    along = (rank + 0.5) / np.repeat(points, points)
    anchor = np.repeat(anchors, points)
    before, after = 1 - 2 * np.minimum(along, 0.5), 2 * np.maximum(along, 0.5) - 1
    values = anchor + before * (np.repeat(entry, points) - anchor) + after * (np.repeat(leave, points) - anchor)
    # Whole lattice steps from the first to the last of a cell: points of a cell's visit stay in it.
    low, high = -(-cells * LATTICE // grid.side), -(-(cells + 1) * LATTICE // grid.side) - 1
    lattice = np.floor(values * (LATTICE / grid.side)).astype(np.int64)
    return np.clip(lattice, np.repeat(low, points), np.repeat(high, points))
