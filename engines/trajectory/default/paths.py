"""Paths of trips over a grid: runs of points in one cell collapsed, jumps filled with the cells of a straight line.

A path's cells are neighbours, one after the other, so that it is a walk: `moves` is one less than its cells.
Privacy: each path depends on its own trip only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.trajectory.grid import Grid
from engines.trajectory.trips import Trips
from schemas.arrays import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class CellPaths:
    """One path for each trip.

    Attributes:
        cells: `(cells,)` of all paths, one after the other.
        points: `(cells,)` points of the trip in that visit of the cell; 0 where a jump was filled.
        offsets: `(trips + 1,)`.
    """

    cells: IntArray
    points: IntArray
    offsets: IntArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def moves(self) -> IntArray:
        """`(trips,)` moves between cells."""
        return np.diff(self.offsets) - 1

    @property
    def owners(self) -> IntArray:
        """`(cells,)` the trip of each cell."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))


def paths_of(trips: Trips, grid: Grid, *, max_moves: int) -> CellPaths:
    """The paths of trips, each cut after `max_moves` moves.

    A jump of D hops becomes D moves: its j-th cell is the start plus j/D of the way, rounded half down.

    >>> trips = Trips(np.array([0, 1, 3]) << 18, np.array([0, 0, 1]) << 18, np.array([0, 3]))
    >>> paths = paths_of(trips, Grid(4), max_moves=9)
    >>> paths.cells.tolist(), paths.points.tolist()
    ([0, 4, 8, 13], [1, 1, 0, 1])
    """
    cells = grid.cells(trips.x, trips.y)
    first = np.zeros(len(cells), bool)
    first[trips.offsets[:-1]] = True
    new = first.copy()
    new[1:] |= cells[1:] != cells[:-1]
    starts = np.flatnonzero(new)
    lengths = np.diff(np.append(starts, len(cells)))
    runs, owners, opening = cells[starts], (np.cumsum(first) - 1)[starts], first[starts]
    x, y = runs // grid.side, runs % grid.side
    # A trip's opening run comes from itself, by one step of length nought.
    dx = np.where(opening, 0, np.diff(x, prepend=0))
    dy = np.where(opening, 0, np.diff(y, prepend=0))
    hops = np.where(opening, 1, np.maximum(np.abs(dx), np.abs(dy)))
    rank = np.where(opening, 0, hops)
    before = np.cumsum(rank) - rank
    before -= np.repeat(before[opening], np.diff(np.append(np.flatnonzero(opening), len(runs))))
    # Runs that begin beyond the cap are dropped before they are filled: a teleporting trip costs no memory.
    within = before < np.where(opening, 1, max_moves)
    hops, dx, dy, lengths, owners = hops[within], dx[within], dy[within], lengths[within], owners[within]
    x, y, before = x[within], y[within], before[within]
    step = np.arange(int(hops.sum())) - np.repeat(np.cumsum(hops) - hops, hops) + 1
    D = np.repeat(hops, hops)
    back = 2 * (D - step)
    filled = (np.repeat(x, hops) - (back * np.repeat(dx, hops) + D) // (2 * D)) * grid.side
    filled += np.repeat(y, hops) - (back * np.repeat(dy, hops) + D) // (2 * D)
    points = np.where(step == D, np.repeat(lengths, hops), 0)
    owner, place = np.repeat(owners, hops), np.repeat(before, hops) + step
    keep = place <= max_moves
    filled, points, owner = filled[keep], points[keep], owner[keep]
    sizes = np.bincount(owner, minlength=len(trips))
    return CellPaths(filled, points, np.append(0, np.cumsum(sizes)))


def passed(cells: IntArray, offsets: IntArray, grid: Grid) -> BoolArray:
    """`(cells,)` which cells of walks need no point: without one, the jump over them is filled with just them.

    >>> passed(np.array([0, 4, 8, 12, 9, 13]), np.array([0, 6]), Grid(4)).tolist()
    [False, True, True, False, False, False]
    """
    x, y = cells // grid.side, cells % grid.side
    dx, dy = x[2:] - x[:-2], y[2:] - y[:-2]
    far = np.maximum(np.abs(dx), np.abs(dy)) == 2
    middle = (x[2:] - (2 * dx + 2) // 4 == x[1:-1]) & (y[2:] - (2 * dy + 2) // 4 == y[1:-1])
    inner = np.zeros(len(cells), bool)
    inner[1:-1] = far & middle
    inner[offsets[:-1]] = inner[offsets[1:] - 1] = False
    return inner
