"""Regions as people give them: a box, or a file or text of GeoJSON or WKT; as WKB for the engine that is asked."""

from __future__ import annotations

from pathlib import Path

import orjson
import shapely
from shapely.errors import GEOSException
from shapely.geometry import shape

from engines.core.answers.contract import QueryError

FIX = (
    'Fix: name a file of GeoJSON or WKT with polygons, or write WKT such as "POLYGON((13.3 52.4, 13.5 52.4, 13.5 52.6, '
    '13.3 52.4))".'
)


def box(text: str) -> bytes:
    """Of `xmin,ymin,xmax,ymax`. Raises: QueryError."""
    try:
        xmin, ymin, xmax, ymax = (float(part) for part in text.split(","))
    except ValueError:
        raise QueryError(f"--box {text!r} is no box. Fix: four numbers, --box xmin,ymin,xmax,ymax.") from None
    if not (xmin < xmax and ymin < ymax):
        raise QueryError(f"--box {text!r} is empty. Fix: --box xmin,ymin,xmax,ymax with xmin < xmax and ymin < ymax.")
    found: bytes = shapely.box(xmin, ymin, xmax, ymax).wkb
    return found


def region(given: str) -> bytes:
    """Of a file's name, or of the text itself. Raises: QueryError where it is no area."""
    try:
        path = Path(given)
        text = path.read_text(encoding="utf-8") if path.is_file() else given
    except (OSError, ValueError):
        text = given
    if text == given and not any(sign in given for sign in "({"):
        raise QueryError(f"there is no file {given}. {FIX}")
    try:
        found = shapely.union_all(_geojson(text) if text.lstrip().startswith("{") else [shapely.from_wkt(text)])
    except (GEOSException, ValueError, KeyError, TypeError, AttributeError, orjson.JSONDecodeError):
        raise QueryError(f"the region is neither GeoJSON nor WKT. {FIX}") from None
    if not found.is_valid:
        found = shapely.make_valid(found)
    if not found.area > 0:
        raise QueryError(f"the region has no area. {FIX}")
    wkb: bytes = found.wkb
    return wkb


def _geojson(text: str) -> list[shapely.Geometry]:
    told = orjson.loads(text)
    features = told["features"] if told["type"] == "FeatureCollection" else [told]
    return [shape(each["geometry"] if each["type"] == "Feature" else each) for each in features]
