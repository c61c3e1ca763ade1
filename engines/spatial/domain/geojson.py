"""From GeoJSON to polygons and lines that can be relied on. Public input; nothing here sees an event.

Source: RFC 7946. Features, collections and bare geometries; points are refused. Longitudes may go on beyond 180.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely

from schemas.arrays import FloatArray
from schemas.errors import EngineInputError

MOST_VERTICES = 5_000_000
_POLYGONS, _LINES = (3, 6), (1, 2, 5)
_CUT = "cut it at the antimeridian into parts (RFC 7946, 3.1.9), or write longitudes that go on beyond 180"


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Attributes:

    geometry: one valid geometry of all polygons, prepared, or an array of lines; no wider than one turn. Longitudes may
        go on beyond 180.
    lines: True for lines. repaired: how many polygons crossed themselves, and were cut where they do.
    """

    geometry: Any
    lines: bool
    repaired: int


def parsed(content: bytes | str) -> Any:
    """Return the geometries of a GeoJSON document, an array. Raises: EngineInputError."""
    try:
        read = shapely.from_geojson(content)
    except shapely.GEOSException:
        raise EngineInputError("this is not GeoJSON: write a FeatureCollection, a Feature or a geometry") from None
    return shapely.get_parts(read) if shapely.get_type_id(read) == 7 else np.array([read])


def shape_of(geometries: Any) -> Shape:
    """Make one shape of all polygons, or of all lines.

    Raises: EngineInputError for what is empty, mixed, too large, not finite, or not on the globe.
    """
    parts = shapely.get_parts(shapely.get_parts(np.asarray(geometries)))
    parts = parts[~(shapely.is_missing(parts) | shapely.is_empty(parts))]
    if not len(parts):
        raise EngineInputError("the geometry is empty: it must hold polygons or lines")
    kinds = shapely.get_type_id(parts)
    polygons, lines = np.isin(kinds, _POLYGONS), np.isin(kinds, _LINES)
    if not (polygons.all() or lines.all()):
        raise EngineInputError("the geometry must hold polygons alone or lines alone: take the other features out")
    _check(shapely.get_coordinates(parts), edges=_edges(parts))
    parts = shapely.force_2d(parts)
    repaired = 0
    if polygons.all():
        bad = ~shapely.is_valid(parts)
        repaired = int(bad.sum())
        if repaired:
            parts[bad] = shapely.make_valid(parts[bad], method="structure", keep_collapsed=False)
            parts = shapely.get_parts(parts)
            parts = parts[shapely.area(parts) > 0]
            if not len(parts):
                raise EngineInputError("the geometry has no area: its polygons are flat")
    elif not (shapely.length(parts) > 0).any():
        raise EngineInputError("the geometry has no length: its lines begin where they end")
    parts = _unwrapped(parts)
    if lines.all():
        return Shape(parts, True, 0)
    whole = shapely.union_all(parts)
    shapely.prepare(whole)
    return Shape(whole, False, repaired)


def _edges(parts: Any) -> FloatArray:
    """Return the edges of rings and lines, `(edges, 2, 2)`."""
    rings = shapely.get_parts(shapely.boundary(parts)) if shapely.get_type_id(parts[0]) in _POLYGONS else parts
    points, ring = shapely.get_coordinates(rings, return_index=True)
    same = ring[1:] == ring[:-1]
    return np.stack([points[:-1][same], points[1:][same]], axis=1)


def _check(points: FloatArray, *, edges: FloatArray) -> None:
    if len(points) > MOST_VERTICES:
        raise EngineInputError(f"the geometry has more than {MOST_VERTICES:,} vertices: simplify it")
    if not np.isfinite(points).all():
        raise EngineInputError("the geometry has coordinates that are not finite numbers: fix them at their source")
    if (np.abs(points[:, 1]) > 90).any():
        swapped = (np.abs(points[:, 0]) <= 90).all() and (np.abs(points[:, 1]) <= 180).all()
        reason = "latitude first, longitude second" if swapped else "not longitudes and latitudes in degrees"
        fix = "swap them" if swapped else "transform them to WGS 84 (EPSG:4326)"
        raise EngineInputError(f"the geometry's coordinates are {reason}: {fix}")
    if (np.abs(points[:, 0]) > 540).any() or np.ptp(points[:, 0]) > 720:
        raise EngineInputError("the geometry's coordinates are not longitudes: transform them to WGS 84 (EPSG:4326)")
    long = np.abs(edges[:, 1, 0] - edges[:, 0, 0])
    # Edges round the whole globe close polygons at a pole or on a world map, and are meant so.
    if ((long > 180) & (long < 360)).any():
        raise EngineInputError(f"an edge of the geometry is longer than 180 degrees of longitude: {_CUT}")


def _unwrapped(parts: Any) -> Any:
    """Move parts by whole turns to where together they are narrowest."""
    west, _, east, _ = shapely.bounds(parts).T
    begin = west - 360 * np.floor((west + 180) / 360)
    order = np.argsort(begin, kind="stable")
    reach = np.maximum.accumulate((begin + (east - west))[order])
    begin = begin[order]
    # What is empty before each part; the last one reaches round the globe to the first.
    gaps = begin - np.maximum(np.concatenate([[-np.inf], reach[:-1]]), reach[-1] - 360)
    best = int(np.argmax(gaps))
    natural = float(np.ptp(np.concatenate([west, east]))) if west.min() >= -180 and east.max() <= 180 else np.inf
    if 360 - gaps[best] > 0.9 * natural:
        return parts
    if gaps[best] < 0:
        return _cut_up(parts)
    return _moved(parts, -360 * np.floor((west - begin[best]) / 360))


def _moved(parts: Any, by: FloatArray) -> Any:
    """Move each part east by its own degrees."""
    points, owner = shapely.get_coordinates(parts, return_index=True)
    points[:, 0] += by[owner]
    moved = parts.copy()
    return shapely.set_coordinates(moved, points)


def _cut_up(parts: Any) -> Any:
    """Cut parts at the antimeridian, and move those beyond it into -180 to 180."""
    pieces = []
    for turn in (-2, -1, 0, 1, 2):
        inside = shapely.intersection(parts, shapely.box(360 * turn - 180, -90, 360 * turn + 180, 90))
        inside = shapely.get_parts(inside[~shapely.is_empty(inside)])
        pieces.append(_moved(inside, np.full(len(inside), -360.0 * turn)))
    return np.concatenate(pieces)
