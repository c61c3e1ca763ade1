"""Keys of engine `tabular`: `kind = "table"`, rows of attributes with public values, and its options.

Attributes can be read from a JSON Schema, if it describes finite sets of public values:

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
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, StrictBool, StrictInt, WrapValidator

from schemas.config.domain import (
    NUMBERS,
    DeletableDomainSection,
    DomainSection,
    Question,
    TablesQuestion,
    questions_of,
)
from schemas.config.engines.options import OnlyIn, OptionsSection
from schemas.config.engines.spatial import CounterName, horizon_problems
from schemas.config.engines.spec import RecordKind
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import (
    ExactDecimal,
    FieldName,
    Number,
    PublicFileAt,
    Section,
    must,
    prefixed,
    refusal,
)
from schemas.errors import ConfigProblem
from schemas.steps import steps_in

BINS = 20
"""Number of bins for the numbers of a JSON Schema."""
MAX_LISTED = 50
"""Largest number of integers of a JSON Schema that are listed instead of put into bins."""
_FIX = "give it an enum, or minimum and maximum, or list the attribute in [streams.domain] yourself"


def attributes_of_schema(
    content: bytes, *, skip: Collection[str] = ()
) -> tuple[list[dict[str, Any]], list[ConfigProblem]]:
    """Return the keys of an attribute for each property that is not in `skip`, and the problems of the others.

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
    attributes, problems = [], []
    for field, rule in properties.items():
        if field in skip:
            continue
        keys = _attribute(rule) if isinstance(rule, Mapping) else None
        if keys is None:
            problems.append(ConfigProblem("", f'does not describe a finite set of values of "{field}"', _FIX))
            continue
        attributes.append({"field": field, **keys, "missing": keys["missing"] or field not in required})
    return attributes, problems


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
    if last - first < MAX_LISTED:
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
        raise refusal(
            "is not a text, number or boolean", "write such a value; for null, set missing = true on the attribute"
        )
    return value


def _text(value: Value) -> str:
    """Return a value as a text that distinguishes true, 1 and "1"."""
    return json.dumps(value)


def _begin(edge: float, scale: int) -> int:
    """Return the least whole number that, divided by `scale`, is not below the edge."""
    number = math.floor(edge * scale) - 1
    while number / scale < edge:
        number += 1
    return number


def _record_kind(value: Value) -> RecordKind:
    match value:
        case bool():
            return "boolean"
        case str():
            return "text"
        case int() if -(2**63) <= value < 2**63:
            return "integer"
    return "number"


Listed = Annotated[Value, BeforeValidator(_value)]
Discover = Literal["discover"]
DISCOVER: Discover = "discover"
FINDING_SHARE, FINDING_DELTA = Fraction(3, 20), Fraction(1, 5)
"""Of a table with an attribute whose values are found: the share of mu squared, and of delta, that finds them."""
FINDING_TESTS = 10
"""Tests of all values in a period of finding."""


def _values(value: Any, handler: Any) -> Any:
    return value if value == DISCOVER else handler(value)


if TYPE_CHECKING:
    Values = tuple[Listed, ...] | Discover
else:
    Values = Annotated[tuple[Listed, ...], WrapValidator(_values), PlainSerializer(lambda values: values)]


