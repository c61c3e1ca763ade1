"""A public map that trips keep to, roads or land: where a grid's cells hold a part of it, and places on it.

Knows no data but what it is handed. What a private point becomes depends on that point and on the public map only, so a
trip still weighs what it weighed; cells without a part of the map are structural zeros, which cost nothing.
A record on the map is one that `engines.spatial.domain` accepts: inside polygons, or within reach of lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely

from engines.core.contract import Columns
from engines.core.noise import aggregate
from engines.spatial.domain.geojson import parsed, shape_of
from engines.spatial.domain.lines import map_of
from engines.trajectory.grid import Grid
from engines.trajectory.trips import LATTICE, Trips
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.errors import EngineInputError
from schemas.events import Reason

DEPTH = 12
"""Halvings of the tree in which a record is looked up; it only decides on speed."""
HAIR = 1e-7
"""Share of a cell by which parts are kept off its upper edges, and polygons off their borders."""
_CHUNK = 1 << 18
Bounds = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, eq=False)
class GroundCells:
    """The map over one grid. Public.

    Attributes:
        there: `(cells,)` True where a cell holds a part of the map.
        shapes: `(cells,)` that part, with longitudes and latitudes; None elsewhere.
        nearest: `(cells,)` the cell itself, or the nearest one that holds a part.
    """

    there: BoolArray
    shapes: Any
    nearest: IntArray


class Ground:
    """Polygons or lines in a rectangle.

    Args:
        content: GeoJSON. bounds: of the trips' domain, in degrees. reach_m: of lines, beyond which a record is off it.
    Raises: EngineInputError if the map is not one, or has no part inside of the bounds.
    """

    def __init__(self, content: bytes, bounds: Bounds, *, fields: tuple[str, str], reach_m: float) -> None:
        shape = shape_of(parsed(content))
        xmin, ymin, xmax, ymax = bounds
        self._bounds, self._lines = bounds, shape.lines
        parts = shapely.get_parts(shape.geometry)
        inside = shapely.intersection(parts, shapely.box(xmin, ymin, xmax, ymax))
        self._parts = shapely.get_parts(shapely.get_parts(inside))
        if not self._kept(self._parts).any():
            raise EngineInputError("the map has no part inside of the bounds: check both, longitudes first")
        self._records = map_of(shape, fields, DEPTH, reach_m=reach_m)
        self._over = lru_cache(maxsize=4)(self._cut)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Everything that decides what records and cells mean."""
        return (self._bounds, *self._records.identity)

    def outside(self, columns: Columns) -> BoolArray:
        """Tell which records are off the map, `(records,)`."""
        reasons = self._records.encode(columns)[1]
        off: BoolArray = reasons == Reason.OUTSIDE_DOMAIN
        return off

    def over(self, grid: Grid) -> GroundCells:
        """Return the map, cut by the cells of a grid; worked out once."""
        return self._over(grid)

    @aggregate
    def moved(self, trips: Trips, grid: Grid) -> Trips:
        """Move points of private trips off the map's cells to the middle of the nearest cell with a part of it."""
        cells = grid.cells(trips.x, trips.y)
        nearest = self.over(grid).nearest[cells]
        off = nearest != cells
        width = LATTICE / grid.side
        x = np.where(off, ((nearest // grid.side + 0.5) * width).astype(np.int64), trips.x)
        y = np.where(off, ((nearest % grid.side + 0.5) * width).astype(np.int64), trips.y)
        return Trips(x, y, trips.offsets)

    def placed(self, trips: Trips, grid: Grid) -> tuple[FloatArray, FloatArray]:
        """Return longitudes and latitudes of synthetic points, each on the nearest place of its cell's part.

        Args: trips: all in cells with a part of the map.
        """
        shapes = self.over(grid).shapes
        x, y = trips.middles(self._bounds)
        cells = grid.cells(trips.x, trips.y)
        for low in range(0, len(x), _CHUNK):
            rows = slice(low, low + _CHUNK)
            ways = shapely.shortest_line(shapes[cells[rows]], shapely.points(x[rows], y[rows]))
            ends = shapely.get_coordinates(ways)[::2]
            x[rows], y[rows] = ends.T
        return x, y

    def _kept(self, parts: Any) -> BoolArray:
        """Tell which parts are more than a touch."""
        sizes = shapely.length(parts) if self._lines else shapely.area(parts)
        dimension = 1 if self._lines else 2
        kept: BoolArray = (shapely.get_dimensions(parts) == dimension) & (sizes > 0)
        return kept

    def _cut(self, grid: Grid) -> GroundCells:
        xmin, ymin, xmax, ymax = self._bounds
        # A hair inside of upper edges, a lattice step inside of lower ones: places on a part come back to its cell.
        column, row = np.divmod(np.arange(grid.size), grid.side)
        step = grid.side / LATTICE
        west, south = column + step, row + step
        east, north = column + 1 - HAIR, row + 1 - HAIR
        wide, high = (xmax - xmin) / grid.side, (ymax - ymin) / grid.side
        boxes = shapely.box(xmin + west * wide, ymin + south * high, xmin + east * wide, ymin + north * high)
        part, cell = shapely.STRtree(boxes).query(self._parts, predicate="intersects")
        cut = shapely.intersection(self._parts[part], boxes[cell])
        if not self._lines:
            # A hair inside of the border as well: no rounding puts a place on it outside.
            cut = shapely.buffer(cut, -HAIR * min(wide, high), quad_segs=1)
        cuts, at = shapely.get_parts(cut, return_index=True)
        kept = self._kept(cuts)
        cuts, owners = cuts[kept], cell[at[kept]]
        order = np.argsort(owners, kind="stable")
        shapes: npt.NDArray[Any] = np.full(grid.size, None, object)
        group = shapely.multilinestrings if self._lines else shapely.multipolygons
        where, index = np.unique(owners[order], return_inverse=True)
        shapes[where] = group(cuts[order], indices=index)
        there = np.zeros(grid.size, np.bool_)
        there[where] = True
        return GroundCells(there, shapes, _nearest(there, grid))


def _nearest(there: BoolArray, grid: Grid) -> IntArray:
    """Return each cell's nearest one that is there, `(cells,)`, the first of equals."""
    cells = np.flatnonzero(there)
    every = np.arange(grid.size)
    away = (every[:, None] // grid.side - cells // grid.side) ** 2 + (
        every[:, None] % grid.side - cells % grid.side
    ) ** 2
    nearest: IntArray = cells[np.argmin(away, axis=1)]
    return nearest


@lru_cache(maxsize=8)
def ground_of(content: bytes, bounds: Bounds, fields: tuple[str, str], reach_m: float) -> Ground:
    """Make the ground of a map, once for each: a large one takes seconds."""
    return Ground(content, bounds, fields=fields, reach_m=reach_m)
