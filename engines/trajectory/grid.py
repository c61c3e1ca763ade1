"""A uniform grid over the box: cells of lattice points, the eight neighbours of a cell, hops between cells.

Public arithmetic; knows no data. A cell's number is `column * side + row`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.trajectory.trips import LATTICE_BITS
from schemas.arrays import IntArray
from schemas.errors import EngineInputError

STEPS_X = np.array([1, 1, 0, -1, -1, -1, 0, 1])
STEPS_Y = np.array([0, 1, 1, 1, 0, -1, -1, -1])
"""Of direction 0 to 7, an eighth of a turn apart: the difference of two directions modulo 8 is the turn."""
# Direction of a move of (dx, dy), each in -1 to 1, at [dx + 1, dy + 1]; -1 for no move.
_DIRECTIONS = np.full((3, 3), -1)
_DIRECTIONS[STEPS_X + 1, STEPS_Y + 1] = np.arange(8)


@dataclass(frozen=True, slots=True)
class Grid:
    """`side` x `side` cells. Raises: EngineInputError if the side is not in 1 to 1024.

    >>> Grid(4).cells(np.array([0, 2**20 - 1]), np.array([0, 2**19]))
    array([ 0, 14])
    """

    side: int

    def __post_init__(self) -> None:
        if not 1 <= self.side <= 1024:
            raise EngineInputError("the side of a grid must be in 1 to 1024")

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.side * self.side

    def cells(self, x: IntArray, y: IntArray) -> IntArray:
        """`(points,)` cells of lattice points."""
        cells: IntArray = (x * self.side >> LATTICE_BITS) * self.side + (y * self.side >> LATTICE_BITS)
        return cells

    def hops(self, left: IntArray, right: IntArray) -> IntArray:
        """Moves between neighbouring cells that a way from one cell to another takes at least (Chebyshev)."""
        hops: IntArray = np.maximum(
            np.abs(left // self.side - right // self.side), np.abs(left % self.side - right % self.side)
        )
        return hops

    def neighbours(self) -> IntArray:
        """`(cells, 8)` the cell in each direction, -1 where the grid ends."""
        cells = np.arange(self.size)
        x, y = cells[:, None] // self.side + STEPS_X, cells[:, None] % self.side + STEPS_Y
        inside = (x >= 0) & (x < self.side) & (y >= 0) & (y < self.side)
        return np.where(inside, x * self.side + y, -1)

    def directions(self, sources: IntArray, targets: IntArray) -> IntArray:
        """`(moves,)` direction of each move between neighbouring cells; -1 where source and target are equal."""
        dx, dy = targets // self.side - sources // self.side, targets % self.side - sources % self.side
        directions: IntArray = _DIRECTIONS[dx + 1, dy + 1]
        return directions
