"""Polygons cut along the lines of a grid, all cells of a level at once.

Sutherland-Hodgman clipping by a half plane, ring by ring: it may leave edges that run back along the line, which have
no area, and it can not fail. Rings that have become the cell's own border are dropped and remembered as `cover`.
FloatArray are added, multiplied and divided one by one, so every machine gets the same pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.spatial.domain.pieces import CRUMB, CellBounds, Ragged
from engines.spatial.domain.sphere import band, mean_band
from schemas.arrays import BoolArray, FloatArray, IntArray


def areas_of(cells: CellBounds) -> FloatArray:
    """`(cells,)` square metres."""
    result: FloatArray = (cells.xmax - cells.xmin) * (band(cells.ymax) - band(cells.ymin))
    return result


@dataclass(frozen=True, slots=True, eq=False)
class RingPieces:
    """Implements `Pieces` for areas.

    Attributes:
        x, y: `(vertices,)`, of one ring after another, not closed; shells run counter-clockwise, holes clockwise.
        starts: `(rings + 1,)` where each ring's vertices begin. cells: `(rings,)` the cell of each ring.
        cover: `(cells,)` how often the cell as a whole is inside, before the rings are counted: 0 or 1.
    """

    x: FloatArray
    y: FloatArray
    starts: IntArray
    cells: IntArray
    cover: IntArray

    def halved(self, axis: int, middle: FloatArray, children: CellBounds) -> RingPieces:
        along, across = (self.x, self.y) if axis == 0 else (self.y, self.x)
        line = np.repeat(middle[self.cells], np.diff(self.starts))
        side = along - line
        following = self._following()
        side_after, across_after = side[following], across[following]
        crosses = ((side < 0) & (side_after > 0)) | ((side > 0) & (side_after < 0))
        share = np.divide(side, side - side_after, out=np.zeros_like(side), where=crosses)
        low, high = np.minimum(across, across_after), np.maximum(across, across_after)
        meets = np.clip(across + share * (across_after - across), low, high)
        # Each vertex is followed by the point where its edge crosses the line.
        both, others = np.stack([along, line], axis=1), np.stack([across, meets], axis=1)
        halves = []
        for child, inside in enumerate((side <= 0, side >= 0)):
            keep = np.stack([inside, crosses], axis=1).reshape(-1)
            halves.append(_kept(both.reshape(-1), others.reshape(-1), keep, 2 * self.starts, 2 * self.cells + child))
        a, o, sizes, cells = (np.concatenate(parts) for parts in zip(*halves, strict=True))
        x, y = (a, o) if axis == 0 else (o, a)
        starts = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=starts[1:])
        return RingPieces(x, y, starts, cells, np.repeat(self.cover, 2))._without_borders(children)

    def chosen(self, which: IntArray) -> RingPieces:
        number = np.full(len(self.cover), -1)
        number[which] = np.arange(len(which))
        return self._select(number[self.cells] >= 0, number, self.cover[which])

    def measures(self, cells: CellBounds) -> FloatArray:
        following = self._following()
        of_vertex = np.repeat(self.cells, np.diff(self.starts))
        heights = mean_band(self.y, self.y[following]) - band(cells.ymin)[of_vertex]
        areas = np.bincount(of_vertex, (self.x - self.x[following]) * heights, minlength=len(self.cover))
        whole = areas_of(cells)
        result: FloatArray = np.clip(areas + self.cover * whole, 0.0, whole)
        return result

    def crumbs(self, cells: CellBounds, halvings: int) -> FloatArray:
        return areas_of(cells) * (CRUMB * 0.5**halvings)

    def full(self) -> BoolArray:
        bordered = np.zeros(len(self.cover), np.bool_)
        bordered[self.cells] = True
        result: BoolArray = ~bordered & (self.cover == 1)
        return result

    def edges(self, cells: CellBounds) -> tuple[Ragged, FloatArray]:
        """Edges of each cell's piece, covers as rectangles: where each cell's begin, and `(edges, 4)` x, y, x, y."""
        following = self._following()
        of_vertex = np.repeat(self.cells, np.diff(self.starts))
        rows = np.stack([self.x, self.y, self.x[following], self.y[following]], axis=1)
        covered = np.flatnonzero(self.cover)
        x0, y0, x1, y1 = (side[covered] for side in (cells.xmin, cells.ymin, cells.xmax, cells.ymax))
        # Only upright sides: what runs from west to east is crossed by no chord.
        east, west = np.stack([x1, y0, x1, y1], axis=1), np.stack([x0, y1, x0, y0], axis=1)
        rows = np.concatenate([rows, east, west])
        groups = np.concatenate([of_vertex, covered, covered])
        upright = rows[:, 1] != rows[:, 3]
        rows, groups = rows[upright], groups[upright]
        order = np.argsort(groups, kind="stable")
        return Ragged.of(groups, len(self.cover)), rows[order]

    def _following(self) -> IntArray:
        """Position of each vertex's successor in its ring."""
        following = np.arange(1, len(self.x) + 1)
        following[self.starts[1:] - 1] = self.starts[:-1]
        return following

    def _without_borders(self, cells: CellBounds) -> RingPieces:
        """Drop rings that run along their cells' borders alone, and count how often they go round."""
        if not len(self.cells):
            return self
        sizes = np.diff(self.starts)
        following = self._following()
        x, y, xn, yn = self.x, self.y, self.x[following], self.y[following]
        x0, y0, x1, y1 = (
            np.repeat(side[self.cells], sizes) for side in (cells.xmin, cells.ymin, cells.xmax, cells.ymax)
        )
        upright = (x == xn) & ((x == x0) | (x == x1))
        level = (y == yn) & ((y == y0) | (y == y1))
        border = np.logical_and.reduceat(upright | level, self.starts[:-1])
        if not border.any():
            return self
        doubled = np.add.reduceat((x - x0) * (yn - y) - (xn - x) * (y - y0), self.starts[:-1])
        turns = np.rint(doubled / (2 * (x1 - x0) * (y1 - y0))[self.starts[:-1]]).astype(np.int64)
        cover = self.cover.copy()
        np.add.at(cover, self.cells[border], turns[border])
        return self._select(~border, np.arange(len(cover)), cover)

    def _select(self, rings: BoolArray, number: IntArray, cover: IntArray) -> RingPieces:
        sizes = np.diff(self.starts)
        vertices = np.repeat(rings, sizes)
        starts = np.zeros(int(rings.sum()) + 1, np.int64)
        np.cumsum(sizes[rings], out=starts[1:])
        return RingPieces(self.x[vertices], self.y[vertices], starts, number[self.cells[rings]], cover)


def _kept(
    along: FloatArray, across: FloatArray, keep: BoolArray, starts: IntArray, cells: IntArray
) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Vertices that are kept, without rings of fewer than three: both coordinates, sizes of rings, their cells."""
    if not len(cells):
        return along[:0], across[:0], starts[:0], cells
    sizes = np.add.reduceat(keep.astype(np.int64), starts[:-1])
    rings = sizes >= 3
    keep = keep & np.repeat(rings, np.diff(starts))
    return along[keep], across[keep], sizes[rings], cells[rings]
