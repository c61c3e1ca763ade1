"""`[streams.domain]`: the public domain, by declaration and never from data. One model for each `kind`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from schemas.config.section import Section, refusal
from schemas.config.values import FieldName, Number, PositiveDuration, microseconds
from schemas.errors import ConfigProblem

DOMAIN_KINDS = ("box",)
PLANNED_KINDS = ("geojson", "table", "series", "states")
_HALVINGS = 15  # of one axis at the greatest depth, 30


def _box(bounds: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    mend = "write bounds = [xmin, ymin, xmax, ymax] with xmin < xmax and ymin < ymax"
    for name, low, high in (("x", bounds[0], bounds[2]), ("y", bounds[1], bounds[3])):
        if low > high:
            raise refusal(f"are inverted: {name}min is above {name}max", mend)
        # A cell of the deepest level needs room for points that stay inside it after rounding: 2**14 numbers.
        width = high - low
        if not math.isfinite(width) or width / 2**_HALVINGS < 2**14 * math.ulp(max(abs(low), abs(high))):
            raise refusal(f"are degenerate: no room between {name}min and {name}max", mend)
    return bounds


class BoxDomain(Section):
    """`kind = "box"`: a rectangle. Lower edges belong to it, upper edges do not; units are those of the raw fields."""

    kind: Literal["box"] = "box"
    x: FieldName = Field(examples=["longitude"])
    y: FieldName = Field(examples=["latitude"])
    bounds: Annotated[tuple[Number, Number, Number, Number], AfterValidator(_box)] = Field(
        examples=[[-74.05, 40.60, -73.75, 40.90]]
    )
    """`[xmin, ymin, xmax, ymax]`."""
    op: FieldName | None = Field(None, examples=["action"])
    """Field that holds `insert` or `delete`; absent: every event is an insert."""
    ttl: PositiveDuration | None = Field(None, examples=["30d"])
    """Time after which an insert is deleted by itself; absent: never."""

    @property
    def ttl_us(self) -> int | None:
        """Lifetime of an insert in microseconds, or None where it has no end."""
        return None if self.ttl is None else microseconds(self.ttl)

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the raw event that the domain reads and that a synthetic record holds, in order."""
        return (self.x, self.y)

    def problems(self) -> Iterator[ConfigProblem]:
        """Two meanings for one field, two ways to delete."""
        if self.x == self.y:
            yield ConfigProblem("y", f'is the same field as x, "{self.x}"', "name the field of the other coordinate")
        if self.op is not None and self.ttl is not None:
            yield ConfigProblem(
                "ttl", "op and ttl would both delete the same events", "keep op or ttl, and remove the other"
            )


def _choose(value: object) -> object:
    """Refuse kinds without a model before pydantic complains about each of their keys."""
    if isinstance(value, dict):
        kind = value.get("kind")
        available = ", ".join(DOMAIN_KINDS)
        if "kind" not in value:
            raise refusal("missing", f'add kind = "{DOMAIN_KINDS[0]}" to [streams.domain]', at="kind")
        if not isinstance(kind, str) or kind not in DOMAIN_KINDS:
            reason = f'"{kind}" is' if isinstance(kind, str) and kind in PLANNED_KINDS else "this kind is"
            raise refusal(
                f"{reason} not available in this version; available: {available}", 'set kind = "box"', at="kind"
            )
    return value


# Becomes a union discriminated by `kind` with the second kind.
Domain = Annotated[BoxDomain, BeforeValidator(_choose)]


def expires(domain: BoxDomain) -> bool:
    """True where an insert is followed by a deletion, of its own or by time."""
    return domain.op is not None or (domain.ttl is not None and domain.ttl > timedelta(0))
