"""Keys of engine `spatial`: its domains `box`, `geojson` (polygons or lines on a map) and `zones`, and its options."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Literal

import orjson
from pydantic import AfterValidator, Field

from schemas.config.domain import NUMBERS, TEXTS, DeletableDomainSection, DomainSection, Each, Question
from schemas.config.options import OptionsSection, Share
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import FieldName, NotNegative, Number, PublicFile, PublicFileAt, Whole, must, refusal
from schemas.errors import ConfigProblem

_HALVINGS = 15  # of one axis at the greatest depth, 30


def check_box(bounds: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """Refuse a rectangle that is inverted or has no room in it."""
    fix = "write bounds = [xmin, ymin, xmax, ymax] with xmin < xmax and ymin < ymax"
    for name, low, high in (("x", bounds[0], bounds[2]), ("y", bounds[1], bounds[3])):
        if low > high:
            raise refusal(f"are inverted: {name}min is above {name}max", fix)
        # A cell of the deepest level needs room for points that stay inside it after rounding: 2**14 numbers.
        width = high - low
        if not math.isfinite(width) or width / 2**_HALVINGS < 2**14 * math.ulp(max(abs(low), abs(high))):
            raise refusal(f"are degenerate: no room between {name}min and {name}max", fix)
    return bounds


def are_degrees(fields: tuple[str, str], bounds: tuple[float, float, float, float]) -> bool:
    """Return whether coordinates are longitude and latitude, by their names and by what is possible.

    >>> are_degrees(("lon", "lat"), (-74.05, 40.60, -73.75, 40.90)), are_degrees(("x", "y"), (0.0, 0.0, 1.0, 1.0))
    (True, False)
    """
    x, y = (field.lower() for field in fields)
    possible = bounds[0] >= -180 and bounds[2] <= 360 and bounds[1] >= -90 and bounds[3] <= 90
    return possible and ("lon" in x or "lng" in x) and "lat" in y


WHERE = (
    Question(
        key="x",
        kind="field",
        text="Which field holds x, or the longitude?",
        of=NUMBERS,
        hints=("longitude", "lon", "lng", "x"),
    ),
    Question(
        key="y", kind="field", text="Which field holds y, or the latitude?", of=NUMBERS, hints=("latitude", "lat", "y")
    ),
)
BOUNDS = Question(
    key="bounds",
    kind="numbers",
    text="In which rectangle do events lie? xmin, ymin, xmax, ymax; others are refused",
    public="box",
    about=("x", "y"),
    count=4,
)


class PlanarDomainSection(DeletableDomainSection):
    """Events that are points: two coordinates in the units of the raw fields."""

    x: FieldName = Field(examples=["longitude"])
    """Field with the first coordinate, such as the longitude."""
    y: FieldName = Field(examples=["latitude"])
    """Field with the second one, such as the latitude."""

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.x, self.y)

    @property
    def coordinates(self) -> tuple[str, str]:
        return self.x, self.y


class BoxDomainSection(PlanarDomainSection):
    """`kind = "box"`: a rectangle. Lower edges belong to it, upper edges do not; units are those of the raw fields."""

    kind: Literal["box"] = "box"
    bounds: Annotated[tuple[Number, Number, Number, Number], AfterValidator(check_box)] = Field(
        examples=[[-74.05, 40.60, -73.75, 40.90]]
    )
    """`[xmin, ymin, xmax, ymax]`."""

    @property
    def in_degrees(self) -> bool:
        return are_degrees((self.x, self.y), self.bounds)

    @classmethod
    def questions(cls) -> tuple[Question | Each, ...]:
        return (*WHERE, BOUNDS)


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
    """Refuse what is no map, as far as that shows without geometry: the engine looks at shapes when it is built."""
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
    """Yield name and GeoJSON of each feature that has a name; numbers are taken as they are written."""
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
    """With lines: metres from the nearest one beyond which an event is outside."""

    @property
    def in_degrees(self) -> bool:
        return True

    @classmethod
    def questions(cls) -> tuple[Question | Each, ...]:
        return (*WHERE, Question(key="file", kind="file", text="Which GeoJSON file has the polygons, or the lines?"))

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse coordinates the wrong way round."""
        if "lat" in self.x.lower() and any(part in self.y.lower() for part in ("lon", "lng")):
            yield ConfigProblem("x", f'"{self.x}" sounds like the latitude', "x is the longitude: swap x and y")
        yield from super().problems()


MOST_ZONES = 100_000


