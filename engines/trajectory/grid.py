"""A uniform grid over the box: its cells, square blocks of them, and the paths of trips over it.

Public arithmetic: knows no data but what it is handed. A cell's number is `column * side + row`. A path is a walk: runs
of points in one cell are collapsed, and jumps filled with the cells of a straight line, so that its cells are
neighbours and its `moves` are one less. Each path depends on its own trip only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from engines.trajectory.trips import LATTICE_BITS, Trips
from schemas.arrays import BoolArray, FloatArray, IntArray

STEPS_X = np.array([1, 1, 0, -1, -1, -1, 0, 1])
STEPS_Y = np.array([0, 1, 1, 1, 0, -1, -1, -1])
"""Steps in direction 0 to 7, an eighth of a turn apart: the difference of two directions modulo 8 is the turn."""
# Direction of a move of (dx, dy), each in -1 to 1, at [dx + 1, dy + 1]; -1 for no move.
_DIRECTIONS = np.full((3, 3), -1)
_DIRECTIONS[STEPS_X + 1, STEPS_Y + 1] = np.arange(8)


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid of `side` x `side` cells.

    >>> Grid(4).cells(np.array([0, 2**20 - 1]), np.array([0, 2**19]))
    array([ 0, 14])
    """

    side: int

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.side * self.side

    def cells(self, x: IntArray, y: IntArray) -> IntArray:
        """Return the cells of lattice points, `(points,)`."""
        return (x * self.side >> LATTICE_BITS) * self.side + (y * self.side >> LATTICE_BITS)

    def hops(self, left: IntArray, right: IntArray) -> IntArray:
        """Return the least moves between neighbouring cells from one cell to another (Chebyshev)."""
        hops: IntArray = np.maximum(
            np.abs(left // self.side - right // self.side), np.abs(left % self.side - right % self.side)
        )
        return hops

    def neighbours(self) -> IntArray:
        """Return the neighbour in each direction, `(cells, 8)`, -1 where the grid ends; read-only."""
        return _neighbours(self.side)

    def directions(self, sources: IntArray, targets: IntArray) -> IntArray:
        """Return the direction of each move between neighbours, `(moves,)`; -1 where source and target are equal."""
        dx, dy = targets // self.side - sources // self.side, targets % self.side - sources % self.side
        directions: IntArray = _DIRECTIONS[dx + 1, dy + 1]
        return directions


@lru_cache(maxsize=16)
def _neighbours(side: int) -> IntArray:
    cells = np.arange(side * side)[:, None]
    x, y = cells // side + STEPS_X, cells % side + STEPS_Y
    inside = (x >= 0) & (x < side) & (y >= 0) & (y < side)
    found = np.where(inside, x * side + y, -1)
    found.flags.writeable = False
    return found


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of `width` x `width` cells, which must tile the grid."""

    grid: Grid
    width: int = 4

    @property
    def count(self) -> int:
        return (self.grid.side // self.width) ** 2

    @property
    def cells(self) -> int:
        """Number of cells in a block."""
        return self.width**2

    def of(self, cells: IntArray) -> IntArray:
        """Return the block of each cell."""
        x, y = cells // self.grid.side // self.width, cells % self.grid.side // self.width
        return x * (self.grid.side // self.width) + y

    def within(self, cells: IntArray) -> IntArray:
        """Return the rank of each cell in its block."""
        x, y = cells // self.grid.side % self.width, cells % self.grid.side % self.width
        return x * self.width + y

    @property
    def order(self) -> IntArray:
        """All cells, block after block, `(cells,)`."""
        cells = np.arange(self.grid.size)
        return np.argsort(self.of(cells) * self.cells + self.within(cells))

    def sums(self, pairs: FloatArray) -> FloatArray:
        """Add up `(cells, cells)` values in block order to `(blocks, blocks)`."""
        sums: FloatArray = pairs.reshape(self.count, self.cells, self.count, self.cells).sum(axis=(1, 3))
        return sums

    def spread(self, factors: FloatArray) -> FloatArray:
        """Give each pair of cells the value of its block pair, `(cells, cells)` in block order."""
        return np.repeat(np.repeat(factors, self.cells, axis=0), self.cells, axis=1)


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
        """Moves between cells of each trip, `(trips,)`."""
        return np.diff(self.offsets) - 1

    @property
    def owners(self) -> IntArray:
        """The trip of each cell, `(cells,)`."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))


def paths_of(trips: Trips, grid: Grid, *, max_moves: int) -> CellPaths:
    """Return the paths of trips, each cut after `max_moves` moves.

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
    jump = np.repeat(hops, hops)
    back = 2 * (jump - step)
    filled = (np.repeat(x, hops) - (back * np.repeat(dx, hops) + jump) // (2 * jump)) * grid.side
    filled += np.repeat(y, hops) - (back * np.repeat(dy, hops) + jump) // (2 * jump)
    points = np.where(step == jump, np.repeat(lengths, hops), 0)
    owner, place = np.repeat(owners, hops), np.repeat(before, hops) + step
    keep = place <= max_moves
    filled, points, owner = filled[keep], points[keep], owner[keep]
    sizes = np.bincount(owner, minlength=len(trips))
    return CellPaths(filled, points, np.append(0, np.cumsum(sizes)))


def passed(cells: IntArray, offsets: IntArray, grid: Grid) -> BoolArray:
    """Tell which cells of walks need no point, `(cells,)`: the jump over them is filled with just them.

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
