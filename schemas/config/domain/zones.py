"""`kind = "zones"`: a public table of named places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from schemas.config.domain.common import TEXTS, DeletableDomainSection, Each, Question
from schemas.config.domain.geojson import GeoJsonFileAt, named_features
from schemas.config.values import FieldName, NotNegative
from schemas.errors import ConfigProblem

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
    """Of each zone, such as its area; 0 takes a zone out. Absent: all alike."""
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
        """Of all zones, as written; of a file's features each name once."""
        if self.file is not None:
            return tuple(dict.fromkeys(name for name, _ in named_features(self.file, self.name_property)))
        return self.zones or ()

    def problems(self) -> Iterator[ConfigProblem]:
        """Tables that are none, or two."""
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