class ZonesDomainSection(DeletableDomainSection):
    """`kind = "zones"`: events say in which of some named zones they are. A name that is not in the table is outside.

    The table is `zones`, with `measures` or without, or the features of `file`.
    """

    kind: Literal["zones"] = "zones"
    field: FieldName = Field(examples=["zone"])
    """Field of the raw event that holds the zone's name, a text."""
    zones: Annotated[
        tuple[Annotated[str, Field(strict=True)], ...] | None, Field(min_length=1, max_length=MOST_ZONES)
    ] = Field(None, examples=[["north", "south"]])
    """All names, neighbours beside each other: they share cells where there are few events."""
    measures: tuple[NotNegative, ...] | None = Field(None, examples=[[12.5, 3.0]])
    """Weight of each zone, such as its area; 0 takes a zone out. Absent: all alike."""
    file: GeoJsonFileAt | None = Field(None, examples=["zones.geojson"])
    """GeoJSON of polygons, or of lines, with the names in `name_property`; zones weigh by area, or by length."""
    name_property: Annotated[str, Field(strict=True, min_length=1, max_length=256)] = Field("name", examples=["name"])
    """Property of the file's features that holds a zone's name."""
    x: FieldName | None = Field(None, examples=["longitude"])
    """With `file`: synthetic records also hold a place in their zone, its longitude here."""
    y: FieldName | None = Field(None, examples=["latitude"])
    """With `file` and `x`: its latitude here."""

    @classmethod
    def questions(cls) -> tuple[Question | Each, ...]:
        return (
            Question(
                key="field",
                kind="field",
                text="Which field holds the zone's name?",
                of=TEXTS,
                hints=("zone", "district", "neighborhood", "place", "area"),
            ),
            Question(
                key="zones",
                kind="texts",
                text="Which zones are there? All names, neighbours beside each other",
                public="values",
                about=("field",),
            ),
        )

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
        """Names of all zones as they are written; each name of a file's features once."""
        if self.file is not None:
            return tuple(dict.fromkeys(name for name, _ in named_features(self.file, self.name_property)))
        return self.zones or ()

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse tables that are none, or two."""
        if (self.zones is None) == (self.file is None):
            reason = "missing" if self.zones is None else "there are zones and a file"
            yield ConfigProblem("zones", reason, "write zones = [...], or name a file, one of the two")
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
                "y" if self.y is None else "x", "missing beside the other coordinate", "write both x and y"
            )
        elif self.x is not None and self.file is None:
            yield ConfigProblem("x", "there are no outlines to place records in", "name a file, or remove x and y")
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
            yield ConfigProblem("measures", "are all 0, which leaves no zone", "write what each zone weighs")


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
"""Counters of pure DP, by their names in `engines.core.counters`; a test compares the two lists."""
NEED_HORIZON = frozenset({"block", "tree", "kary"})


def horizon_problems(counter: CounterName, horizon: int | None) -> Iterator[ConfigProblem]:
    """Refuse the horizon of a counter where it is missing, or of no use."""
    if counter in NEED_HORIZON and horizon is None:
        yield ConfigProblem(
            "horizon",
            f'counter = "{counter}" must know for how many releases',
            'set horizon = 1000, say, or take counter = "unbounded-kary", which goes on for ever',
        )
    if horizon is not None and counter not in NEED_HORIZON:
        yield ConfigProblem("horizon", f'counter = "{counter}" goes on for ever', "remove the key")


class SpatialOptions(OptionsSection):
    """`[streams.options]` of engine `spatial`."""

    depth: Whole = Field(18, ge=2, le=30, examples=[18])
    """Levels of the tree below its root."""
    initial_steps: Whole = Field(1, ge=1, le=1_000_000, examples=[20])
    """Steps 0 .. initial_steps - 1 are gathered into the release of step initial_steps - 1."""
    split: Share = Field(Decimal("0.5"), examples=[0.5])
    """Mode `paper`: share of the event budget that decides the partition; the rest counts. Exact."""
    threshold: NotNegative = Field(0.0, examples=[0])
    """Mode `paper`: biased count, in events, above which a cell is divided."""
    counter: CounterName = Field("simple", examples=["simple"])
    """Mode `paper`: the continual counter of each leaf."""
    horizon: Whole | None = Field(None, ge=1, le=1_000_000_000)
    """Releases that a counter is calibrated for, where it needs to know; the stream stops after them."""
    max_leaves: Whole = Field(4096, ge=2, le=1_048_576, examples=[4096])
    """Mode `default`: leaves of the tree; work and memory of a step are proportional to it."""

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse a horizon that the counter does not go with."""
        yield from horizon_problems(self.counter, self.horizon)

    def in_stream(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Yield what they say against the mode."""
        if self.counter != "simple" and mode == "default":
            yield ConfigProblem(
                "options.counter",
                'mode "default" counts each event once and has no counters',
                'remove the key, or set mode = "paper"',
            )
