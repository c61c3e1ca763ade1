"""The cells of a shape as a binary tree in which every inner cell has two children.

A shape is cut along grid lines level by level (`Pieces`), pruned from below and passed over from above (`grown`): a
cell of which one half misses the shape is passed over, and it and the other half are one node. So nodes are named by
the turns that are left on the way to them, and a finest cell by at most as many turns as the grid has levels. What is
left of a shape in a cell is a part of the domain, however small, if a point can be drawn in it.
Work and memory: cells that the shape's border runs through, at all levels; a cell that lies inside as a whole is never
cut. A tree has 33 bytes for each cell that the border divides, and 41 for each that it does not or that is finest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar

import numpy as np

from engines.spatial.domain.base import HALF, WHOLE, children_of, first_codes
from engines.spatial.domain.box import BoxDomain
from engines.spatial.domain.sphere import band
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.errors import EngineInputError

CRUMB = 2.0**-32
"""Share of a finest cell below which a piece is what rounding leaves of borders that meet, and no cell of its own."""


CellBounds = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""xmin, ymin, xmax, ymax of cells, `(cells,)` each, in degrees."""


class Pieces(Protocol):
    """What lies in each of some cells."""

    def halved(self, axis: int, middle: FloatArray, children: CellBounds) -> Self:
        """Return the pieces of both halves of each cell: those of cell i are pieces 2i and 2i + 1.

        Args:
            axis: 0 where x is halved, 1 for y. middle: `(cells,)` the lines. children: `(2 * cells,)`.
        """
        ...

    def chosen(self, which: IntArray) -> Self:
        """Return the pieces of the cells with these ascending numbers, numbered anew."""
        ...

    def measures(self, cells: CellBounds) -> FloatArray:
        """Return the measure of each piece, `(cells,)`, in square metres or metres."""
        ...

    def crumbs(self, cells: CellBounds, halvings: int) -> FloatArray:
        """Return the least measure that counts, `(cells,)`, in cells that are halved so many times more."""
        ...

    def full(self) -> BoolArray:
        """Tell which cells lie inside of the shape, without a border of it, `(cells,)`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Where the rows of each group are: those of group i are rows starts[i] .. starts[i + 1] - 1."""

    starts: IntArray

    @staticmethod
    def of(groups: IntArray, count: int) -> Ragged:
        """Args: groups: `(rows,)` ascending numbers of groups below `count`."""
        return Ragged(np.append(0, np.cumsum(np.bincount(groups, minlength=count))))

    def rows(self, groups: IntArray) -> tuple[IntArray, IntArray]:
        """Return all rows of some groups, one after another: position in `groups`, and row."""
        first, sizes = self.starts[groups], self.starts[groups + 1] - self.starts[groups]
        offsets = np.cumsum(sizes) - sizes
        return np.repeat(np.arange(len(groups)), sizes), np.arange(int(sizes.sum())) + np.repeat(first - offsets, sizes)


