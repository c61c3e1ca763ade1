"""Keys of engine `tabular`: `kind = "table"`, rows with attributes that have public values, and its options.

Attributes can come out of a JSON Schema, where that says of their values what is finite and public:

| property                                                   | attribute                       |
|------------------------------------------------------------|---------------------------------|
| `enum`, `const`                                            | listed values                   |
| `"type": "boolean"`                                        | false, true                     |
| `"type": "integer"` with `minimum` and `maximum`           | listed, or 20 bins above 50 values |
| `"type": "number"` with `minimum` and `maximum`            | 20 bins                         |
| null among the types or the `enum`, or not in `required`   | missing = true                  |
| anything else                                              | refused, by name                |
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import combinations, pairwise
from math import prod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from schemas.config.domain import NUMBERS, DeletableDomainSection, DomainSection, Each, Question
from schemas.config.options import OptionsSection
from schemas.config.privacy import Privacy
from schemas.config.spatial import CounterName, horizon_problems
from schemas.config.timing import Timing
from schemas.config.values import (
    ExactDecimal,
    FieldName,
    Flag,
    Number,
    PublicFileAt,
    Section,
    Whole,
    below,
    must,
    refusal,
)
from schemas.errors import ConfigProblem

BINS = 20
LISTED = 50
_MEND = "give it an enum, or minimum and maximum, or list the attribute in [streams.domain] yourself"


def attributes_of_schema(
    content: bytes, *, skip: Collection[str] = ()
) -> tuple[list[dict[str, Any]], list[ConfigProblem]]:
    """Return the keys of an attribute for each property but those in `skip`, and what could not be read.

    >>> attributes_of_schema(b'{"properties": {"sex": {"enum": ["f", "m"]}}, "required": ["sex"]}')
    ([{'field': 'sex', 'missing': False, 'values': ('f', 'm')}], [])
    """
    try:
        schema = json.loads(content)
    except ValueError:
        return [], [ConfigProblem("", "is not JSON", "name a file with a JSON Schema")]
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return [], [ConfigProblem("", "has no properties", "name a JSON Schema of an object")]
    required = schema.get("required", [])
    found, problems = [], []
    for field, rule in properties.items():
        if field in skip:
            continue
        keys = _attribute(rule) if isinstance(rule, Mapping) else None
        if keys is None:
            problems.append(ConfigProblem("", f'says of "{field}" nothing that is finite', _MEND))
            continue
        found.append({"field": field, **keys, "missing": keys["missing"] or field not in required})
    return found, problems


def _attribute(rule: Mapping[str, Any]) -> dict[str, Any] | None:
    types = rule.get("type", [])
    kinds = {types} if isinstance(types, str) else set(types)
    missing = "null" in kinds or rule.get("nullable") is True
    kinds -= {"null"}
    if "const" in rule or "enum" in rule:
        values = [rule["const"]] if "const" in rule else list(rule["enum"])
        listed = tuple(value for value in values if value is not None)
        if not listed or not all(isinstance(value, (str, int, float, bool)) for value in listed):
            return None
        return {"missing": missing or None in values, "values": listed}
    if kinds == {"boolean"}:
        return {"missing": missing, "values": (False, True)}
    if kinds in ({"integer"}, {"number"}):
        return _bounded(rule, whole=kinds == {"integer"}, missing=missing)
    return None


def _bounded(rule: Mapping[str, Any], *, whole: bool, missing: bool) -> dict[str, Any] | None:
    low, high = rule.get("minimum"), rule.get("maximum")
    if whole:
        low = _next(rule.get("exclusiveMinimum"), 1) if low is None else low
        high = _next(rule.get("exclusiveMaximum"), -1) if high is None else high
    if not all(isinstance(bound, (int, float)) and not isinstance(bound, bool) for bound in (low, high)):
        return None
    assert low is not None
    assert high is not None
    if not (math.isfinite(low) and math.isfinite(high)) or low >= high:
        return None
    if not whole:
        edges = tuple(low + (high - low) * index / BINS for index in range(BINS + 1))
        return {"missing": missing, "edges": (*edges[:-1], float(high))}
    first, last = math.ceil(low), math.floor(high)
    if last - first < LISTED:
        return {"missing": missing, "values": tuple(range(first, last + 1))}
    return {"missing": missing, "edges": (*_whole_edges(first, last), float(last)), "integer": True}


def _whole_edges(first: int, last: int) -> Iterator[float]:
    count = last - first + 1
    for index in range(BINS):
        yield float(first + count * index // BINS)


def _next(bound: Any, step: int) -> Any:
    return bound + step if isinstance(bound, int) and not isinstance(bound, bool) else bound


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
    """Return a text that tells true from 1 and "1"."""
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
    def listed(self) -> int:
        """Number of values or bins."""
        return len(self.values) if self.values is not None else max(len(self.edges or ()) - 1, 0)

    @property
    def size(self) -> int:
        """Number of codes."""
        return self.listed + (self.unknown == "other") + self.missing

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse keys of an attribute that contradict each other."""
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
        """Return what stored states rest on."""
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
    """Attributes in the order of the codes; those of `schema_file` come after these, and these override them."""
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
        return (*self.attributes, *(a for a in self._imported[0] if a.field not in listed))

    @cached_property
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
        """Refuse attributes that do not fit together."""
        yield from below("schema_file", self._imported[1])
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


