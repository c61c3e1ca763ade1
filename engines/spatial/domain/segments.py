"""Networks of straight segments (roads, rails, rivers) cut along the lines of a grid, all cells of a level at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.spatial.domain.pieces import CRUMB, CellBounds, Ragged
from engines.spatial.domain.sphere import metres_per_degree
from schemas.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class SegmentPieces:
    """Implements `Pieces` for lines.

    Attributes:
        ends: `(segments, 4)` x, y, x, y. cells: `(segments,)` the cell of each. count: cells.
    """

    ends: FloatArray
    cells: IntArray
    count: int

    def halved(self, axis: int, middle: FloatArray, children: CellBounds) -> SegmentPieces:
        """See `Pieces`. What runs along the line belongs to the second half, as its points do."""
        line = middle[self.cells]
        first, last = self.ends[:, axis] - line, self.ends[:, axis + 2] - line
        cut = ((first < 0) & (last > 0)) | ((first > 0) & (last < 0))
        share = np.divide(first, first - last, out=np.zeros_like(first), where=cut)
        other = 1 - axis
        start, end = self.ends[:, other], self.ends[:, other + 2]
        meets = np.clip(start + share * (end - start), np.minimum(start, end), np.maximum(start, end))
        before, after = self.ends.copy(), self.ends.copy()
        before[cut, axis + 2] = after[cut, axis] = line[cut]
        before[cut, other + 2] = after[cut, other] = meets[cut]
        # A part lies in the second half if it touches that and does not reach into the first.
        high_before = np.where(cut, first > 0, np.minimum(first, last) >= 0)
        rows = np.concatenate([before, after[cut]])
        high = np.concatenate([high_before, last[cut] > 0])
        cells = 2 * np.concatenate([self.cells, self.cells[cut]]) + high
        long = (rows[:, 0] != rows[:, 2]) | (rows[:, 1] != rows[:, 3])
        return SegmentPieces(rows[long], cells[long], 2 * self.count)

    def chosen(self, which: IntArray) -> SegmentPieces:
        number = np.full(self.count, -1)
        number[which] = np.arange(len(which))
        there = number[self.cells] >= 0
        return SegmentPieces(self.ends[there], number[self.cells[there]], len(which))

    def measures(self, cells: CellBounds) -> FloatArray:
        return np.bincount(self.cells, self.lengths(), minlength=self.count).astype(np.float64)

    def crumbs(self, cells: CellBounds, halvings: int) -> FloatArray:
        _, north = metres_per_degree((cells.ymin + cells.ymax) / 2)
        result: FloatArray = (cells.ymax - cells.ymin) * north * (CRUMB * 0.5 ** (halvings // 2))
        return result

    def full(self) -> BoolArray:
        return np.zeros(self.count, np.bool_)

    def lengths(self) -> FloatArray:
        """`(segments,)` metres, by the scale of the map at the middle of each."""
        east, north = metres_per_degree((self.ends[:, 1] + self.ends[:, 3]) / 2)
        dx, dy = (self.ends[:, 2] - self.ends[:, 0]) * east, (self.ends[:, 3] - self.ends[:, 1]) * north
        result: FloatArray = np.sqrt(dx * dx + dy * dy)
        return result

    def sorted(self) -> tuple[Ragged, FloatArray]:
        """Segments of one cell after another: where each cell's begin, and `(segments, 4)`."""
        order = np.argsort(self.cells, kind="stable")
        return Ragged.of(self.cells[order], self.count), self.ends[order]
