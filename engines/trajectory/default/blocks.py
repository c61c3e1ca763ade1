"""Square blocks of a grid's cells, and pairs of cells in an order in which block pairs are contiguous. Public."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.trajectory.grid import Grid
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of `width` x `width` cells. Raises: EngineInputError if they do not tile the grid."""

    grid: Grid
    width: int = 4

    def __post_init__(self) -> None:
        if self.grid.side % self.width:
            raise EngineInputError("the side of the grid must be a multiple of the width of a block")

    @property
    def count(self) -> int:
        return (self.grid.side // self.width) ** 2

    @property
    def cells(self) -> int:
        """Of a block."""
        return self.width**2

    def of(self, cells: IntArray) -> IntArray:
        """The block of each cell."""
        x, y = cells // self.grid.side // self.width, cells % self.grid.side // self.width
        return x * (self.grid.side // self.width) + y

    def within(self, cells: IntArray) -> IntArray:
        """The rank of each cell in its block."""
        x, y = cells // self.grid.side % self.width, cells % self.grid.side % self.width
        return x * self.width + y

    @property
    def order(self) -> IntArray:
        """`(cells,)` all cells, block after block."""
        cells = np.arange(self.grid.size)
        return np.argsort(self.of(cells) * self.cells + self.within(cells))

    def sums(self, pairs: FloatArray) -> FloatArray:
        """`(blocks, blocks)` sums of `(cells, cells)` values in block order."""
        sums: FloatArray = pairs.reshape(self.count, self.cells, self.count, self.cells).sum(axis=(1, 3))
        return sums

    def spread(self, factors: FloatArray) -> FloatArray:
        """`(cells, cells)` in block order: the value of its block pair for each pair."""
        return np.repeat(np.repeat(factors, self.cells, axis=0), self.cells, axis=1)
