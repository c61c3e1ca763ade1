"""Where rows of an exported table are: points of synthetic records, rectangles of measured cells; as WKB and GeoJSON.

Pure. Source: the GeoParquet 1.1.0 and GeoJSON (RFC 7946) specifications.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import shapely

from schemas.errors import PrivstreamError

COLUMN = "geometry"


@dataclass(frozen=True, slots=True)
class Placing:
    """How rows are placed.

    Attributes:
        fields: x and y of points, or the one field with a rectangle `[xmin, ymin, xmax, ymax]`.
        in_degrees: longitudes and latitudes on WGS 84; else the units are the stream's own, and unknown here.
    """

    fields: tuple[str, ...]
    in_degrees: bool

    def of(self, table: pa.Table) -> np.ndarray:
        """`(rows,)` shapely geometries; None where a row has no place."""
        columns = [table.column(field).to_pylist() for field in self.fields]
        if len(columns) == 2:
            x, y = (np.array([np.nan if v is None else v for v in column], np.float64) for column in columns)
            points: np.ndarray = shapely.points(x, y)
            points[np.isnan(x) | np.isnan(y)] = None
            return points
        return np.array([None if cell is None else rectangle(cell) for cell in columns[0]], object)


def rectangle(cell: Sequence[float]) -> Any:
    """A cell as a polygon; two of them where it crosses the antimeridian, its west above its east (RFC 7946, 5.2).

    >>> rectangle([0.0, 0.0, 2.0, 1.0]).area, rectangle([170.0, 0.0, -170.0, 1.0]).area
    (2.0, 20.0)
    """
    west, south, east, north = cell
    if west <= east:
        return shapely.box(west, south, east, north)
    return shapely.MultiPolygon([shapely.box(west, south, 180.0, north), shapely.box(-180.0, south, east, north)])


def geoparquet(table: pa.Table, places: Placing) -> pa.Table:
    """The table with a column of WKB and the metadata `geo` of GeoParquet 1.1.0."""
    shapes = places.of(table)
    there = shapes[[shape is not None for shape in shapes]]
    named = sorted({shape.geom_type for shape in there})
    column: dict[str, Any] = {"encoding": "WKB", "geometry_types": named}
    if not places.in_degrees:
        column["crs"] = None  # undefined; left out it would be OGC:CRS84
    if len(there):
        column["bbox"] = shapely.total_bounds(there).tolist()
    geo = {"version": "1.1.0", "primary_column": COLUMN, "columns": {COLUMN: column}}
    wkb = pa.array([None if shape is None else shape.wkb for shape in shapes], pa.binary())
    return table.append_column(COLUMN, wkb).replace_schema_metadata({"geo": orjson.dumps(geo)})


def geojson(table: pa.Table, places: Placing) -> bytes:
    """A FeatureCollection: all columns but those of the place are properties.

    Raises: PrivstreamError where coordinates are not degrees, which is all that GeoJSON knows.
    """
    if not places.in_degrees:
        raise PrivstreamError(
            "GeoJSON holds longitudes and latitudes alone (RFC 7946), and neither the names nor the bounds of this "
            "domain's fields say that these are. Fix: --format geoparquet, and tell your program the coordinate system."
        )
    kept = [name for name in table.column_names if name not in places.fields]
    shapes = places.of(table)
    rows = table.select(kept).to_pylist() if kept else [{} for _ in shapes]
    features = [
        {"type": "Feature", "geometry": None if shape is None else shapely.geometry.mapping(shape), "properties": row}
        for shape, row in zip(shapes, rows, strict=True)
    ]
    return orjson.dumps({"type": "FeatureCollection", "features": features}, option=orjson.OPT_APPEND_NEWLINE)
