"""`kind = "table"`: rows with attributes that have public values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from schemas.config.domain.common import NUMBERS, DeletableDomainSection, Each, Question
from schemas.config.domain.json_schema import attributes_of_schema
from schemas.config.values import FieldName, Flag, Number, PublicFileAt, Section, below, refusal
from schemas.errors import ConfigProblem

MAX_ATTRIBUTES = 50
MAX_VALUES = 1000

Value = str | int | float | bool


def _value(value: object) -> Value:
    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() and "." not in str(value) else float(value)
    if not isinstance(value, (str, int, float, bool)) or (isinstance(value, float) and not math.isfinite(value)):
        raise refusal("holds what is no text, number or boolean", "write such a value; null is missing = true")
    return value


def _text(value: Value) -> str:
    """Tells true from 1 and "1"."""
    return json.dumps(value)


Listed = Annotated[Value, BeforeValidator(_value)]


class AttributeSection(Section):
    """One entry of `attributes`: listed values, or numbers in bins."""

    header: ClassVar[str] = "[streams.domain.attributes]"

    field: FieldName = Field(examples=["age"])
    """Field of the raw event."""
    values: tuple[Listed, ...] | None = Field(None, examples=[["f", "m"]])
    """All values that there are; texts, numbers or booleans."""
    edges: tuple[Number, ...] | None = Field(None, examples=[[0, 18, 65, 120]])
    """Edges of bins, ascending; a bin holds its lower edge, and the last bin its upper one, too."""
    integer: Flag = False
    """Numbers drawn back from bins are whole."""
    points: tuple[Number, ...] | None = Field(None, examples=[[9, 40, 75]])
    """The number that is drawn back from each bin; absent: any in it, evenly."""
    missing: Flag = False
    """Null and absent are a value; otherwise they are a MISSING_FIELD."""
    unknown: Literal["refuse", "other", "clamp"] = "refuse"
    """What becomes of other values: a dead letter, the value `other`, or, for numbers, the nearest bin."""
    other: Annotated[str, Field(strict=True, max_length=256)] = "other"
    """What a synthetic record shows for other values."""

    @property
    def size(self) -> int:
        """Number of codes."""
        listed = len(self.values) if self.values is not None else max(len(self.edges or ()) - 1, 0)
        return listed + (self.unknown == "other") + self.missing

    def problems(self) -> Iterator[ConfigProblem]:
        """What the keys of an attribute say against each other."""
        if (self.values is None) == (self.edges is None):
            yield ConfigProblem("values", "an attribute has values or edges, and not both", "write one of the two")
        elif self.values is not None:
            yield from self._listed(self.values)
        elif self.edges is not None:
            yield from self._binned(self.edges)
        if self.size > MAX_VALUES:
            yield ConfigProblem(
                "values" if self.edges is None else "edges",
                f"make {self.size} values, more than {MAX_VALUES}",
                "list fewer values or coarser bins",
            )

    def _listed(self, values: tuple[Value, ...]) -> Iterator[ConfigProblem]:
        # JSON knows one kind of number, and tells true from 1.
        if not values or len({(isinstance(value, bool), value) for value in values}) < len(values):
            yield ConfigProblem("values", "are none, or one of them is listed twice", "list each value once")
        if self.unknown == "clamp":
            yield ConfigProblem("unknown", 'is "clamp", which needs bins', 'set unknown = "refuse" or "other"')
        if self.unknown == "other" and self.other in values:
            yield ConfigProblem("other", "is a listed value", "choose another text")
        for key in ("integer", "points"):
            if getattr(self, key):
                yield ConfigProblem(key, "is of no use without edges", "remove the key")

    def _binned(self, edges: tuple[float, ...]) -> Iterator[ConfigProblem]:
        pairs = list(pairwise(edges))
        if not pairs or any(low >= high for low, high in pairs):
            yield ConfigProblem("edges", "are not two or more numbers in ascending order", "sort them")
            return
        last = len(pairs) - 1
        if self.integer:
            if max(abs(edges[0]), abs(edges[-1])) > 2**53:
                yield ConfigProblem("edges", "go beyond 2**53, where whole numbers have gaps", "scale the field")
            elif any(
                math.ceil(low) > (math.floor(high) if at == last else math.ceil(high) - 1)
                for at, (low, high) in enumerate(pairs)
            ):
                yield ConfigProblem("edges", "have a bin without a whole number", "widen it, or remove integer")
        if self.points is not None:
            inside = len(self.points) == len(pairs) and all(
                low <= point < high or (at == last and point == high)
                for at, (point, (low, high)) in enumerate(zip(self.points, pairs, strict=True))
            )
            if not inside or (self.integer and any(point != int(point) for point in self.points)):
                yield ConfigProblem(
                    "points", "are not one number in each bin, in their order", f"write {len(pairs)} of them"
                )

    def meaning(self) -> list[Any]:
        """What stored states rest on."""
        values = None if self.values is None else [_text(value) for value in self.values]
        return list({**self.fingerprint_fields(), "values": values}.values())


class ImpossiblePair(Section):
    """One entry of `impossible`: values of two attributes that no row has together."""

    header: ClassVar[str] = "[streams.domain.impossible]"

    left: FieldName = Field(examples=["age"])
    """One attribute."""
    left_values: tuple[Listed, ...] = Field(min_length=1, examples=[[5]])
    """Values as in a raw event; of a binned attribute a number stands for its bin."""
    right: FieldName = Field(examples=["drives"])
    """The other attribute."""
    right_values: tuple[Listed, ...] = Field(min_length=1, examples=[[True]])
    """Its values that do not go with those."""


class TableDomainSection(DeletableDomainSection):
    """`kind = "table"`: rows of attributes, listed here or in a JSON Schema."""

    unpinned: ClassVar[frozenset[str]] = frozenset({"schema_file"})

    kind: Literal["table"] = "table"
    attributes: tuple[AttributeSection, ...] = Field((), examples=[[{"field": "sex", "values": ["f", "m"]}]])
    """In the order of the codes; those of `schema_file` come after these, and these override them."""
    schema_file: PublicFileAt | None = Field(None, examples=["person.schema.json"])
    """JSON Schema of an event: properties with `enum`, `const`, `boolean`, or whole numbers between bounds."""
    impossible: tuple[ImpossiblePair, ...] = ()
    """Structural zeros; an event with one is OUTSIDE_DOMAIN."""

    @classmethod
    def questions(cls) -> tuple[Question | Each, ...]:
        values = Question(
            key="values",
            kind="texts",
            text="All values that there are",
            of=frozenset(("text", "boolean")),
            public="values",
        )
        edges = Question(
            key="edges",
            kind="numbers",
            text="Edges of bins, ascending: the smallest and the largest value that there can be, and some between",
            of=NUMBERS,
            public="edges",
        )
        integer = Question(
            key="integer", kind="flag", text="Are they whole?", of=NUMBERS, public="whole", default=False
        )
        text = "Is it null or absent in some records? They are refused otherwise"
        missing = Question(key="missing", kind="flag", text=text, public="nulls", default=False)
        text = "Which fields does the table have? One to fifty"
        return (Each(key="attributes", text=text, field_key="field", inner=(values, edges, integer, missing)),)

    @property
    def all_attributes(self) -> tuple[AttributeSection, ...]:
        """Listed ones and those of the schema, as far as it can be read."""
        listed = {attribute.field for attribute in self.attributes}
        return (*self.attributes, *(a for a in self._imported()[0] if a.field not in listed))

    def _imported(self) -> tuple[list[AttributeSection], list[ConfigProblem]]:
        if self.schema_file is None:
            return [], []
        found, problems = attributes_of_schema(self.schema_file.content, skip={a.field for a in self.attributes})
        return [AttributeSection(**keys) for keys in found], problems

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(attribute.field for attribute in self.all_attributes)

    def roles(self) -> Iterator[tuple[str, str]]:
        for field in self.fields:
            yield "attributes", field
        yield from super().roles()

    def problems(self) -> Iterator[ConfigProblem]:
        """Attributes that do not fit together, and two ways to delete."""
        yield from below("schema_file", self._imported()[1])
        fields = [attribute.field for attribute in self.attributes]
        for field in sorted({field for field in fields if fields.count(field) > 1}):
            yield ConfigProblem("attributes", f'name "{field}" twice', "keep one of them")
        count = len(self.all_attributes)
        if not 1 <= count <= MAX_ATTRIBUTES:
            yield ConfigProblem(
                "attributes", f"are {count}; a table has 1 to {MAX_ATTRIBUTES}", "list those that matter"
            )
        known = set(self.fields)
        for index, pair in enumerate(self.impossible):
            for key, field in (("left", pair.left), ("right", pair.right)):
                if field not in known:
                    yield ConfigProblem(f"impossible[{index}].{key}", "is no attribute", "name a field of attributes")
            if pair.left == pair.right:
                yield ConfigProblem(f"impossible[{index}].right", "is the same attribute as left", "name another one")
        yield from super().problems()

    def fingerprint_fields(self) -> dict[str, Any]:
        impossible = [
            [pair.left, [_text(v) for v in pair.left_values], pair.right, [_text(v) for v in pair.right_values]]
            for pair in self.impossible
        ]
        attributes = [attribute.meaning() for attribute in self.all_attributes]
        return {**super().fingerprint_fields(), "attributes": attributes, "impossible": impossible}