class AttributeSection(Section):
    """An entry of `attributes`: listed values, values that are to be found, or numbers in bins."""

    header: ClassVar[str] = "[streams.domain.attributes]"
    unpinned: ClassVar[frozenset[str]] = frozenset({"max_keys"})

    field: FieldName = Field(examples=["age"])
    """Field of the raw events."""
    values: Annotated[
        Values | None, Question(field_kinds=frozenset(("text", "boolean")), public="values", unlisted=DISCOVER)
    ] = Field(None, examples=[["f", "m"]])
    """All possible values: texts, numbers or booleans; or `"discover"`: texts that nobody can list. Each of these is
    `other` until enough records have it, and then a value of its own.
    """
    edges: Annotated[tuple[Number, ...] | None, Question(field_kinds=NUMBERS, public="edges")] = Field(
        None, examples=[[0, 18, 65, 120]]
    )
    """Edges of bins, ascending; a bin includes its lower edge, and the last bin also its upper edge."""
    integer: Annotated[StrictBool, Question(field_kinds=NUMBERS, public="whole", default=False)] = False
    """Whether the numbers of synthetic records are whole."""
    decimals: Annotated[StrictInt, Field(ge=1, le=9)] | None = Field(None, examples=[2])
    """Number of decimals of the numbers of synthetic records, such as 2 for money; absent: as many as a float has."""
    points: tuple[Number, ...] | None = Field(None, examples=[[9, 40, 75]])
    """The number of synthetic records for each bin; absent: uniform in the bin."""
    missing: Annotated[StrictBool, Question(public="nulls", default=False)] = False
    """Whether null and absent are a value; otherwise such a record is refused as MISSING_FIELD."""
    unknown: Literal["refuse", "other", "clamp"] = "refuse"
    """How other values are treated: refused, as the value `other`, or, for numbers, as the nearest bin."""
    other: Annotated[str, Field(strict=True, max_length=256)] = "other"
    """Value of synthetic records that stands for other values."""
    most: StrictInt = Field(64, ge=1, le=900, examples=[64])
    """With `"discover"`: number of values that are found at most; further ones stay `other`."""
    least_count: StrictInt = Field(5, ge=1, le=1_000_000, examples=[5])
    """With `"discover"`: records that a value must truly have in a period of finding before it is tested."""
    max_key_bytes: StrictInt = Field(64, ge=1, le=1024, examples=[64])
    """With `"discover"`: length of a value at most, in bytes of UTF-8; longer ones are refused as OUTSIDE_DOMAIN."""
    max_keys: StrictInt = Field(1_000_000, ge=1, le=1_000_000_000, examples=[1_000_000])
    """With `"discover"`: distinct values of a period of finding at most; one more stops the stream, nothing is lost."""

    @property
    def discovered(self) -> bool:
        """Whether nobody lists its values."""
        return self.values == DISCOVER

    @property
    def listed(self) -> int:
        """Number of values or bins; at most, where values are found."""
        if self.discovered:
            return self.most
        return len(self.values) if self.values is not None else max(len(self.edges or ()) - 1, 0)

    @property
    def size(self) -> int:
        """Number of codes, those of `other` and of missing values included."""
        return self.listed + 2 if self.discovered else self.listed + (self.unknown == "other") + self.missing

    @property
    def scale(self) -> int | None:
        """Number of possible numbers in 1, of whole numbers or of so many decimals; None if every number is one."""
        return 1 if self.integer else None if self.decimals is None else 10**self.decimals

    def ends(self, scale: int) -> list[tuple[int, int]]:
        """Return the first and the last whole number of each bin that, divided by `scale`, lies in the bin.

        As floats lie there: 1/10 is in a bin that ends at 0.1 only if it is the last one.
        """
        assert self.edges is not None
        *edges, last = self.edges
        begins = [_begin(edge, scale) for edge in (*edges, math.nextafter(last, math.inf))]
        return [(first, after - 1) for first, after in pairwise(begins)]

    @property
    def record_kinds(self) -> frozenset[RecordKind]:
        """What its field of synthetic records can hold."""
        kinds: set[RecordKind] = {"text"} if self.discovered else {_record_kind(value) for value in self.values or ()}
        if self.edges is not None:
            kinds = {"integer" if self.integer else "number"}
        elif "number" in kinds:
            kinds.discard("integer")  # one kind of number
        other: set[RecordKind] = {"text"} if self.unknown == "other" else set()
        missing: set[RecordKind] = {"null"} if self.missing else set()
        return frozenset(kinds | other | missing)

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse keys of an attribute that contradict each other."""
        if (self.values is None) == (self.edges is None):
            yield ConfigProblem("values", "an attribute has either values or edges", "write one of the two")
        elif self.values is not None and self.values != DISCOVER:
            yield from self._listed(self.values)
        elif self.edges is not None:
            yield from self._binned(self.edges)
        if self.discovered:
            yield from self._found()
        else:
            for key in ("most", "least_count", "max_key_bytes", "max_keys"):
                if getattr(self, key) != type(self).model_fields[key].default:
                    yield ConfigProblem(key, 'has no effect without values = "discover"', "remove the key")
        if self.size > MAX_VALUES:
            yield ConfigProblem(
                "values" if self.edges is None else "edges",
                f"make {self.size} values, more than {MAX_VALUES}",
                "list fewer values or coarser bins",
            )

    def _found(self) -> Iterator[ConfigProblem]:
        if self.unknown == "clamp":
            yield ConfigProblem("unknown", 'is "clamp", which needs bins', "remove the key: what is not found is other")
        for key in ("integer", "decimals", "points"):
            if getattr(self, key):
                yield ConfigProblem(key, "has no effect without edges", "remove the key")

    def _listed(self, values: tuple[Value, ...]) -> Iterator[ConfigProblem]:
        # JSON has one type of number, but distinguishes true from 1.
        if not values or len({(isinstance(value, bool), value) for value in values}) < len(values):
            yield ConfigProblem("values", "are empty, or list a value twice", "list each value once")
        if self.unknown == "clamp":
            yield ConfigProblem("unknown", 'is "clamp", which needs bins', 'set unknown = "refuse" or "other"')
        if self.unknown == "other" and self.other in values:
            yield ConfigProblem("other", "is a listed value", "choose another text")
        for key in ("integer", "decimals", "points"):
            if getattr(self, key):
                yield ConfigProblem(key, "has no effect without edges", "remove the key")

    def _binned(self, edges: tuple[float, ...]) -> Iterator[ConfigProblem]:
        pairs = list(pairwise(edges))
        if not pairs or any(low >= high for low, high in pairs):
            yield ConfigProblem("edges", "are not two or more numbers in ascending order", "sort them")
            return
        last = len(pairs) - 1
        for other in ("integer", "points"):
            if self.decimals is not None and getattr(self, other):
                yield ConfigProblem("decimals", f"has no effect with {other}", f"remove decimals, or {other}")
        if self.scale is not None:
            key, kind = ("integer", "whole number") if self.integer else ("decimals", "number of so few decimals")
            if max(abs(edges[0]), abs(edges[-1])) * self.scale > 2**53:
                fix = "scale the field" if self.integer else "lower decimals, or scale the field"
                yield ConfigProblem("edges", f"exceed 2**53 / {self.scale}, beyond which floats skip a {kind}", fix)
            elif any(first > end for first, end in self.ends(self.scale)):
                yield ConfigProblem("edges", f"have a bin without a {kind}", f"widen it, or remove {key}")
        if self.points is not None:
            inside = len(self.points) == len(pairs) and all(
                low <= point < high or (at == last and point == high)
                for at, (point, (low, high)) in enumerate(zip(self.points, pairs, strict=True))
            )
            if not inside or (self.integer and any(point != int(point) for point in self.points)):
                yield ConfigProblem(
                    "points", "are not one number in each bin, in order", f"write {len(pairs)} numbers, one in each bin"
                )

    def fingerprint_values(self) -> list[Any]:
        """Return the values of all keys, for the fingerprint."""
        listed = self.values is not None and self.values != DISCOVER
        values = [_text(value) for value in self.values or ()] if listed else self.values
        return list({**self.fingerprint_fields(), "values": values}.values())


class ImpossiblePair(Section):
    """An entry of `impossible`: values of two attributes that no row has together."""

    header: ClassVar[str] = "[streams.domain.impossible]"

    left: FieldName = Field(examples=["age"])
    """One attribute."""
    left_values: tuple[Listed, ...] = Field(min_length=1, examples=[[5]])
    """Values of `left` as in raw events; a number stands for its bin if the attribute has bins."""
    right: FieldName = Field(examples=["drives"])
    """The other attribute."""
    right_values: tuple[Listed, ...] = Field(min_length=1, examples=[[True]])
    """Values of `right` that no row has together with one of `left_values`."""


class TableDomainSection(DeletableDomainSection):
    """`kind = "table"`: rows of attributes, listed here or in a JSON Schema."""

    unpinned: ClassVar[frozenset[str]] = frozenset({"schema_file"})

    kind: Literal["table"] = "table"
    attributes: tuple[AttributeSection, ...] = Field((), examples=[[{"field": "sex", "values": ["f", "m"]}]])
    """Attributes in the order of their codes; those of `schema_file` follow unless they are listed here."""
    schema_file: PublicFileAt | None = Field(None, examples=["person.schema.json"])
    """JSON Schema of an event: properties with `enum`, `const`, `boolean`, or numbers between bounds."""
    impossible: tuple[ImpossiblePair, ...] = ()
    """Structural zeros; an event with one is refused as OUTSIDE_DOMAIN."""

    @classmethod
    def questions(cls) -> tuple[Question | TablesQuestion, ...]:
        return (
            TablesQuestion(
                key="attributes",
                text="Which fields does the table have? One to fifty.",
                field_key="field",
                questions=tuple(questions_of(AttributeSection, apart_from="field")),
                unlisted='values = "discover" finds the texts that enough records have, in one field; all others are '
                '"other". It takes a part of the budget, and needs privacy.delta, far below one divided by the number '
                "of users",
            ),
        )

    @property
    def all_attributes(self) -> tuple[AttributeSection, ...]:
        """Attributes that are listed, and those of the schema that could be read."""
        listed = {attribute.field for attribute in self.attributes}
        return (*self.attributes, *(a for a in self._imported[0] if a.field not in listed))

    @property
    def finds_values(self) -> bool:
        return any(attribute.discovered for attribute in self.all_attributes)

    @cached_property
    def _imported(self) -> tuple[list[AttributeSection], list[ConfigProblem]]:
        if self.schema_file is None:
            return [], []
        attributes, problems = attributes_of_schema(self.schema_file.content, skip={a.field for a in self.attributes})
        return [AttributeSection(**keys) for keys in attributes], problems

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(attribute.field for attribute in self.all_attributes)

    def roles(self) -> Iterator[tuple[str, str]]:
        for field in self.fields:
            yield "attributes", field
        yield from super().roles()

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse attributes that do not fit together."""
        yield from prefixed("schema_file", self._imported[1])
        fields = [attribute.field for attribute in self.attributes]
        for field in sorted({field for field in fields if fields.count(field) > 1}):
            yield ConfigProblem("attributes", f'name "{field}" twice', "remove one of the two")
        count = len(self.all_attributes)
        if not 1 <= count <= MAX_ATTRIBUTES:
            yield ConfigProblem(
                "attributes", f"are {count}; a table has 1 to {MAX_ATTRIBUTES}", "list those that matter"
            )
        yield from self._finding_problems()
        known = set(self.fields)
        for index, pair in enumerate(self.impossible):
            for key, field in (("left", pair.left), ("right", pair.right)):
                if field not in known:
                    yield ConfigProblem(
                        f"impossible[{index}].{key}", "is not an attribute", "name a field of attributes"
                    )
            if pair.left == pair.right:
                yield ConfigProblem(f"impossible[{index}].right", "is the same attribute as left", "name another one")
        yield from super().problems()

    def _finding_problems(self) -> Iterator[ConfigProblem]:
        """Refuse what values that are found later do not go together with."""
        found = {attribute.field for attribute in self.all_attributes if attribute.discovered}
        if len(found) > 1:
            yield ConfigProblem(
                "attributes",
                f'are {len(found)} with values = "discover", and each would take a share of the budget to be found',
                "keep one, list the values of the others, or discover one field that [streams.map] makes of several",
            )
        if found and self.op is not None:
            yield ConfigProblem(
                "op",
                "would delete rows from another cell than they were counted in: those that came before their value was "
                "found were counted as other",
                "remove op, or list the values; ttl is possible, as rows expire from where they were counted",
            )
        for index, pair in enumerate(self.impossible):
            for key, field in (("left", pair.left), ("right", pair.right)):
                if field in found:
                    yield ConfigProblem(
                        f"impossible[{index}].{key}",
                        "has values that nobody listed, of which nothing is known to be impossible",
                        "remove the entry, or list the values of the attribute",
                    )

    def fingerprint_fields(self) -> dict[str, Any]:
        impossible = [
            [pair.left, [_text(v) for v in pair.left_values], pair.right, [_text(v) for v in pair.right_values]]
            for pair in self.impossible
        ]
        attributes = [attribute.fingerprint_values() for attribute in self.all_attributes]
        return {**super().fingerprint_fields(), "attributes": attributes, "impossible": impossible}


