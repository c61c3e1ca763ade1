"""Line networks as a domain: roads, rails, rivers. Events near a line are moved onto it.

Straight segments are cut along the lines of a grid, all cells of a level at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import shapely

from engines.spatial.domain.box import rounded
from engines.spatial.domain.cells import CRUMB, CellBounds, Ragged, grown, numbered
from engines.spatial.domain.geojson import Shape
from engines.spatial.domain.mapped import MappedDomain
from engines.spatial.domain.polygons import PolygonDomain, grid_over, outline_detail
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
        number = numbered(which, self.count)
        there = number[self.cells] >= 0
        return SegmentPieces(self.ends[there], number[self.cells[there]], len(which))

    def measures(self, cells: CellBounds) -> FloatArray:
        return np.bincount(self.cells, self.lengths(), minlength=self.count).astype(np.float64)

    def crumbs(self, cells: CellBounds, halvings: int) -> FloatArray:
        _, ymin, _, ymax = cells
        _, north = metres_per_degree((ymin + ymax) / 2)
        return (ymax - ymin) * north * (CRUMB * 0.5 ** (halvings // 2))

    def full(self) -> BoolArray:
        return np.zeros(self.count, np.bool_)

    def lengths(self) -> FloatArray:
        """Return each segment's metres, `(segments,)`, by the scale of the map at its middle."""
        east, north = metres_per_degree((self.ends[:, 1] + self.ends[:, 3]) / 2)
        dx, dy = (self.ends[:, 2] - self.ends[:, 0]) * east, (self.ends[:, 3] - self.ends[:, 1]) * north
        return np.sqrt(dx * dx + dy * dy)

    def sorted(self) -> tuple[Ragged, FloatArray]:
        """Sort segments by cell: return where each cell's begin, and the segments, `(segments, 4)`."""
        order = np.argsort(self.cells, kind="stable")
        return Ragged.of(self.cells[order], self.count), self.ends[order]


_FINE_DEGREES = 1e-5
"""Points of lines are rounded to a thousandth of this, about a millimetre."""
_POLAR = 89.0
"""Degrees of latitude beyond which a degree of longitude is taken to be as long as there."""
_CHUNK = 1 << 14
_NEAR = 2e-8
"""Degrees; twice what rounding moves a point."""


