"""`kind = "box"`: a rectangle."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from schemas.config.domain.common import NUMBERS, DeletableDomainSection, Each, Question
from schemas.config.values import FieldName, Number, refusal

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
    """Whether coordinates are longitude and latitude, by their names and by what is possible: nothing else says it.

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
