"""`kind = "geojson"`: polygons or lines on a map, from a public file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import orjson
from pydantic import AfterValidator, Field

from schemas.config.domain.box import WHERE, PlanarDomainSection
from schemas.config.domain.common import Each, Question
from schemas.config.values import Number, PublicFile, PublicFileAt, must, refusal
from schemas.errors import ConfigProblem

_TYPES = (
    "FeatureCollection",
    "Feature",
    "GeometryCollection",
    "Polygon",
    "MultiPolygon",
    "LineString",
    "MultiLineString",
)
MOST_REACH_M = 100_000.0


def _geojson(file: PublicFile) -> PublicFile:
    """What can be told without geometry: the engine looks at the shapes when it is built."""
    fix = "write a FeatureCollection of polygons, or one of lines (RFC 7946)"
    try:
        document = orjson.loads(file.content)
    except orjson.JSONDecodeError:
        raise refusal("is not JSON", fix) from None
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "Topology":
        raise refusal("is TopoJSON, not GeoJSON", "convert it, for example with ogr2ogr or topo2geo")
    if kind not in _TYPES:
        raise refusal("is not GeoJSON of polygons or lines", fix)
    if kind == "FeatureCollection" and not document.get("features"):
        raise refusal("holds no features", fix)
    crs = document.get("crs")
    name = str(crs.get("properties", {}).get("name", "")) if isinstance(crs, dict) else ""
    if name and not name.endswith(("CRS84", "EPSG::4326", "EPSG:4326", "4269")):
        raise refusal("is not in longitude and latitude (WGS 84)", "transform it to EPSG:4326")
    return file


ReachM = Annotated[
    Number,
    must(
        lambda value: 0 < value <= MOST_REACH_M,
        f"must be above 0 and at most {MOST_REACH_M:,.0f} metres",
        "write 50 for the accuracy of GPS",
    ),
]
"""Type of a key that says how far from lines an event may be, in metres."""
GeoJsonFileAt = Annotated[PublicFileAt, AfterValidator(_geojson)]
"""Type of a key that names a GeoJSON file."""


def named_features(file: PublicFile, name_property: str) -> Iterator[tuple[str, bytes]]:
    """Name and GeoJSON of each feature that has a name; numbers are taken as they are written."""
    document = orjson.loads(file.content)
    for feature in document.get("features", [document]):
        properties = feature.get("properties") if isinstance(feature, dict) else None
        name = properties.get(name_property) if isinstance(properties, dict) else None
        if isinstance(name, (str, int)) and not isinstance(name, bool) and name != "":
            yield str(name), orjson.dumps(feature.get("geometry"))


class GeoJsonDomainSection(PlanarDomainSection):
    """`kind = "geojson"`: events in polygons (their border belongs to them), or near lines, onto which they are moved.

    `x` is the longitude and `y` the latitude, in degrees.
    """

    kind: Literal["geojson"] = "geojson"
    file: GeoJsonFileAt = Field(examples=["new_york.geojson"])
    """GeoJSON of polygons alone or lines alone; its path is relative to the configuration."""
    reach_m: ReachM = Field(50.0, examples=[50])
    """Of lines: metres from the nearest one beyond which an event is outside."""

    @property
    def in_degrees(self) -> bool:
        return True

    @classmethod
    def questions(cls) -> tuple[Question | Each, ...]:
        return (*WHERE, Question(key="file", kind="file", text="Which GeoJSON file has the polygons, or the lines?"))

    def problems(self) -> Iterator[ConfigProblem]:
        """Coordinates the wrong way round, and what any plane has."""
        if "lat" in self.x.lower() and any(part in self.y.lower() for part in ("lon", "lng")):
            yield ConfigProblem("x", f'"{self.x}" sounds like the latitude', "x is the longitude: swap x and y")
        yield from super().problems()
