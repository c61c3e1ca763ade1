"""Polygons as a domain: countries, a city, land; holes, many parts, across the antimeridian."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import shapely

from engines.spatial.domain.box import BoxDomain
from engines.spatial.domain.chords import Chords
from engines.spatial.domain.geojson import Shape
from engines.spatial.domain.growing import bounds_of, grown
from engines.spatial.domain.mapped import MappedDomain
from engines.spatial.domain.rings import RingPieces
from schemas.arrays import BoolArray, FloatArray, IntArray


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
        self._middle_x, self._middle_y = middles[0]
        super().__init__(fields, tree, bounds, "polygons")

    @property
    def nbytes(self) -> int:
        """Of memory, beside the polygons themselves."""
        return self.tree.nbytes + self._chords.nbytes + self._middle_x.nbytes + self._middle_y.nbytes

    def remarks(self) -> Iterator[str]:
        """See `MappedDomain`."""
        if self._repaired:
            yield f"{self._repaired} polygons of its map cross themselves; they were cut into parts where they do."

    def outline(self) -> list[FloatArray]:
        """See `MappedDomain`."""
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

    def _middles(self, pieces: IntArray) -> tuple[FloatArray, FloatArray]:
        return self._middle_x[pieces], self._middle_y[pieces]


def outline_detail(bounds: tuple[float, float, float, float]) -> float:
    """Degrees that no drawing of the whole shows."""
    return max(bounds[2] - bounds[0], bounds[3] - bounds[1]) / 1000


def grid_over(fields: tuple[str, str], bounds: FloatArray, depth: int) -> BoxDomain:
    """The grid of a shape: its bounding box, and a little more, since a box does not hold its upper edges."""
    west, south, east, north = bounds.tolist()
    # Of what is flat, a grid as high as a metre.
    wide, high = max(east - west, 1e-5), max(north - south, 1e-5)
    return BoxDomain(*fields, (west, south, west + wide * (1 + 2.0**-20), south + high * (1 + 2.0**-20)), depth)


def _rings(shape: Shape) -> RingPieces:
    """All rings as one piece, shells counter-clockwise and holes clockwise."""
    polygons = shapely.orient_polygons(shapely.get_parts(shape.geometry), exterior_cw=False)
    points, ring = shapely.get_coordinates(shapely.get_rings(polygons), return_index=True)
    # The last vertex of a ring is its first one.
    open_rings = np.append(ring[1:] == ring[:-1], False)
    sizes = np.bincount(ring[open_rings])
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    x, y = points[open_rings].T
    return RingPieces(x, y, starts, np.zeros(len(sizes), np.int64), np.zeros(1, np.int64))
