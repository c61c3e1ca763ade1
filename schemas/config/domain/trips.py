"""`kind = "trips"`: points in a rectangle that belong to trips; a trip, not a point, is what a user contributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from schemas.config.domain.box import BOUNDS, WHERE, are_degrees, check_box
from schemas.config.domain.common import DomainSection
from schemas.config.domain.geojson import GeoJsonFileAt, ReachM
from schemas.config.domain.questions import Each, Question
from schemas.config.values import FieldName, Number
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
    """Of lines: metres from the nearest one beyond which a point is outside."""

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

    def roles(self) -> Iterator[tuple[str, str]]:
        seen: set[str] = set()
        for key, field in (("trip", self.trip), ("x", self.x), ("y", self.y), ("end", self.end), ("order", self.order)):
            if field is not None and field not in seen:  # a field twice is refused by `problems`
                seen.add(field)
                yield key, field

    def problems(self) -> Iterator[ConfigProblem]:
        """Two meanings for one field."""
        named = [("trip", self.trip), ("x", self.x), ("y", self.y), ("end", self.end), ("order", self.order)]
        for at, (key, field) in enumerate(named):
            if field is not None and field in [other for _, other in named[:at]]:
                yield ConfigProblem(key, f'is the field "{field}", which has a meaning already', "name another field")

    def fingerprint_fields(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "trip": self.trip,
            "x": self.x,
            "y": self.y,
            "bounds": list(self.bounds),
            "end": self.end,
            "end_value": self.end_value,
            "order": self.order,
            **({} if self.file is None else {"file": self.file.sha256, "reach_m": self.reach_m}),
        }
