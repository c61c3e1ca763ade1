"""Keys of engine `spatial`: its domains `box`, `geojson` (polygons or lines on a map) and `zones`, and its options."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Literal

import orjson
from pydantic import AfterValidator, Field, StrictInt

from schemas.config.domain import NUMBERS, TEXTS, DeletableDomainSection, Question
from schemas.config.engines.options import OnlyIn, OptionsSection, Share
from schemas.config.values import FieldName, NotNegative, Number, PublicFile, PublicFileAt, json_in, must, refusal
from schemas.errors import ConfigProblem

_HALVINGS = 15  # splits of one axis at the greatest depth, 30


def check_box(bounds: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """Return the bounds. Refuse a rectangle that is inverted, or too small for the deepest cells."""
    fix = "write bounds = [xmin, ymin, xmax, ymax] with xmin < xmax and ymin < ymax"
    for name, low, high in (("x", bounds[0], bounds[2]), ("y", bounds[1], bounds[3])):
        if low > high:
            raise refusal(f"are inverted: {name}min is above {name}max", fix)
        # A cell of the deepest level needs 2**14 floats, so that its points stay inside it after rounding.
        width = high - low
        if not math.isfinite(width) or width / 2**_HALVINGS < 2**14 * math.ulp(max(abs(low), abs(high))):
            raise refusal(f"are degenerate: {name}min and {name}max are too close together", fix)
    return bounds


def are_degrees(fields: tuple[str, str], bounds: tuple[float, float, float, float]) -> bool:
    """Return whether coordinates are longitude and latitude, judged by their names and bounds.

    >>> are_degrees(("lon", "lat"), (-74.05, 40.60, -73.75, 40.90)), are_degrees(("x", "y"), (0.0, 0.0, 1.0, 1.0))
    (True, False)
    """
    x, y = (field.lower() for field in fields)
    possible = bounds[0] >= -180 and bounds[2] <= 360 and bounds[1] >= -90 and bounds[3] <= 90
    return possible and ("lon" in x or "lng" in x) and "lat" in y


XField = Annotated[FieldName, Question(field_kinds=NUMBERS, hints=("longitude", "lon", "lng", "x"))]
YField = Annotated[FieldName, Question(field_kinds=NUMBERS, hints=("latitude", "lat", "y"))]
BoxBounds = Annotated[
    tuple[Number, Number, Number, Number], AfterValidator(check_box), Question(public="box", field_keys=("x", "y"))
]


class PlanarDomainSection(DeletableDomainSection):
    """A domain of points: two coordinates in the units of the raw fields."""

    x: XField = Field(examples=["longitude"])
    """Field with the first coordinate, such as the longitude."""
    y: YField = Field(examples=["latitude"])
    """Field with the second coordinate, such as the latitude."""

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.x, self.y)

    @property
    def coordinates(self) -> tuple[str, str]:
        return self.x, self.y


class BoxDomainSection(PlanarDomainSection):
    """`kind = "box"`: a rectangle that excludes its upper edges, in the units of the raw fields."""

    kind: Literal["box"] = "box"
    bounds: BoxBounds = Field(examples=[[-74.05, 40.60, -73.75, 40.90]])
    """Rectangle in which events lie, `[xmin, ymin, xmax, ymax]`; others are refused."""

    @property
    def in_degrees(self) -> bool:
        return are_degrees((self.x, self.y), self.bounds)


_TYPES = (
    "FeatureCollection",
    "Feature",
    "GeometryCollection",
    "Polygon",
    "MultiPolygon",
    "LineString",
    "MultiLineString",
)
MAX_REACH_M = 100_000.0


def geojson(file: PublicFile) -> PublicFile:
    """Return the file. Refuse one that is not a map, without a look at its shapes, which the engine checks."""
    fix = "write a FeatureCollection of polygons, or one of lines (RFC 7946)"
    document = json_in(file, fix)
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
        lambda value: 0 < value <= MAX_REACH_M,
        f"must be above 0 and at most {MAX_REACH_M:,.0f} metres",
        "write 50 for the accuracy of GPS",
    ),
]
"""Type of a key for the largest distance of an event from lines, in metres."""
GeoJsonFileAt = Annotated[PublicFileAt, AfterValidator(geojson)]
"""Type of a key that names a GeoJSON file."""


def named_features(file: PublicFile, name_property: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the geometry, as GeoJSON, of each feature that has a text or an integer as its name."""
    document = orjson.loads(file.content)
    for feature in document.get("features", [document]):
        properties = feature.get("properties") if isinstance(feature, dict) else None
        name = properties.get(name_property) if isinstance(properties, dict) else None
        if isinstance(name, (str, int)) and not isinstance(name, bool) and name != "":
            yield str(name), orjson.dumps(feature.get("geometry"))