def _finds(mode: str, privacy: Privacy | None, time: Timing | None) -> Iterator[ConfigProblem]:
    """Refuse modes and bounds under which no value is found."""
    if mode != "default":
        yield ConfigProblem(
            "domain.attributes", f'values = "discover" is for mode "default", not "{mode}"', 'set mode = "default"'
        )
    if privacy is not None and privacy.per is not None and time is not None and not steps_in(privacy.per, time.step):
        yield ConfigProblem(
            "privacy.per", "has periods of different numbers of steps", "write a length of one number of steps"
        )


MAX_WAYS = 3
BYTES_PER_CELL = 96
"""Estimated memory of the engine."""


Weight = Annotated[ExactDecimal, must(lambda value: value > 0, "must be above 0", "write 1, or leave the marginal out")]
Part = Annotated[
    ExactDecimal, must(lambda value: 0 <= value <= 1, "must lie between 0 and 1", "write 0.02 for two percent")
]


class Marginal(Section):
    """An entry of `marginals`."""

    header: ClassVar[str] = "[streams.options.marginals]"

    of: tuple[FieldName, ...] = Field(min_length=1, max_length=MAX_WAYS, examples=[["age", "income"]])
    """Attributes of the marginal, in any order."""
    weight: Weight = Decimal(1)
    """Importance relative to the other marginals."""


