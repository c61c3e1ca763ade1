"""What a shape must do to be made a tree of cells: be cut along grid lines, again and again, and be measured.

Pieces of one level are held together, as arrays; a piece is what of the shape lies in one cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from schemas.arrays import BoolArray, FloatArray, IntArray

CRUMB = 2.0**-32
"""Of a finest cell: what is smaller is what rounding leaves of borders that meet, and no cell of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class CellBounds:
    """Of cells, `(cells,)` each, in degrees."""

    xmin: FloatArray
    ymin: FloatArray
    xmax: FloatArray
    ymax: FloatArray


class Pieces(Protocol):
    """What lies in each of some cells."""

    def halved(self, axis: int, middle: FloatArray, children: CellBounds) -> Self:
        """Pieces of both halves of each cell: those of cell i are pieces 2i and 2i + 1.

        Args:
            axis: 0 where x is halved, 1 for y. middle: `(cells,)` the lines. children: `(2 * cells,)`.
        """
        ...

    def chosen(self, which: IntArray) -> Self:
        """Pieces of the cells with these ascending numbers, numbered anew."""
        ...

    def measures(self, cells: CellBounds) -> FloatArray:
        """`(cells,)`: square metres, or metres."""
        ...

    def crumbs(self, cells: CellBounds, halvings: int) -> FloatArray:
        """`(cells,)`: the least measure that counts, of cells that are halved so many times more."""
        ...

    def full(self) -> BoolArray:
        """`(cells,)` True where the cell has no border of the shape in it and lies inside."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Where the rows of each group stand: those of group i are rows starts[i] .. starts[i + 1] - 1."""

    starts: IntArray

    @staticmethod
    def of(groups: IntArray, count: int) -> Ragged:
        """Args: groups: `(rows,)` ascending numbers of groups below `count`."""
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(groups, minlength=count), out=starts[1:])
        return Ragged(starts)

    def rows(self, groups: IntArray) -> tuple[IntArray, IntArray]:
        """All rows of some groups, one after another: position in `groups`, and row."""
        first, sizes = self.starts[groups], self.starts[groups + 1] - self.starts[groups]
        offsets = np.cumsum(sizes) - sizes
        return np.repeat(np.arange(len(groups)), sizes), np.arange(int(sizes.sum())) + np.repeat(first - offsets, sizes)
