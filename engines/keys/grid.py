"""Cells of a public grid as keys: each is named by its middle.

Units: coordinates are those of the raw fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from schemas.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGrid:
    """A box, without its upper edges, divided into `columns` and `rows` of equal widths.

    Args: x, y: fields of the raw events. bounds: xmin, ymin, xmax, ymax.

    >>> grid = KeyGrid(x="x", y="y", bounds=(0.0, 0.0, 2.0, 1.0), columns=2, rows=1)
    >>> grid.cells(np.array([0.0, 1.9, 2.0]), np.array([0.0, 0.5, 0.5])).tolist()
    [0, 1, -1]
    """

    written_as: ClassVar[str] = "KeyGrid"

    x: str
    y: str
    bounds: tuple[float, float, float, float]
    columns: int
    rows: int

    def cells(self, x: FloatArray, y: FloatArray) -> IntArray:
        """Return the number of each point's cell, row by row from the lower left one; -1 outside of the box."""
        xmin, ymin, xmax, ymax = self.bounds
        inside = (x >= xmin) & (x < xmax) & (y >= ymin) & (y < ymax)
        column, row = (
            # What rounds up to the last cell's end is in that cell.
            np.minimum(np.floor((np.where(inside, values, low) - low) / (high - low) * count), count - 1)
            for values, low, high, count in ((x, xmin, xmax, self.columns), (y, ymin, ymax, self.rows))
        )
        return np.where(inside, row * self.columns + column, -1).astype(np.int64)