class TabularOptions(OptionsSection):
    """`[streams.options]` of engine `tabular`."""

    unpinned: ClassVar[frozenset[str]] = frozenset({"churn", "max_cells"})

    ways: tuple[StrictInt, ...] = Field((1, 2), examples=[[1, 2]])
    """Measure all marginals with these numbers of attributes, 1 to 3. One-way marginals are always measured."""
    marginals: tuple[Marginal, ...] = Field((), examples=[[{"of": ["age", "income"], "weight": 2}]])
    """Measure these marginals instead of those of `ways`."""
    records: StrictBool = Field(True, examples=[True])
    """Whether synthetic rows are published; if not, only measurements are."""
    churn: Part = Field(Decimal("0.02"), examples=[0.02])
    """Share of the table that a step may change, in addition to twice the estimated number of its events."""
    max_cells: StrictInt = Field(4_000_000, ge=1, le=1_000_000_000, examples=[4_000_000])
    """Largest number of cells of all marginals together; memory, state and work of a step are proportional to it."""
    rounds: Annotated[StrictInt, OnlyIn("paper")] = Field(4, ge=1, le=1000, examples=[4])
    """Mode `paper`: number of marginals that are selected and measured in a step."""
    counter: Annotated[CounterName, OnlyIn("paper")] = Field("simple", examples=["simple"])
    """Mode `paper`: the continual counter of each marginal."""
    horizon: Annotated[StrictInt | None, OnlyIn("paper")] = Field(None, ge=1, le=1_000_000_000, examples=[1000])
    """Mode `paper`: number of steps for a counter that is calibrated for one; the stream stops after them."""
    fit: Annotated[Literal["pgm", "joint"], OnlyIn("paper")] = Field("pgm", examples=["pgm"])
    """Mode `paper`: how the table is fitted, by Private-PGM (the extra `pgm`) or, if it is small, as a whole."""
    model_cells: Annotated[StrictInt, OnlyIn("paper")] = Field(4096, ge=1, le=100_000_000, examples=[4096])
    """Mode `paper`: largest number of cells of the model."""

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
                yield ConfigProblem(f"marginals[{index}].of", "repeats an earlier marginal", "remove it")
            seen.add(key)
        yield from horizon_problems(self.counter, self.horizon)

    def stream_problems(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Refuse marginals of unknown attributes, and too many cells."""
        if not isinstance(domain, TableDomainSection):
            return
        if domain.finds_values:
            yield from _finds(mode, privacy, time)
        known = set(domain.fields)
        yield from self._too_large(domain)
        for index, marginal in enumerate(self.marginals):
            for field in marginal.of:
                if field not in known:
                    yield ConfigProblem(
                        f"options.marginals[{index}].of",
                        "names a field that is not an attribute",
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
                "use coarser bins or fewer values, list the marginals that matter in options.marginals, or raise "
                "max_cells",
            )

    def fingerprint_fields(self) -> dict[str, Any]:
        marginals = [[*marginal.of, str(Fraction(marginal.weight))] for marginal in self.marginals]
        return {**super().fingerprint_fields(), "marginals": marginals}
