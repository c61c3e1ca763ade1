"""From a shape to its tree of cells: cut level by level, pruned from below, passed over from above.

Work and memory: cells that the shape's border runs through, at all levels; a cell that lies inside as a whole is never
cut. What is left of a shape in a cell is a part of the domain, however small, if a point can be drawn in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from engines.spatial.domain.base import WHOLE
from engines.spatial.domain.box import BoxDomain
from engines.spatial.domain.cells import CellTree
from engines.spatial.domain.pieces import CellBounds, Pieces
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.errors import EngineInputError

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
    """The tree of a shape's cells, the pieces of the finest cells that its border runs through, in order, and the
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
    """Of cells of one depth."""
    return CellBounds(*grid.corners((np.int64(1) << depth) + codes, np.full(len(codes), depth)))


def _cut(grid: BoxDomain, shape: P) -> tuple[list[_Level], IntArray, P]:
    codes, pieces, levels = np.zeros(1, np.int64), shape, []
    for depth in range(grid.depth):
        halves = np.repeat(2 * codes, 2)
        halves[1::2] += 1
        bounds = bounds_of(grid, halves, depth + 1)
        axis = depth % 2
        parts = pieces.halved(axis, (bounds.xmin if axis == 0 else bounds.ymin)[1::2], bounds)
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
        below = np.full(len(halves), -1)
        below[cut] = np.arange(len(cut))
        levels.append(_Level(codes, np.where(alive, measures, 0.0), full & alive, below))
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
        codes = np.repeat(2 * level.codes, 2)
        codes[1::2] += 1
        ends.append((of_halves[done], deeper[done], np.full(len(done), depth + 1), codes[done], np.full(len(done), -1)))
        below = np.flatnonzero(level.below >= 0)
        names, depths = of_halves[below], deeper[below]
    left = np.flatnonzero(names > 0)
    ends.append((names[left], depths[left], np.full(len(left), grid.depth), finest[left], np.arange(len(left))))
    return CellTree.of(
        grid,
        inner=tuple(np.concatenate(part) for part in zip(*inner, strict=True)),
        ends=tuple(np.concatenate(part) for part in zip(*ends, strict=True)),
    )