MAX_WAYS = 3
BYTES_PER_CELL = 96
"""Bytes of memory, as the engine reckons."""


Weight = Annotated[ExactDecimal, must(lambda value: value > 0, "must be above 0", "write 1, or leave the marginal out")]
Part = Annotated[
    ExactDecimal, must(lambda value: 0 <= value <= 1, "must lie between 0 and 1", "write 0.02 for two percent")
]


class Marginal(Section):
    """One entry of `marginals`."""

    header: ClassVar[str] = "[streams.options.marginals]"

    of: tuple[FieldName, ...] = Field(min_length=1, max_length=MAX_WAYS, examples=[["age", "income"]])
    """Its attributes, in any order."""
    weight: Weight = Decimal(1)
    """How much it matters, beside the others."""


class TabularOptions(OptionsSection):
    """`[streams.options]` of engine `tabular`."""

    unpinned: ClassVar[frozenset[str]] = frozenset({"churn", "max_cells"})

    ways: tuple[Whole, ...] = Field((1, 2), examples=[[1, 2]])
    """All marginals of so many attributes matter; 1 to 3. One-way marginals are always measured."""
    marginals: tuple[Marginal, ...] = Field((), examples=[[{"of": ["age", "income"], "weight": 2}]])
    """Where given, these matter and not those of `ways`."""
    records: Flag = Field(True, examples=[True])
    """False publishes measurements only."""
    churn: Part = Field(Decimal("0.02"), examples=[0.02])
    """Rows that a step may change, as a share of the table, beyond twice the events that it is thought to have."""
    max_cells: Whole = Field(4_000_000, ge=1, le=1_000_000_000, examples=[4_000_000])
    """Most cells of all marginals together: memory, state and a step's work are proportional to them."""
    rounds: Whole = Field(4, ge=1, le=1000, examples=[4])
    """Mode `paper`: marginals that are chosen and measured in a step."""
    counter: CounterName = Field("simple", examples=["simple"])
    """Mode `paper`: the continual counter of each marginal."""
    horizon: Whole | None = Field(None, ge=1, le=1_000_000_000)
    """Mode `paper`: steps that the counter is calibrated for, where it needs to know; the stream stops after them."""
    fit: Literal["pgm", "joint"] = Field("pgm", examples=["pgm"])
    """Mode `paper`: Private-PGM (the extra `pgm`), or the whole table where it is small."""
    model_cells: Whole = Field(4096, ge=1, le=100_000_000, examples=[4096])
    """Mode `paper`: most cells of the model's tables."""

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse options that contradict each other."""
        if not self.ways or not set(self.ways) <= set(range(1, MAX_WAYS + 1)) or len(set(self.ways)) < len(self.ways):
            yield ConfigProblem("ways", "are not different numbers from 1 to 3", "write ways = [1, 2]")
        seen = set()
        for index, marginal in enumerate(self.marginals):
            key = frozenset(marginal.of)
            if len(key) < len(marginal.of):
                yield ConfigProblem(f"marginals[{index}].of", "names an attribute twice", "name each once")
            if key in seen:
                yield ConfigProblem(f"marginals[{index}].of", "is a marginal that came before", "remove it")
            seen.add(key)
        yield from horizon_problems(self.counter, self.horizon)

    def in_stream(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Yield a counter in a mode without, marginals of attributes that the table lacks, and too many cells."""
        if self.counter != "simple" and mode != "paper":
            fix = 'remove the key, or set mode = "paper"'
            yield ConfigProblem("options.counter", f'mode "{mode}" counts each event in a block', fix)
        if not isinstance(domain, TableDomainSection):
            return
        known = set(domain.fields)
        yield from self._too_large(domain)
        for index, marginal in enumerate(self.marginals):
            for field in marginal.of:
                if field not in known:
                    yield ConfigProblem(
                        f"options.marginals[{index}].of",
                        "names no attribute of the table",
                        "name a field of attributes",
                    )

    def _too_large(self, domain: TableDomainSection) -> Iterator[ConfigProblem]:
        sizes = {attribute.field: attribute.size for attribute in domain.all_attributes}
        if self.marginals:
            cliques = [tuple(field for field in marginal.of if field in sizes) for marginal in self.marginals]
        else:
            cliques = [clique for way in {1, *self.ways} for clique in combinations(sizes, way)]
        cells = [(prod(sizes[field] for field in clique), clique) for clique in cliques]
        total = sum(count for count, _ in cells)
        if total > self.max_cells:
            largest, clique = max(cells)
            yield ConfigProblem(
                "options.max_cells",
                f"is {self.max_cells:,}, but the {len(cells)} marginals have {total:,} cells, about "
                f"{total * BYTES_PER_CELL >> 20:,} MiB of memory; the largest, {' x '.join(clique)}, has {largest:,}",
                "use coarser bins or fewer values, list the marginals that matter in options.marginals, or raise it",
            )

    def fingerprint_fields(self) -> dict[str, Any]:
        marginals = [[*marginal.of, str(Fraction(marginal.weight))] for marginal in self.marginals]
        return {**super().fingerprint_fields(), "marginals": marginals}