def unnamed_features(file: PublicFile, name_property: str) -> int:
    """Return how many features `named_features` leaves out; of a file that holds none at all, such as a list, none."""
    document = orjson.loads(file.content)
    every = document.get("features", [document]) if isinstance(document, dict) else ()
    return len(every) - sum(1 for _ in named_features(file, name_property)) if every else 0


class GeoJsonDomainSection(PlanarDomainSection):
    """`kind = "geojson"`: events in polygons, which include their borders, or near lines, onto which they are moved.

    `x` is the longitude and `y` the latitude, in degrees.
    """

    kind: Literal["geojson"] = "geojson"
    file: GeoJsonFileAt = Field(examples=["new_york.geojson"])
    """GeoJSON either of polygons or of lines; its path is relative to the configuration."""
    reach_m: ReachM = Field(50.0, examples=[50])
    """With lines: largest distance of an event from the nearest line, in metres; events beyond it are outside."""

    @property
    def in_degrees(self) -> bool:
        return True

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse swapped coordinates."""
        if "lat" in self.x.lower() and any(part in self.y.lower() for part in ("lon", "lng")):
            yield ConfigProblem("x", f'"{self.x}" seems to be the latitude', "swap x and y: x is the longitude")
        yield from super().problems()


MAX_ZONES = 100_000


class ZonesDomainSection(DeletableDomainSection):
    """`kind = "zones"`: events name a zone. An event with a name that is not in the table is outside.

    The table is `zones`, with or without `measures`, or the features of `file`.
    """

    kind: Literal["zones"] = "zones"
    field: Annotated[
        FieldName, Question(field_kinds=TEXTS, hints=("zone", "district", "neighborhood", "place", "area"))
    ] = Field(examples=["zone"])
    """Field of the raw event that holds the zone's name, a text."""
    zones: Annotated[
        tuple[Annotated[str, Field(strict=True)], ...] | None,
        Field(min_length=1, max_length=MAX_ZONES),
        Question(public="values", field_keys=("field",)),
    ] = Field(None, examples=[["north", "south"]])
    """All names, neighbours next to each other: adjacent zones with few events share a cell."""
    measures: tuple[NotNegative, ...] | None = Field(None, examples=[[12.5, 3.0]])
    """Weight of each zone, such as its area; 0 removes a zone; absent: all zones have the same weight."""
    file: GeoJsonFileAt | None = Field(None, examples=["zones.geojson"])
    """GeoJSON of polygons or lines, with names in `name_property`; the weight of a zone is its area or length."""
    name_property: Annotated[str, Field(strict=True, min_length=1, max_length=256)] = Field("name", examples=["name"])
    """Property of the features of `file` that holds the name of the zone."""
    x: FieldName | None = Field(None, examples=["longitude"])
    """With `file`: field of synthetic records for the longitude of a place in their zone."""
    y: FieldName | None = Field(None, examples=["latitude"])
    """With `file` and `x`: field of synthetic records for the latitude of that place."""

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field,) if self.x is None or self.y is None else (self.field, self.x, self.y)

    @property
    def coordinates(self) -> tuple[str, str] | None:
        return None if self.x is None or self.y is None else (self.x, self.y)

    @property
    def in_degrees(self) -> bool:
        return self.file is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all zones, without duplicates if they come from a file."""
        if self.file is not None:
            return tuple(dict.fromkeys(name for name, _ in named_features(self.file, self.name_property)))
        return self.zones or ()

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse no table or two tables, and a table that is not valid."""
        if (self.zones is None) == (self.file is None):
            reason = "missing" if self.zones is None else "are listed, and a file is named as well"
            yield ConfigProblem("zones", reason, "either write zones = [...], or name a file")
        elif self.zones is not None:
            yield from self._listed(self.zones)
        elif not self.names:
            yield ConfigProblem(
                "name_property",
                f'no feature of the file has a text in "{self.name_property}"',
                "name the property of the features that holds the zone's name",
            )
        if (self.x is None) != (self.y is None):
            yield ConfigProblem(
                "y" if self.y is None else "x", "missing: the other coordinate is named", "write both x and y"
            )
        elif self.x is not None and self.file is None:
            yield ConfigProblem("x", "needs a file with the outlines of the zones", "name a file, or remove x and y")
        yield from super().problems()

    def _listed(self, zones: tuple[str, ...]) -> Iterator[ConfigProblem]:
        if len(set(zones)) < len(zones):
            yield ConfigProblem("zones", "name one zone twice", "write every zone once")
        if not all(zones):
            yield ConfigProblem("zones", "hold an empty text", "name every zone")
        if self.measures is None:
            return
        if len(self.measures) != len(zones):
            reason = f"are {len(self.measures)} for {len(zones)} zones"
            yield ConfigProblem("measures", reason, "write one for each zone, in their order")
        elif not any(self.measures):
            yield ConfigProblem("measures", "are all 0, which leaves no zone", "write the weight of each zone")


