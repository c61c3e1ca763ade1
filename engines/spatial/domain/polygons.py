"""Polygons as a domain: countries, a city, land; holes, many parts, across the antimeridian.

Rings are cut along the lines of a grid, all cells of a level at once: Sutherland-Hodgman clipping by a half plane, ring
by ring, may leave edges that run back along the line, which have no area, and it can not fail. Rings that have become
the cell's own border are dropped and remembered as `cover`. Arrays of floats are added, multiplied and divided one by
one, so every machine gets the same pieces.
A point is drawn evenly in a piece as `(u, v)`: v says the height in the piece's bounding box, and u, times the longest
that all chords of the piece are anywhere, how far along the chords of this height it lies; beyond their end the draw is
refused. So what is not refused is even, and thin pieces that lie askew refuse few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import shapely

from engines.spatial.domain.box import BoxDomain
from engines.spatial.domain.cells import CRUMB, CellBounds, Ragged, bounds_of, grown, numbered
from engines.spatial.domain.geojson import Shape
from engines.spatial.domain.mapped import MappedDomain
from engines.spatial.domain.sphere import band, mean_band
from schemas.arrays import BoolArray, FloatArray, IntArray


def areas_of(cells: CellBounds) -> FloatArray:
    """Return the square metres of cells, `(cells,)`."""
    xmin, ymin, xmax, ymax = cells
    return (xmax - xmin) * (band(ymax) - band(ymin))


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
        starts = np.append(0, np.cumsum(sizes))
        return RingPieces(x, y, starts, cells, np.repeat(self.cover, 2))._without_borders(children)

    def chosen(self, which: IntArray) -> RingPieces:
        number = numbered(which, len(self.cover))
        return self._select(number[self.cells] >= 0, number, self.cover[which])

    def measures(self, cells: CellBounds) -> FloatArray:
        following = self._following()
        of_vertex = np.repeat(self.cells, np.diff(self.starts))
        heights = mean_band(self.y, self.y[following]) - band(cells[1])[of_vertex]
        areas = np.bincount(of_vertex, (self.x - self.x[following]) * heights, minlength=len(self.cover))
        whole = areas_of(cells)
        return np.clip(areas + self.cover * whole, 0.0, whole)

    def crumbs(self, cells: CellBounds, halvings: int) -> FloatArray:
        return areas_of(cells) * (CRUMB * 0.5**halvings)

    def full(self) -> BoolArray:
        bordered = np.zeros(len(self.cover), np.bool_)
        bordered[self.cells] = True
        result: BoolArray = ~bordered & (self.cover == 1)
        return result

    def edges(self, cells: CellBounds) -> tuple[Ragged, FloatArray]:
        """Return where the edges of each cell's piece begin, and all edges, `(edges, 4)` x, y, x, y."""
        following = self._following()
        of_vertex = np.repeat(self.cells, np.diff(self.starts))
        rows = np.stack([self.x, self.y, self.x[following], self.y[following]], axis=1)
        covered = np.flatnonzero(self.cover)
        x0, y0, x1, y1 = (side[covered] for side in cells)
        # Only upright sides: what runs from west to east is crossed by no chord.
        east, west = np.stack([x1, y0, x1, y1], axis=1), np.stack([x0, y1, x0, y0], axis=1)
        rows = np.concatenate([rows, east, west])
        groups = np.concatenate([of_vertex, covered, covered])
        upright = rows[:, 1] != rows[:, 3]
        rows, groups = rows[upright], groups[upright]
        order = np.argsort(groups, kind="stable")
        return Ragged.of(groups, len(self.cover)), rows[order]

    def _following(self) -> IntArray:
        """Return the position of each vertex's successor in its ring."""
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
        x0, y0, x1, y1 = (np.repeat(side[self.cells], sizes) for side in cells)
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
        starts = np.append(0, np.cumsum(sizes[rings]))
        return RingPieces(self.x[vertices], self.y[vertices], starts, number[self.cells[rings]], cover)


