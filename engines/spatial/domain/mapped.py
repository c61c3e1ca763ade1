"""What domains on a map share: a shape inside a grid of longitudes and latitudes, and its tree of cells.

Every point of the shape is in exactly one finest cell: that of its place in the grid or, where nothing of the shape is
left there (points on borders alone), the nearest one by turns from the root.
Privacy: knows no data. What a record becomes depends on that record and on the public shape only.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from engines.core.contract import Columns
from engines.core.coordinates import refused
from engines.core.words import fractions
from engines.spatial.domain.base import PlanarDomain, PublicWords, first_shares
from engines.spatial.domain.box import rounded
from engines.spatial.domain.cells import CellTree
from schemas.arrays import BoolArray, FloatArray, IntArray, KeyArray, ReasonArray, WordArray
from schemas.events import Reason

ROUNDS, EXACT_ROUNDS = 24, 72
"""Draws of a point with rounded, and then with exact coordinates, before its cell's middle is taken."""


class MappedDomain(PlanarDomain):
    """Implements `SpatialDomain`, but for what `_inside` and `_drawn` say of the shape.

    Attributes:
        measure: of the whole shape, in square metres or metres.
        bounds: xmax may be beyond 180.
    """

    measure: float
    _margin = (0.0, 0.0)
    """Degrees beyond the bounds within which an event may belong to the shape."""

    def __init__(
        self,
        fields: tuple[str, str],
        tree: CellTree,
        limits: FloatArray,
        kind: str,
        *,
        middles: tuple[FloatArray, FloatArray],
    ) -> None:
        """Begin with a shape's tree.

        Args:
            limits: west, south, east and north end of the shape. kind: of the shape, and how it takes events.
            middles: x and y of one point of each piece, `(pieces,)`, that can always be taken.
        """
        self.x_field, self.y_field = fields
        self.tree = tree
        self.grid, self.bounds = tree.grid, tree.grid.bounds
        self._limits, self._middles = limits, middles
        digest = hashlib.sha256()
        for part in (tree.inner, tree.share, tree.start, tree.first, tree.end_depth, tree.end_level):
            digest.update(np.ascontiguousarray(part, "<i8").tobytes())
        self._identity = (kind, self.grid.bounds, self.grid.depth, digest.hexdigest())

    # --- the shape's own ------------------------------------------------------------------------------------------

    @abstractmethod
    def _inside(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Return where points belong on the shape, and whether they do."""

    @abstractmethod
    def _drawn(self, pieces: IntArray, u: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Draw points of pieces, evenly, and tell whether the draw holds; u and v are in [0, 1)."""

    def remarks(self) -> Iterator[str]:
        """Yield what whoever configured the shape should know of it, in sentences."""
        yield from ()

    @abstractmethod
    def outline(self) -> list[FloatArray]:
        """Return the shape as lines to draw, `(points, 2)` each; longitudes as in `bounds`, details left out."""

    # --- as a domain ----------------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        return self.grid.depth

    @property
    def identity(self) -> tuple[Any, ...]:
        return self._identity

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """See `engines.core.contract.Domain`: outside of the shape is OUTSIDE_DOMAIN, its border belongs to it."""
        x, y = columns.numbers[self.x_field], columns.numbers[self.y_field]
        reasons = refused(x, y)
        keys = np.zeros((len(x), 1), np.uint64)
        rows, _, _, codes = self.located(x, y)
        reasons[rows] = Reason.ACCEPTED
        keys[rows, 0] = (codes.astype(np.uint64) << np.uint64(1)) | (columns.operations[rows] < 0)
        return keys, reasons

    def located(self, x: FloatArray, y: FloatArray) -> tuple[IntArray, FloatArray, FloatArray, IntArray]:
        """Return which points are on the shape, where on it those are, and the codes of their finest cells."""
        rows, x, y = self._in_bounds(x, y)
        x, y, there = self._inside(x, y)
        rows, x, y = rows[there], x[there], y[there]
        finest = self.grid.cells(x, y)
        codes, _, found = self.tree.codes(finest)
        if not found.all():
            codes[~found] = self.tree.nearest(finest[~found])
        return rows, x, y, codes

    def _in_bounds(self, x: FloatArray, y: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return rows within the bounds and the margin, and their places there: longitudes may be a turn off."""
        (xmin, ymin, xmax, ymax), (dx, dy) = self.bounds, self._margin
        with np.errstate(invalid="ignore"):
            turned = np.where(x < xmin - dx, x + 360.0, np.where(x >= xmax + dx, x - 360.0, x))
            rows = np.flatnonzero((turned >= xmin - dx) & (turned < xmax + dx) & (y >= ymin - dy) & (y < ymax + dy))
        return rows, turned[rows], y[rows]

    def divisible(self, nodes: IntArray, depths: IntArray) -> BoolArray:
        return self.tree.divisible(nodes, depths)

    def left_shares(self, nodes: IntArray, depths: IntArray) -> IntArray:
        return self.tree.left_shares(nodes, depths)

    def described(self, nodes: IntArray, depths: IntArray) -> list[dict[str, Any]]:
        """See `SpatialDomain`. A cell across the antimeridian has its west above its east (RFC 7946, 5.2)."""
        xmin, ymin, xmax, ymax = self.tree.corners(nodes, depths)
        _, _, east, north = self._limits
        xmax, ymax = np.minimum(xmax, east), np.minimum(ymax, north)
        corners = np.stack([self._public(xmin), ymin, self._public(xmax), ymax], axis=1)
        return [{"cell": cell} for cell in corners.tolist()]

    def points(self, public: PublicWords, nodes: IntArray, indices: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return longitudes and latitudes of points: in cells inside as in a box, in others evenly on the shape."""
        codes = nodes - (np.int64(1) << self.depth)
        end = self.tree.end_at(codes)
        whole = self.tree.piece[end] < 0
        x, y = np.zeros(len(nodes)), np.zeros(len(nodes))
        cells, _ = self.tree.grid_cells(nodes[whole], np.full(int(whole.sum()), self.depth))
        x[whole], y[whole] = self.grid.points(_Renamed(public, lambda _: nodes[whole]), cells, indices[whole])
        open_rows = np.flatnonzero(~whole)
        for attempt in range(ROUNDS + EXACT_ROUNDS):
            if not len(open_rows):
                break
            at = nodes[open_rows]
            draw = public.positions if attempt == 0 else partial(_later, public, attempt=attempt)
            u, v = draw(at, indices[open_rows])
            px, py, holds = self._drawn(self.tree.piece[end[open_rows]], u, v)
            if attempt < ROUNDS:
                px, py = self._rounded(px, py)
            px = self._public(px)
            holds[holds] = self._come_back(px[holds], py[holds], codes[open_rows[holds]])
            x[open_rows[holds]], y[open_rows[holds]] = px[holds], py[holds]
            open_rows = open_rows[~holds]
        if len(open_rows):
            px, py = (middle[self.tree.piece[end[open_rows]]] for middle in self._middles)
            x[open_rows], y[open_rows] = self._public(px), py
        return self._public(x), y

    def spread(self, public: PublicWords, indices: IntArray, *, salt: int) -> tuple[FloatArray, FloatArray]:
        """Place points of the whole shape by their number, as `engines.spatial.points` would: evenly by measure.

        Args:
            salt: tells the points of this shape from those of others in the same stream.
        """
        named = _Renamed(public, lambda nodes: nodes ^ (np.int64(salt) << 33))
        nodes, levels, indices = np.ones_like(indices), np.zeros_like(indices), indices.copy()
        for level in range(self.depth):
            levels[:] = level
            shares = self.left_shares(nodes, levels)
            before, after = first_shares(indices, shares, named.words(nodes))
            first = after > before
            indices = np.where(first, before, indices - before)
            nodes = 2 * nodes + ~first
        return self.points(named, nodes, indices)

    def _rounded(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        width, height = self.grid.cell_size
        return rounded(x, width), rounded(y, height)

    def _come_back(self, x: FloatArray, y: FloatArray, codes: IntArray) -> BoolArray:
        """Tell whether `encode` would give public points these codes."""
        rows, _, _, found = self.located(x, y)
        result = np.zeros(len(x), np.bool_)
        result[rows] = found == codes[rows]
        return result

    def _public(self, x: FloatArray) -> FloatArray:
        """Return longitudes in -180 to 180. The difference is exact, so that `_in_bounds` undoes it."""
        return np.where(x > 180.0, x - 360.0, x)


class _Renamed:
    """The public words of cells under other names: the tree's, which are not the grid's, or a shape's own."""

    def __init__(self, public: PublicWords, name: Callable[[IntArray], IntArray]) -> None:
        self._public, self._name = public, name

    def words(self, nodes: IntArray) -> WordArray:
        return self._public.words(self._name(nodes))

    def positions(self, nodes: IntArray, indices: IntArray) -> tuple[FloatArray, FloatArray]:
        return self._public.positions(self._name(nodes), indices)


def _later(public: PublicWords, nodes: IntArray, indices: IntArray, *, attempt: int) -> tuple[FloatArray, FloatArray]:
    """Return two numbers in [0, 1) for a later attempt, unrelated to the first ones: what these say of where a draw is
    refused must not say where the next one lands.
    """
    words = public.words(nodes).view(np.int64) ^ public.words((indices << 8) + attempt).view(np.int64)
    first = public.words(words)
    second = public.words(first.view(np.int64))
    return fractions(first), fractions(second)