CounterName = Literal[
    "simple",
    "block8",
    "block",
    "tree",
    "kary",
    "hybrid",
    "unbounded-block-paper",
    "unbounded-block",
    "unbounded-kary",
]
"""Names of the counters under pure DP in `engines.core.counters`; a test compares the two lists."""
NEED_HORIZON = frozenset({"block", "tree", "kary"})


def horizon_problems(counter: CounterName, horizon: int | None) -> Iterator[ConfigProblem]:
    """Refuse the horizon of a counter if it is missing or has no effect."""
    if counter in NEED_HORIZON and horizon is None:
        yield ConfigProblem(
            "horizon",
            f'missing: counter = "{counter}" is calibrated for a number of releases',
            'set horizon = 1000, for example, or counter = "unbounded-kary", which needs none',
        )
    if horizon is not None and counter not in NEED_HORIZON:
        yield ConfigProblem("horizon", f'counter = "{counter}" needs no horizon', "remove the key")


class SpatialOptions(OptionsSection):
    """`[streams.options]` of engine `spatial`."""

    depth: StrictInt = Field(18, ge=2, le=30, examples=[18])
    """Number of levels of the tree below its root."""
    initial_steps: StrictInt = Field(1, ge=1, le=1_000_000, examples=[20])
    """Number of first steps that are gathered into one release, that of step initial_steps - 1."""
    split: Annotated[Share, OnlyIn("paper")] = Field(Decimal("0.5"), examples=[0.5])
    """Mode `paper`: share of the event budget for the partition, exact; the rest is for the counts."""
    threshold: Annotated[NotNegative, OnlyIn("paper")] = Field(0.0, examples=[0])
    """Mode `paper`: biased count, in events, above which a cell is split."""
    counter: Annotated[CounterName, OnlyIn("paper")] = Field("simple", examples=["simple"])
    """Mode `paper`: the continual counter of each leaf."""
    horizon: Annotated[StrictInt | None, OnlyIn("paper")] = Field(None, ge=1, le=1_000_000_000, examples=[1000])
    """Mode `paper`: number of releases for a counter that is calibrated for one; the stream stops after them."""
    max_leaves: Annotated[StrictInt, OnlyIn("default")] = Field(4096, ge=2, le=1_048_576, examples=[4096])
    """Mode `default`: largest number of leaves; work and memory of a step are proportional to it."""

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse a horizon that does not fit the counter."""
        yield from horizon_problems(self.counter, self.horizon)