def numbered(which: IntArray, count: int) -> IntArray:
    """Return the new number of each of `count` things, of which those in `which` stay; -1 for the others."""
    numbers = np.full(count, -1)
    numbers[which] = np.arange(len(which))
    return numbers


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

    @property
    def depth(self) -> int:
        return self.grid.depth

    def end_of(self, nodes: IntArray, depths: IntArray) -> IntArray:
        """Return the position of the end in which each node's first code lies, `(nodes,)`."""
        return self.end_at(first_codes(nodes, depths, self.depth))

    def end_at(self, codes: IntArray) -> IntArray:
        """Return the position of the end in which each code lies, `(codes,)`."""
        return np.searchsorted(self.start, codes, side="right") - 1

    def divisible(self, nodes: IntArray, depths: IntArray) -> BoolArray:
        end = self.end_of(nodes, depths)
        deeper = depths - self.end_depth[end]
        halvings = np.where(self.piece[end] < 0, self.depth - self.end_level[end], 0)
        # Of an end's last names only the first is a cell: the others are zeros that follow it.
        return deeper < halvings

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
        """Return the bounds of the smallest grid cell that holds a node: xmin, ymin, xmax, ymax, `(nodes,)` each."""
        cells, levels = self.grid_cells(nodes, depths)
        return self.grid.corners(cells, levels)

    def grid_cells(self, nodes: IntArray, depths: IntArray) -> tuple[IntArray, IntArray]:
        """Return the nodes' heap numbers in the grid, and their depths there, `(nodes,)` each."""
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
        """Return the heap numbers in the grid of nodes `deeper` turns below ends."""
        low = nodes & ((np.int64(1) << deeper) - 1)
        return (((np.int64(1) << self.end_level[end]) + self.end_code[end]) << deeper) + low

    def codes(self, finest: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Find finest grid cells in the tree: code, end, and whether they are in it at all; `(cells,)` each."""
        end = np.maximum(np.searchsorted(self.first, finest, side="right") - 1, 0)
        inside = finest - self.first[end]
        spare = self.depth - self.end_level[end]
        there: BoolArray = (inside >= 0) & (inside >> spare == 0)
        codes = self.start[end]
        whole = there & (self.piece[end] < 0)
        codes[whole] += inside[whole] << (self.depth - self.end_depth[end] - spare)[whole]
        return codes, end, there

    def nearest(self, finest: IntArray) -> IntArray:
        """Return codes of cells beside finest grid cells that are not in the tree, `(cells,)`: from the root down, each
        time into the half on their side, and where there is none into the other.
        """
        column, row = self.grid.grid(finest)
        nodes, depths = np.ones(len(finest), np.int64), np.zeros(len(finest), np.int64)
        going = self.divisible(nodes, depths)
        while going.any():
            at = np.flatnonzero(going)
            cells, levels = self.grid_cells(nodes[at], depths[at])
            east, north = self.grid.grid(first_codes(2 * cells + 1, levels + 1, self.depth))
            second = np.where(levels % 2 == 0, column[at] >= east, row[at] >= north)
            nodes[at] = 2 * nodes[at] + second
            depths[at] += 1
            going[at] = self.divisible(nodes[at], depths[at])
        return first_codes(nodes, depths, self.depth)


P = TypeVar("P", bound=Pieces)

MOST_CELLS = 4_000_000
"""On one level, with a border in them."""
TINY = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """Cells of one level with a border in them, and their halves.

    Attributes:
        codes: `(cells,)`. measures: `(2 * cells,)` of the halves, 0 where nothing is left. whole: `(2 * cells,)` True
            for a half that lies inside. below: `(2 * cells,)` number of a half among the next level's cells, or -1.
    """

    codes: IntArray
    measures: FloatArray
    whole: BoolArray
    below: IntArray


def grown(grid: BoxDomain, shape: P, *, usable: Callable[[P, IntArray], BoolArray]) -> tuple[CellTree, P, float]:
    """Grow the tree of a shape's cells; return it, the pieces of the finest cells with a border, in order, and the
    measure of all of it.

    Args:
        shape: one piece, all of it.
        usable: of pieces of finest cells, and their codes: whether points can be drawn in them.
    Raises: EngineInputError if nothing is left, or if it takes too many cells; it says which depth does not.
    """
    levels, codes, pieces = _cut(grid, shape)
    alive = usable(pieces, codes)
    sums = np.where(alive, np.maximum(pieces.measures(bounds_of(grid, codes, grid.depth)), TINY), 0.0)
    for level in reversed(levels):
        inner = level.below >= 0
        level.measures[inner] = sums[level.below[inner]]
        sums = level.measures.reshape(-1, 2).sum(axis=1)
    if not sums.any():
        raise EngineInputError("the geometry has no area and no length")
    return _passed_over(grid, levels, codes), pieces.chosen(np.flatnonzero(alive)), float(sums[0])


def bounds_of(grid: BoxDomain, codes: IntArray, depth: int) -> CellBounds:
    """Return the bounds of cells of one depth."""
    return grid.corners((np.int64(1) << depth) + codes, np.full(len(codes), depth))


def _cut(grid: BoxDomain, shape: P) -> tuple[list[_Level], IntArray, P]:
    codes, pieces, levels = np.zeros(1, np.int64), shape, []
    for depth in range(grid.depth):
        halves = children_of(codes)
        bounds = bounds_of(grid, halves, depth + 1)
        axis = depth % 2
        parts = pieces.halved(axis, bounds[axis][1::2], bounds)
        full, measures = parts.full(), parts.measures(bounds)
        pairs, crumbs = measures.reshape(-1, 2), parts.crumbs(bounds, grid.depth - depth - 1).reshape(-1, 2)
        left = pairs >= crumbs
        # Of two crumbs the larger one is kept, or the shape would end between two levels.
        left |= ~left.any(axis=1, keepdims=True) & (pairs >= pairs.max(axis=1, keepdims=True))
        alive = (left & (pairs > 0)).reshape(-1)
        cut = np.flatnonzero(alive & ~full)
        if len(cut) > MOST_CELLS:
            raise EngineInputError(
                f"at depth {depth + 1} its border runs through more than {MOST_CELLS:,} cells: "
                f"{depth} is the deepest that works for this geometry"
            )
        levels.append(_Level(codes, np.where(alive, measures, 0.0), full & alive, numbered(cut, len(halves))))
        codes, pieces = halves[cut], parts.chosen(cut)
    return levels, codes, pieces


def _passed_over(grid: BoxDomain, levels: list[_Level], finest: IntArray) -> CellTree:
    """Name what is left: a cell with one half left is passed over, and its name goes to that half."""
    names, depths = np.ones(1, np.int64), np.zeros(1, np.int64)
    inner: list[tuple[IntArray, ...]] = []
    ends: list[tuple[IntArray, ...]] = []
    for depth, level in enumerate(levels):
        pairs = level.measures.reshape(-1, 2)
        both = (pairs > 0).all(axis=1)
        # A cell whose measure is gone altogether has no name, and its number is 0.
        both &= names > 0
        at = np.flatnonzero(both)
        share = np.rint(pairs[at, 0] / (pairs[at, 0] + pairs[at, 1]) * WHOLE).astype(np.int64)
        share = np.clip(share, 1, WHOLE - 1)
        inner.append((names[at], share, np.full(len(at), depth), level.codes[at]))
        of_halves = np.where(np.repeat(both, 2), np.repeat(2 * names, 2), np.repeat(names, 2))
        of_halves[1::2] += both
        deeper = np.repeat(depths + both, 2)
        of_halves[level.measures <= 0] = 0
        done = np.flatnonzero(level.whole & (of_halves > 0))
        codes = children_of(level.codes)
        ends.append((of_halves[done], deeper[done], np.full(len(done), depth + 1), codes[done], np.full(len(done), -1)))
        below = np.flatnonzero(level.below >= 0)
        names, depths = of_halves[below], deeper[below]
    left = np.flatnonzero(names > 0)
    ends.append((names[left], depths[left], np.full(len(left), grid.depth), finest[left], np.arange(len(left))))
    node, share, inner_level, inner_code = (np.concatenate(part) for part in zip(*inner, strict=True))
    name, end_depth, end_level, end_code, piece = (np.concatenate(part) for part in zip(*ends, strict=True))
    start = first_codes(name, end_depth, grid.depth)
    first, by_start = np.argsort(node), np.argsort(start)
    return CellTree(
        grid,
        *(part[first] for part in (node, share, inner_level, inner_code)),
        *(part[by_start] for part in (start, end_depth, end_level, end_code, piece)),
    )
