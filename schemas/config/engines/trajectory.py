"""Keys of engine `trajectory`: `kind = "trips"`, points that belong to trips, and its options.

A contribution of a user is a trip, not a point.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictBool, StrictInt

from schemas.config.domain import DomainSection, Question
from schemas.config.engines.options import OnlyIn, TripOptionsSection
from schemas.config.engines.spatial import BoxBounds, GeoJsonFileAt, ReachM, XField, YField, are_degrees
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import FieldName, PositiveDuration, microseconds
from schemas.errors import ConfigProblem


class TripsDomainSection(DomainSection):
    """`kind = "trips"`: trips in a rectangle that excludes its upper edges, in the units of the raw fields."""

    outside: ClassVar[str] = "Points outside, or off the map, are refused and counted; a trip goes on without them."

    kind: Literal["trips"] = "trips"
    trip: Annotated[FieldName, Question(hints=("trip_id", "trip", "ride", "drive"), of_user="track")] = Field(
        examples=["trip_id"]
    )
    """Field that identifies a trip of a user: a text or a whole number."""
    x: XField = Field(examples=["longitude"])
    """Field with the first coordinate of a point."""
    y: YField = Field(examples=["latitude"])
    """Field with the second coordinate."""
    bounds: BoxBounds = Field(examples=[[-74.05, 40.60, -73.75, 40.90]])
    """Rectangle in which points lie, `[xmin, ymin, xmax, ymax]`; others are refused."""
    end: FieldName | None = Field(None, examples=["last"])
    """Field that marks the last record of a trip; absent: trips end only by `options.idle`."""
    end_value: Annotated[str, Field(strict=True, max_length=256)] = Field("true", examples=["true"])
    """Value of `end` in the last record, as text."""
    order: FieldName = Field("point", examples=["point"])
    """Field of synthetic records with the index of a point in its trip, from 0; raw records need no such field."""

    file: GeoJsonFileAt | None = Field(None, examples=["roads.geojson"])
    """GeoJSON of polygons or lines, to which synthetic trips keep; points off them are outside; x, y are degrees."""
    reach_m: ReachM = Field(50.0, examples=[50])
    """With lines: largest distance of a point from the nearest line, in metres; points beyond it are outside."""

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.x, self.y)

    @property
    def coordinates(self) -> tuple[str, str]:
        return self.x, self.y

    @property
    def in_degrees(self) -> bool:
        return self.file is not None or are_degrees((self.x, self.y), self.bounds)

    @property
    def trip_field(self) -> str | None:
        return self.trip

    def fingerprint_fields(self) -> dict[str, Any]:
        fields = super().fingerprint_fields()
        return fields if self.file is not None else {key: fields[key] for key in fields.keys() - {"file", "reach_m"}}


MAX_STEPS = 10_000


class TrajectoryOptions(TripOptionsSection):
    """`[streams.options]` of engine `trajectory`."""

    idle: PositiveDuration = Field(timedelta(minutes=10), examples=["10m"])
    """Time without a record after which a trip is over, rounded up to whole steps."""
    longest: PositiveDuration = Field(timedelta(days=1), examples=["6h"])
    """Time after which a trip is cut; later records with its id are another trip, which is charged again."""
    max_points: StrictInt = Field(1024, ge=2, le=100_000, examples=[1024])
    """Number of points of a trip that count, the earliest ones."""
    max_moves: StrictInt = Field(250, ge=1, le=10_000, examples=[250])
    """Number of moves between cells of a trip that count; also the limit of a synthetic trip."""
    side: Annotated[StrictInt, OnlyIn("default")] = Field(40, ge=4, le=48, examples=[40])
    """Mode `default`: cells along each side of the finest grid, a multiple of 4; few trips get a coarser grid."""
    spread: Annotated[Literal["uniform", "exponential"], OnlyIn("paper")] = Field("uniform", examples=["uniform"])
    """Mode `paper`: how the weight of a trip is spread over its transitions; `exponential` favours its ends."""
    records: StrictBool = True
    """Whether synthetic trips are published; if not, only measurements are."""

    def life_steps(self, shortest_us: int) -> int:
        """Return the largest number of steps that records of one trip can be in, from `longest`."""
        return -(-microseconds(self.longest) // shortest_us) + 1

    def idle_steps(self, shortest_us: int) -> int:
        """Return `idle` in steps of the shortest length, rounded up, so that no trip ends too soon."""
        return -(-microseconds(self.idle) // shortest_us)

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse a grid that cannot be made coarser."""
        if self.side % 4:
            yield ConfigProblem("side", "is not a multiple of 4", "set side = 40")

    def stream_problems(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Refuse a map in a mode that ignores maps, and trips that last too long."""
        if mode != "default" and isinstance(domain, TripsDomainSection) and domain.file is not None:
            yield ConfigProblem(
                "domain.file", f'mode "{mode}" does not use a map', 'remove the key, or set mode = "default"'
            )
        if time is not None and self.life_steps(time.shortest_us) > MAX_STEPS:
            yield ConfigProblem(
                "options.longest", f"is more than {MAX_STEPS} steps", "lower it, or make time.step longer"
            )