class LineDomain(MappedDomain):
    """Lines. Cells weigh by their metres; an event counts where the nearest line is nearest to it.

    Args:
        fields: names of longitude and latitude in raw and in synthetic records.
        shape: its lines.
        depth: halvings of the bounding box, 1 to 30.
        reach_m: metres from a line beyond which an event is outside.
    Raises: EngineInputError if the lines have no length, or the depth is too large for them or for float64.
    """

    def __init__(self, fields: tuple[str, str], shape: Shape, depth: int, *, reach_m: float) -> None:
        self._reach_m = reach_m
        self._segments = _segments(shape)
        south, north = self._segments[:, [1, 3]].min(), self._segments[:, [1, 3]].max()
        east_m, north_m = metres_per_degree(np.clip(np.array([south, north]), -_POLAR, _POLAR))
        # Degrees that are at least the reach wherever there are lines.
        self._margin = (1.001 * reach_m / float(east_m.min()), 1.001 * reach_m / float(north_m.min()))
        self._tree = shapely.STRtree(shapely.linestrings(self._segments.reshape(-1, 2, 2)))
        bounds = np.append(self._segments.reshape(-1, 2).min(axis=0), self._segments.reshape(-1, 2).max(axis=0))
        grid = grid_over(fields, bounds, depth)
        pieces = SegmentPieces(self._segments, np.zeros(len(self._segments), np.int64), 1)

        def usable(pieces: SegmentPieces, codes: IntArray) -> BoolArray:
            x, y = _middles(pieces)
            alive: BoolArray = np.isfinite(x)
            # Where an event at the middle would be counted: two lines may cross there, or run side by side.
            x, y, near = self._inside(x[alive], y[alive])
            alive[alive] = near & (grid.cells(x, y) == codes[alive])
            return alive

        tree, left, self.measure = grown(grid, pieces, usable=usable)
        self._rows, self._ends = left.sorted()
        self._until = np.cumsum(SegmentPieces(self._ends, np.zeros(len(self._ends), np.int64), 1).lengths())
        super().__init__(fields, tree, bounds, f"lines within {reach_m!r} m", middles=_middles(left))

    def outline(self) -> list[FloatArray]:
        detail = outline_detail(self.bounds)
        merged = shapely.line_merge(shapely.multilinestrings(self._segments.reshape(-1, 2, 2)))
        return [shapely.get_coordinates(line) for line in shapely.get_parts(shapely.simplify(merged, detail))]

    def _inside(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        placed_x, placed_y, near = x.copy(), y.copy(), np.zeros(len(x), np.bool_)
        for start in range(0, len(x), _CHUNK):
            rows = slice(start, start + _CHUNK)
            at, segment = self._candidates(x[rows], y[rows])
            at, px, py, metres = self._nearest(x[rows], y[rows], at, segment)
            reached = metres <= self._reach_m
            at = at[reached] + start
            placed_x[at], placed_y[at], near[at] = px[reached], py[reached], True
        return placed_x, placed_y, near

    def _candidates(self, x: FloatArray, y: FloatArray) -> tuple[IntArray, IntArray]:
        """Return pairs of points and segments that may be within reach, ordered by point and then by segment."""
        dx, dy = self._margin
        at, segment = self._tree.query(shapely.box(x - dx, y - dy, x + dx, y + dy))
        order = np.lexsort((segment, at))
        return at[order], segment[order]

    def _nearest(
        self, x: FloatArray, y: FloatArray, at: IntArray, segment: IntArray
    ) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        """Return which points have a candidate, the nearest place on a line, and how far it is, in metres."""
        x0, y0, x1, y1 = self._segments[segment].T
        east, north = (scale[at] for scale in metres_per_degree(np.clip(y, -_POLAR, _POLAR)))
        ax, ay, bx, by = (x[at] - x0) * east, (y[at] - y0) * north, (x1 - x0) * east, (y1 - y0) * north
        share = np.clip((ax * bx + ay * by) / (bx * bx + by * by), 0.0, 1.0)
        dx, dy = ax - share * bx, ay - share * by
        metres = np.sqrt(dx * dx + dy * dy)
        # The first of the nearest: a stable order by distance, of which each point's first row is taken.
        order = np.lexsort((metres, at))
        best = order[np.flatnonzero(np.diff(at[order], prepend=-1))]
        x0, y0, x1, y1 = self._segments[segment[best]].T
        px = np.clip(x0 + share[best] * (x1 - x0), np.minimum(x0, x1), np.maximum(x0, x1))
        py = np.clip(y0 + share[best] * (y1 - y0), np.minimum(y0, y1), np.maximum(y0, y1))
        return at[best], px, py, metres[best]

    def _drawn(self, pieces: IntArray, u: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        first, last = self._rows.starts[pieces], self._rows.starts[pieces + 1] - 1
        begin = np.where(first > 0, self._until[first - 1], 0.0)
        target = begin + u * (self._until[last] - begin)
        at = np.clip(np.searchsorted(self._until, target, side="right"), first, last)
        before = np.where(at > 0, self._until[at - 1], 0.0)
        share = np.clip((target - before) / (self._until[at] - before), 0.0, 1.0)
        x0, y0, x1, y1 = self._ends[at].T
        return x0 + share * (x1 - x0), y0 + share * (y1 - y0), np.ones(len(pieces), np.bool_)

    def _come_back(self, x: FloatArray, y: FloatArray, codes: IntArray) -> BoolArray:
        # What is so near to a line is moved onto it by less than `_NEAR`, and stays in a cell that it is well inside.
        rows, x, y = self._in_bounds(x, y)
        well = np.ones(len(rows), np.bool_)
        for dx in (-_NEAR, _NEAR):
            for dy in (-_NEAR, _NEAR):
                found, _, _ = self.tree.codes(self.grid.cells(x + dx, y + dy))
                well &= found == codes[rows]
        result = np.zeros(len(codes), np.bool_)
        result[rows] = well
        return result

    def _rounded(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        return rounded(x, _FINE_DEGREES), rounded(y, _FINE_DEGREES)


def _segments(shape: Shape) -> FloatArray:
    """Return all segments that have a length, `(segments, 4)`."""
    points, line = shapely.get_coordinates(shape.geometry, return_index=True)
    same = line[1:] == line[:-1]
    ends = np.concatenate([points[:-1][same], points[1:][same]], axis=1)
    # Both directions of a road are one road.
    backwards = (ends[:, 0] > ends[:, 2]) | ((ends[:, 0] == ends[:, 2]) & (ends[:, 1] > ends[:, 3]))
    ends = np.unique(np.where(backwards[:, None], ends[:, [2, 3, 0, 1]], ends), axis=0)
    long = (ends[:, 0] != ends[:, 2]) | (ends[:, 1] != ends[:, 3])
    result: FloatArray = ends[long]
    return result


def _middles(pieces: SegmentPieces) -> tuple[FloatArray, FloatArray]:
    """Return the middle of each piece's longest segment, NaN where there is none."""
    x, y = np.full(pieces.count, np.nan), np.full(pieces.count, np.nan)
    lengths = pieces.lengths()
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    # Of what is written twice the last, the longest, stays.
    x[pieces.cells[order]] = (pieces.ends[order, 0] + pieces.ends[order, 2]) / 2
    y[pieces.cells[order]] = (pieces.ends[order, 1] + pieces.ends[order, 3]) / 2
    return x, y


def map_of(shape: Shape, fields: tuple[str, str], depth: int, *, reach_m: float = 1.0) -> LineDomain | PolygonDomain:
    """Return the domain of a shape; `reach_m` is of lines."""
    return LineDomain(fields, shape, depth, reach_m=reach_m) if shape.lines else PolygonDomain(fields, shape, depth)