def _kept(
    along: FloatArray, across: FloatArray, keep: BoolArray, starts: IntArray, cells: IntArray
) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Keep vertices, but no ring of fewer than three: return both coordinates, the rings' sizes, and their cells."""
    if not len(cells):
        return along[:0], across[:0], starts[:0], cells
    sizes = np.add.reduceat(keep.astype(np.int64), starts[:-1])
    rings = sizes >= 3
    keep = keep & np.repeat(rings, np.diff(starts))
    return along[keep], across[keep], sizes[rings], cells[rings]


_CHUNK = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class Chords:
    """Attributes:

    rows: of each piece's edges. edges: `(edges, 4)` x, y, x, y, none of them level; some may run back over others.
    """

    rows: Ragged
    edges: FloatArray
    _frames: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_frames", np.full((3, self.count), np.nan))

    @property
    def count(self) -> int:
        """Number of pieces."""
        return len(self.rows.starts) - 1

    def drawn(self, pieces: IntArray, u: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Draw points of pieces: x, y, and whether the draw holds, `(points,)` each; u and v are in [0, 1)."""
        longest, low, high = self._frames_of(pieces)
        target, y = u * longest, low + v * (high - low)
        point, west, east = self._at(pieces, y)
        length = east - west
        before = np.cumsum(length) - length
        before -= before[np.searchsorted(point, point)]
        hit = (before <= target[point]) & (target[point] < before + length)
        x, holds = np.zeros(len(pieces)), np.zeros(len(pieces), np.bool_)
        x[point[hit]] = west[hit] + (target[point[hit]] - before[hit])
        holds[point[hit]] = True
        return x, y, holds

    def middles(self) -> tuple[FloatArray, FloatArray]:
        """Return a point well inside of each piece, `(pieces,)` x and y; NaN where there is none."""
        x, y = np.full(self.count, np.nan), np.full(self.count, np.nan)
        for start in range(0, self.count, _CHUNK):
            pieces, south, north = self._strips(np.arange(start, min(start + _CHUNK, self.count)))
            height = (south + north) / 2
            at, west, east = self._at(pieces, height)
            room = (east - west) * (north - south)[at]
            order = np.argsort(room, kind="stable")
            order = order[room[order] > 0]
            at, middle = at[order], ((west + east) / 2)[order]
            # Of what is written twice the last, which has the most room, stays.
            x[pieces[at]], y[pieces[at]] = middle, height[at]
        return x, y

    def _frames_of(self, pieces: IntArray) -> FloatArray:
        """Return `(3, pieces)`: the most that a piece's chords of one height are together, the lowest height that has
        any, and the highest; worked out when they are first asked for.
        """
        unknown = np.unique(pieces[np.isnan(self._frames[0, pieces])])
        for start in range(0, len(unknown), _CHUNK):
            some = unknown[start : start + _CHUNK]
            of, south, north = self._strips(some)
            quarter = (north - south) / 4
            first, last = (self._lengths(of, y) for y in (south + quarter, north - quarter))
            # Between two corners the length is linear: this is what it is at the strip's ends.
            ends = np.maximum(1.5 * first - 0.5 * last, 1.5 * last - 0.5 * first)
            there = np.maximum(first, last) > 0
            longest, low, high = np.zeros(self.count), np.full(self.count, np.inf), np.full(self.count, -np.inf)
            np.maximum.at(longest, of, ends)
            np.minimum.at(low, of[there], south[there])
            np.maximum.at(high, of[there], north[there])
            self._frames[:, some] = longest[some] * (1 + 1e-6), low[some], high[some]
        return self._frames[:, pieces]

    def _lengths(self, pieces: IntArray, y: FloatArray) -> FloatArray:
        at, west, east = self._at(pieces, y)
        return np.bincount(at, east - west, minlength=len(y)).astype(np.float64)

    def _strips(self, pieces: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the strips between neighbouring corners: piece, southern and northern end, `(strips,)` each."""
        at, rows = self.rows.rows(pieces)
        owner = np.concatenate([pieces[at], pieces[at]])
        heights = np.concatenate([self.edges[rows, 1], self.edges[rows, 3]])
        order = np.lexsort((heights, owner))
        owner, heights = owner[order], heights[order]
        strip = (owner[1:] == owner[:-1]) & (heights[1:] > heights[:-1])
        return (owner[1:][strip], heights[:-1][strip], heights[1:][strip])

    def _at(self, pieces: IntArray, y: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the chords of pieces at heights: which of `pieces`, and both ends, from west to east."""
        at, rows = self.rows.rows(pieces)
        x0, y0, x1, y1 = self.edges[rows].T
        height = y[at]
        crossed = (y0 <= height) != (y1 <= height)
        at, x0, y0, x1, y1, height = (part[crossed] for part in (at, x0, y0, x1, y1, height))
        x = x0 + (height - y0) / (y1 - y0) * (x1 - x0)
        order = np.lexsort((x, at))
        x = x[order]
        return at[order][::2], x[::2], x[1::2]


class PolygonDomain(MappedDomain):
    """Areas. Cells weigh by their square metres on the ellipsoid; the border belongs to the domain.

    Args:
        fields: names of longitude and latitude in raw and in synthetic records.
        shape: its polygons.
        depth: halvings of the bounding box, 1 to 30.
    Raises: EngineInputError if the polygons have no area, or the depth is too large for them or for float64.
    """

    def __init__(self, fields: tuple[str, str], shape: Shape, depth: int) -> None:
        self._geometry, self._repaired = shape.geometry, shape.repaired
        bounds = np.array(shapely.bounds(shape.geometry))
        grid = grid_over(fields, bounds, depth)
        middles: list[tuple[FloatArray, FloatArray]] = []

        def usable(pieces: RingPieces, codes: IntArray) -> BoolArray:
            x, y = Chords(*pieces.edges(bounds_of(grid, codes, depth))).middles()
            alive = np.zeros(len(codes), np.bool_)
            there = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
            there = there[grid.cells(x[there], y[there]) == codes[there]]
            alive[there] = shapely.intersects_xy(self._geometry, x[there], y[there])
            middles.append((x[alive], y[alive]))
            return alive

        tree, pieces, self.measure = grown(grid, _rings(shape), usable=usable)
        edged = tree.piece >= 0
        self._chords = Chords(*pieces.edges(bounds_of(grid, tree.end_code[edged], depth)))
        super().__init__(fields, tree, bounds, "polygons", middles=middles[0])

    def remarks(self) -> Iterator[str]:
        if self._repaired:
            yield f"{self._repaired} polygons of its map cross themselves; they were cut into parts where they do."

    def outline(self) -> list[FloatArray]:
        rings = shapely.get_rings(shapely.get_parts(shapely.simplify(self._geometry, outline_detail(self.bounds))))
        return [shapely.get_coordinates(ring) for ring in rings]

    def _inside(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        _, end, there = self.tree.codes(self.grid.cells(x, y))
        inside = there & (self.tree.piece[end] < 0)
        doubt = np.flatnonzero(~inside)
        inside[doubt] = shapely.intersects_xy(self._geometry, x[doubt], y[doubt])
        return x, y, inside

    def _drawn(self, pieces: IntArray, u: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        return self._chords.drawn(pieces, u, v)


def outline_detail(bounds: tuple[float, float, float, float]) -> float:
    """Return how many degrees no drawing of the whole shows."""
    return max(bounds[2] - bounds[0], bounds[3] - bounds[1]) / 1000


def grid_over(fields: tuple[str, str], bounds: FloatArray, depth: int) -> BoxDomain:
    """Return the grid of a shape: its bounding box and a little more, since a box does not hold its upper edges."""
    west, south, east, north = bounds.tolist()
    # The grid of a flat shape is as high as a metre.
    wide, high = max(east - west, 1e-5), max(north - south, 1e-5)
    return BoxDomain(*fields, (west, south, west + wide * (1 + 2.0**-20), south + high * (1 + 2.0**-20)), depth)


def _rings(shape: Shape) -> RingPieces:
    """Return all rings as one piece, shells counter-clockwise and holes clockwise."""
    polygons = shapely.orient_polygons(shapely.get_parts(shape.geometry), exterior_cw=False)
    points, ring = shapely.get_coordinates(shapely.get_rings(polygons), return_index=True)
    # The last vertex of a ring is its first one.
    open_rings = np.append(ring[1:] == ring[:-1], False)
    sizes = np.bincount(ring[open_rings])
    starts = np.append(0, np.cumsum(sizes))
    x, y = points[open_rings].T
    return RingPieces(x, y, starts, np.zeros(len(sizes), np.int64), np.zeros(1, np.int64))
