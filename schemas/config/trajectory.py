"""Keys of engine `trajectory`: `kind = "trips"`, points that belong to trips, and its options.

A trip, not a point, is what a user contributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from schemas.config.domain import DomainSection, Each, Question
from schemas.config.options import TripOptionsSection
from schemas.config.privacy import Privacy
from schemas.config.spatial import BOUNDS, WHERE, GeoJsonFileAt, ReachM, are_degrees, check_box
from schemas.config.timing import Timing
from schemas.config.values import FieldName, Flag, Number, PositiveDuration, Whole, microseconds
from schemas.errors import ConfigProblem


class TripsDomainSection(DomainSection):
    """`kind = "trips"`. Lower edges belong to the rectangle, upper edges do not; units are those of the raw fields."""

    outside: ClassVar[str] = "Points outside, or off the map, are refused and counted; a trip goes on without them."

    kind: Literal["trips"] = "trips"
    trip: FieldName = Field(examples=["trip_id"])
    """Field that tells a user's trips apart: a text or a whole number."""
    x: FieldName = Field(examples=["longitude"])
    """Field with the first coordinate of a point."""
    y: FieldName = Field(examples=["latitude"])
    """Field with the second one."""
    bounds: Annotated[tuple[Number, Number, Number, Number], AfterValidator(check_box)] = Field(
        examples=[[-74.05, 40.60, -73.75, 40.90]]
    )
    """`[xmin, ymin, xmax, ymax]`."""
    end: FieldName | None = Field(None, examples=["last"])
    """Field that says which record is a trip's last; absent: trips close by `options.idle` alone."""
    end_value: Annotated[str, Field(strict=True, max_length=256)] = Field("true", examples=["true"])
    """Value of `end` in that record, as text."""
    order: FieldName = Field("point", examples=["point"])
    """Field of synthetic records that holds the place of a point in its trip, from 0; raw records have none."""

    file: GeoJsonFileAt | None = Field(None, examples=["roads.geojson"])
    """GeoJSON of polygons or of lines: points off them are outside, and synthetic trips keep to them. x, y: degrees."""
    reach_m: ReachM = Field(50.0, examples=[50])
    """With lines: metres from the nearest one beyond which a point is outside."""

    @classmethod
    def questions(cls) -> tuple[Question | Each, ...]:
        text = "Which field tells a user's trips apart?"
        return (
            Question(key="trip", kind="field", text=text, hints=("trip_id", "trip", "ride", "drive")),
            *WHERE,
            BOUNDS,
        )

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


MOST_STEPS = 10_000


class TrajectoryOptions(TripOptionsSection):
    """`[streams.options]` of engine `trajectory`."""

    idle: PositiveDuration = Field(timedelta(minutes=10), examples=["10m"])
    """A trip without a record for so long is over; counted in whole steps, rounded up."""
    longest: PositiveDuration = Field(timedelta(days=1), examples=["6h"])
    """A trip is cut after so long; what comes later under its name is another trip, and charged anew."""
    max_points: Whole = Field(1024, ge=2, le=100_000, examples=[1024])
    """Points of a trip that count, the first by time."""
    max_moves: Whole = Field(250, ge=1, le=10_000, examples=[250])
    """Moves between cells of a trip that count, and of a synthetic one."""
    side: Whole = Field(40, ge=4, le=48, examples=[40])
    """Mode `default`: cells along each side of the finest grid, a multiple of 4; few trips get a coarser one."""
    spread: Literal["uniform", "exponential"] = Field("uniform", examples=["uniform"])
    """Mode `paper`: how a trip's weight is spread over its transitions; `exponential` favours its ends."""
    records: Flag = True
    """False: only measurements are published, no synthetic trips."""

    def life_steps(self, shortest_us: int) -> int:
        """Return in how many steps records of a trip pass, the first one included: enough for a trip of `longest`."""
        return -(-microseconds(self.longest) // shortest_us) + 1

    def idle_steps(self, shortest_us: int) -> int:
        """Return `idle` in whole steps, rounded up; shortest steps are counted, so that no trip ends too soon."""
        return -(-microseconds(self.idle) // shortest_us)

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse a grid that cannot be made coarser."""
        if self.side % 4:
            yield ConfigProblem("side", "is no multiple of 4", "set side = 40")

    def in_stream(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Yield options of other modes, a map in a mode that keeps to none, and trips that live for too long."""
        if self.spread != "uniform" and mode != "paper":
            fix = 'remove the key, or set mode = "paper"'
            yield ConfigProblem("options.spread", f'mode "{mode}" has no spread', fix)
        if mode != "default" and isinstance(domain, TripsDomainSection) and domain.file is not None:
            yield ConfigProblem(
                "domain.file", f'mode "{mode}" keeps to no map', 'remove the key, or set mode = "default"'
            )
        if time is not None and self.life_steps(time.shortest_us) > MOST_STEPS:
            yield ConfigProblem(
                "options.longest", f"is more than {MOST_STEPS} steps", "lower it, or make time.step longer"
            )
