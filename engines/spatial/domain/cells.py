"""The cells of a shape as a binary tree in which every inner cell has two children: named, measured and found again.

A cell of which one half misses the shape is passed over: it and the other half are one node. So nodes are named by the
turns that are left on the way to them, and a finest cell by at most as many turns as the grid has levels.
Memory: 33 bytes for each cell that the border divides, and 41 for each that it does not or that is finest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engines.spatial.domain.base import HALF, WHOLE
from engines.spatial.domain.box import BoxDomain
from engines.spatial.domain.sphere import band
from schemas.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class CellTree:
    """Attributes, `(inner cells,)` or `(ends,)` int64 each:

    inner: ascending heap numbers of cells with a border in them and two children. share: of `WHOLE`, its first child's.
    inner_level, inner_code: where such a cell is in the grid.
    start: ascending, the code (a name followed by zeros, `grid.depth` bits) of each end: a finest cell that a border
        runs through, or a cell that lies inside as a whole, whose own parts follow from the grid.
    end_depth: turns in its name. end_level, end_code: where it is in the grid. first: its first finest grid cell.
    piece: number of the piece in it, -1 where it lies inside as a whole.
    """

    grid: BoxDomain
    inner: IntArray
    share: IntArray
    inner_level: IntArray
    inner_code: IntArray
    start: IntArray
    end_depth: IntArray
    end_level: IntArray
    end_code: IntArray
    piece: IntArray
    first: IntArray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", self.end_code << (self.grid.depth - self.end_level))

    @staticmethod
    def of(grid: BoxDomain, *, inner: tuple[IntArray, ...], ends: tuple[IntArray, ...]) -> CellTree:
        """Args: inner: names, shares, levels, codes. ends: names, depths, levels, codes, pieces."""
        order = np.argsort(inner[0])
        names, shares, inner_levels, inner_codes = (part[order] for part in inner)
        start = (ends[0] << (grid.depth - ends[1])) - (np.int64(1) << grid.depth)
        by_start = np.argsort(start)
        depths, levels, codes, pieces = (part[by_start] for part in ends[1:])
        return CellTree(grid, names, shares, inner_levels, inner_codes, start[by_start], depths, levels, codes, pieces)

    @property
    def depth(self) -> int:
        return self.grid.depth

    def end_of(self, nodes: IntArray, depths: IntArray) -> IntArray:
        """`(nodes,)` position of the end in which a node's first code lies."""
        codes = (nodes << (self.depth - depths)) - (np.int64(1) << self.depth)
        return np.searchsorted(self.start, codes, side="right") - 1

    def divisible(self, nodes: IntArray, depths: IntArray) -> BoolArray:
        """See `SpatialDomain`."""
        end = self.end_of(nodes, depths)
        deeper = depths - self.end_depth[end]
        halvings = np.where(self.piece[end] < 0, self.depth - self.end_level[end], 0)
        # Of an end's last names only the first is a cell: the others are zeros that follow it.
        result: BoolArray = deeper < halvings
        return result

    def left_shares(self, nodes: IntArray, depths: IntArray) -> IntArray:
        """See `SpatialDomain`. A cell that lies inside is shared by the area of its parts on the globe."""
        end = self.end_of(nodes, depths)
        deeper = depths - self.end_depth[end]
        shares = np.full(len(nodes), WHOLE)
        above = deeper < 0
        shares[above] = self.share[np.searchsorted(self.inner, nodes[above])]
        level = self.end_level[end] + deeper
        inside = ~above & (self.piece[end] < 0) & (level < self.depth)
        shares[inside & (level % 2 == 0)] = HALF
        upright = np.flatnonzero(inside & (level % 2 == 1))
        if len(upright):
            cells = self._inside(nodes[upright], end[upright], deeper[upright])
            _, south, _, north = self.grid.corners(cells, level[upright])
            middle = self.grid.corners(2 * cells + 1, level[upright] + 1)[1]
            low, high = band(south), band(north)
            share = np.rint((band(middle) - low) / (high - low) * WHOLE).astype(np.int64)
            shares[upright] = np.clip(share, 1, WHOLE - 1)
        return shares

    def corners(self, nodes: IntArray, depths: IntArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Bounds of the smallest grid cell that holds all of a node: xmin, ymin, xmax, ymax, `(nodes,)` each."""
        cells, levels = self.grid_cells(nodes, depths)
        return self.grid.corners(cells, levels)

    def grid_cells(self, nodes: IntArray, depths: IntArray) -> tuple[IntArray, IntArray]:
        """Heap numbers in the grid, and their depths, `(nodes,)` each."""
        end = self.end_of(nodes, depths)
        deeper = depths - self.end_depth[end]
        levels = np.minimum(self.end_level[end] + np.maximum(deeper, 0), self.depth)
        turns = levels - self.end_level[end]
        # Zeros that follow a finest cell's name are no turns.
        cells = self._inside(nodes >> np.maximum(deeper - turns, 0), end, turns)
        above = np.flatnonzero(deeper < 0)
        at = np.searchsorted(self.inner, nodes[above])
        levels[above] = self.inner_level[at]
        cells[above] = (np.int64(1) << self.inner_level[at]) + self.inner_code[at]
        return cells, levels

    def _inside(self, nodes: IntArray, end: IntArray, deeper: IntArray) -> IntArray:
        """Heap numbers in the grid of nodes `deeper` turns below ends."""
        low = nodes & ((np.int64(1) << deeper) - 1)
        return (((np.int64(1) << self.end_level[end]) + self.end_code[end]) << deeper) + low

    def codes(self, finest: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Where finest grid cells are in the tree: code, end, and whether they are in it at all; `(cells,)` each."""
        end = np.maximum(np.searchsorted(self.first, finest, side="right") - 1, 0)
        inside = finest - self.first[end]
        spare = self.depth - self.end_level[end]
        there: BoolArray = (inside >= 0) & (inside >> spare == 0)
        codes = self.start[end]
        whole = there & (self.piece[end] < 0)
        codes[whole] += inside[whole] << (self.depth - self.end_depth[end] - spare)[whole]
        return codes, end, there

    def nearest(self, finest: IntArray) -> IntArray:
        """Codes of cells beside finest grid cells that are not in the tree, `(cells,)`: from the root down, each time
        into the half on their side, and where there is none into the other."""
        column, row = self.grid.grid(finest)
        nodes, depths = np.ones(len(finest), np.int64), np.zeros(len(finest), np.int64)
        going = self.divisible(nodes, depths)
        while going.any():
            at = np.flatnonzero(going)
            cells, levels = self.grid_cells(nodes[at], depths[at])
            middle = ((2 * cells + 1) << (self.depth - levels - 1)) - (np.int64(1) << self.depth)
            east, north = self.grid.grid(middle)
            second = np.where(levels % 2 == 0, column[at] >= east, row[at] >= north)
            nodes[at] = 2 * nodes[at] + second
            depths[at] += 1
            going[at] = self.divisible(nodes[at], depths[at])
        return (nodes << (self.depth - depths)) - (np.int64(1) << self.depth)

    @property
    def nbytes(self) -> int:
        """Of memory."""
        return sum(getattr(self, name).nbytes for name in self.__slots__ if name != "grid")
