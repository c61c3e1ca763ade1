"""Attributes of a table: which raw JSON values there are, what code each has, and how a code becomes a value again.

Public by declaration: nothing here is learnt from data. A code is an index from 0. Codes of listed values or bins come
first, in their order, then "other" where the attribute has it, then "missing".

| raw value                                   | code, or why the event is not used        |
|---------------------------------------------|-------------------------------------------|
| null or absent                              | "missing" if `missing`, else MISSING_FIELD |
| true, where no boolean is listed            | WRONG_TYPE; so for texts and numbers      |
| 1.0, where 1 is listed                      | that of 1: JSON knows one kind of number  |
| not listed, or outside all bins             | as `unknown` says                         |
| a bin's lower edge                          | that bin; the last edge is in the last bin |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Literal, Protocol

import numpy as np

from engines.core.contract import ScalarKind
from schemas.arrays import FloatArray, IntArray, ReasonArray
from schemas.errors import EngineInputError
from schemas.events import Reason

Scalar = str | int | float | bool | None
Unknown = Literal["refuse", "other", "clamp"]

MAX_VALUES = 1000
"""Codes of one attribute, with "other" and "missing"."""
OTHER = "other"
_LARGEST = 2.0**53


def kind_of(value: object) -> str:
    """`boolean`, `number`, `text` or `null`: what JSON can tell apart; `other` for what is no scalar."""
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case None:
            return "null"
    return "other"


class Attribute(Protocol):
    """What an attribute of either kind can do."""

    @property
    def name(self) -> str:
        """Field of the raw event."""
        ...

    @property
    def size(self) -> int:
        """Number of codes."""
        ...

    @property
    def unknown(self) -> Unknown:
        """What becomes of values that are not listed."""
        ...

    @property
    def missing(self) -> bool:
        """Whether null and absent are a value."""
        ...

    @property
    def kinds(self) -> frozenset[ScalarKind]:
        """What its values can be, null and what is shown for "other" apart."""
        ...

    def encode(self, values: Sequence[Any]) -> tuple[IntArray, ReasonArray]:
        """Codes and reasons, `(events,)` each; where a reason is not 0 the code is 0 and means nothing."""
        ...

    def decode(self, codes: IntArray, fractions: FloatArray) -> list[Scalar]:
        """Raw values of codes; `fractions` `(codes,)` in [0, 1) say where in its bin a number lies."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """An attribute with listed values.

    Args:
        values: distinct texts, numbers or booleans, at least one.
        missing: null and absent are a value of their own, drawn back as null.
        unknown: `refuse` events with another value of a listed type, or count them as `other`.
        other_value: what a synthetic record shows for "other"; must not be listed.
    Raises: EngineInputError.

    >>> sex = Category(name="sex", values=("f", "m"), missing=True)
    >>> [array.tolist() for array in sex.encode(["m", None, "x", 3])]
    [[1, 2, 0, 0], [0, 0, 12, 3]]
    >>> sex.decode(np.array([0, 2]), np.zeros(2))
    ['f', None]
    """

    name: str
    values: tuple[Scalar, ...]
    missing: bool = False
    unknown: Literal["refuse", "other"] = "refuse"
    other_value: str = OTHER
    _lookup: Mapping[Scalar, int] = field(init=False, repr=False, compare=False)
    _booleans: Mapping[bool, int] = field(init=False, repr=False, compare=False)
    kinds: frozenset[ScalarKind] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kinds = {kind_of(value) for value in self.values}
        if not self.values or not kinds <= {"text", "number", "boolean"}:
            raise EngineInputError(f"attribute {self.name!r} needs values that are texts, numbers or booleans")
        if any(isinstance(value, float) and not math.isfinite(value) for value in self.values):
            raise EngineInputError(f"attribute {self.name!r} lists a number that is not finite")
        # Python takes True for 1, JSON does not: booleans have a table of their own.
        lookup = {value: code for code, value in enumerate(self.values) if not isinstance(value, bool)}
        booleans = {value: code for code, value in enumerate(self.values) if isinstance(value, bool)}
        if len(lookup) + len(booleans) != len(self.values):
            raise EngineInputError(f"attribute {self.name!r} lists a value twice")
        if self.unknown == "other":
            if self.other_value in lookup:
                raise EngineInputError(f"attribute {self.name!r} lists its other_value, {self.other_value!r}")
            lookup[self.other_value] = len(self.values)
        _check_size(self)
        object.__setattr__(self, "_lookup", lookup)
        object.__setattr__(self, "_booleans", booleans)
        object.__setattr__(self, "kinds", frozenset(kinds))

    @property
    def size(self) -> int:
        return len(self.values) + (self.unknown == "other") + self.missing

    @property
    def raw(self) -> tuple[Scalar, ...]:
        """The raw value of each code."""
        return (*self.values, *(self.other_value,) * (self.unknown == "other"), *(None,) * self.missing)

    def encode(self, values: Sequence[Any]) -> tuple[IntArray, ReasonArray]:
        """See `Attribute.encode`."""
        find, boolean = self._lookup.get, self._booleans.get
        if "number" in self.kinds or "boolean" in self.kinds:
            found: Iterable[int] = (boolean(v, -1) if v is True or v is False else find(v, -1) for v in values)
        else:
            found = map(find, values, repeat(-1))  # no boolean is taken for a text
        codes = np.fromiter(found, np.int64, len(values))
        reasons = np.zeros(len(values), np.uint8)
        for row in np.flatnonzero(codes < 0).tolist():
            codes[row], reasons[row] = self._miss(values[row])
        return codes, reasons

    def _miss(self, value: object) -> tuple[int, Reason]:
        if value is None:
            return (self.size - 1, Reason.ACCEPTED) if self.missing else (0, Reason.MISSING_FIELD)
        if kind_of(value) not in self.kinds:
            return 0, Reason.WRONG_TYPE
        return (len(self.values), Reason.ACCEPTED) if self.unknown == "other" else (0, Reason.OUTSIDE_DOMAIN)

    def decode(self, codes: IntArray, fractions: FloatArray) -> list[Scalar]:
        """See `Attribute.decode`; fractions are not used."""
        raw = self.raw
        return [raw[code] for code in codes.tolist()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numeric:
    """An attribute with numbers in bins.

    Args:
        edges: ascending, one more than bins; lower edges belong to a bin, and the last edge to the last one.
        integer: numbers drawn back are whole; each bin must hold one.
        points: None draws back uniformly within the bin; else the number of each bin, which must lie in it.
        missing: null and absent are a value of their own, drawn back as null.
        unknown: `refuse` events outside all bins, count them as `other`, or `clamp` them to the nearest bin.
        other_value: what a synthetic record shows for "other".
    Raises: EngineInputError.

    >>> age = Numeric(name="age", edges=(0, 18, 65, 120), integer=True)
    >>> [array.tolist() for array in age.encode([17.5, 18, 120, 121, "old"])]
    [[0, 1, 2, 0, 0], [0, 0, 0, 12, 3]]
    >>> age.decode(np.array([0, 1]), np.array([0.999, 0.0]))
    [17, 18]
    """

    name: str
    edges: tuple[float, ...]
    integer: bool = False
    points: tuple[float, ...] | None = None
    missing: bool = False
    unknown: Unknown = "refuse"
    other_value: str = OTHER

    def __post_init__(self) -> None:
        edges = np.array(self.edges, np.float64)
        if edges.ndim != 1 or len(edges) < 2 or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
            raise EngineInputError(f"attribute {self.name!r} needs two or more finite edges in ascending order")
        _check_size(self)
        if self.integer and np.abs(edges).max() > _LARGEST:
            raise EngineInputError(f"attribute {self.name!r} is integer but has an edge beyond 2**53")
        if self.integer and (self._last < self._first).any():
            raise EngineInputError(f"attribute {self.name!r} has a bin without a whole number")
        if self.points is not None:
            points = np.array(self.points, np.float64)
            if points.shape != (self.bins,) or not np.array_equal(self._bin(points), np.arange(self.bins)):
                raise EngineInputError(f"attribute {self.name!r} needs one point in each bin, in their order")
            if self.integer and (points != np.rint(points)).any():
                raise EngineInputError(f"attribute {self.name!r} is integer but has a point that is not")

    @property
    def kinds(self) -> frozenset[ScalarKind]:
        return frozenset(("number",))

    @property
    def bins(self) -> int:
        return len(self.edges) - 1

    @property
    def size(self) -> int:
        return self.bins + (self.unknown == "other") + self.missing

    @property
    def _first(self) -> FloatArray:
        """First whole number of each bin."""
        return np.ceil(np.array(self.edges[:-1], np.float64))

    @property
    def _last(self) -> FloatArray:
        """Last whole number of each bin."""
        last = np.ceil(np.array(self.edges[1:], np.float64)) - 1
        last[-1] = math.floor(self.edges[-1])
        return last

    def _bin(self, numbers: FloatArray) -> IntArray:
        """Bin of each number; -1 below all bins, `bins` above."""
        edges = np.array(self.edges, np.float64)
        found = np.searchsorted(edges, numbers, side="right").astype(np.int64) - 1
        bins: IntArray = found - (numbers == edges[-1])
        return bins

    def encode(self, values: Sequence[Any]) -> tuple[IntArray, ReasonArray]:
        """See `Attribute.encode`."""
        numbers = np.fromiter((_number(value) for value in values), np.float64, len(values))
        codes = self._bin(numbers)
        reasons = np.zeros(len(values), np.uint8)
        for row in np.flatnonzero(np.isnan(numbers)).tolist():
            codes[row], reasons[row] = self._not_a_number(values[row])
        usual = ~np.isnan(numbers)
        outside = usual & ((codes < 0) | (codes >= self.bins))
        match self.unknown:
            case "clamp":
                codes[outside] = np.clip(codes[outside], 0, self.bins - 1)
            case "other":
                codes[outside] = self.bins
            case "refuse":
                codes[outside], reasons[outside] = 0, Reason.OUTSIDE_DOMAIN
        return codes, reasons

    def _not_a_number(self, value: object) -> tuple[int, Reason]:
        if value is None:
            return (self.size - 1, Reason.ACCEPTED) if self.missing else (0, Reason.MISSING_FIELD)
        if self.unknown == "other" and value == self.other_value:
            return self.bins, Reason.ACCEPTED
        return 0, Reason.NOT_FINITE if isinstance(value, float) else Reason.WRONG_TYPE

    def decode(self, codes: IntArray, fractions: FloatArray) -> list[Scalar]:
        """See `Attribute.decode`. `encode` gives the code back, whatever the fraction."""
        special: dict[int, Scalar] = {self.bins: self.other_value} if self.unknown == "other" else {}
        if self.missing:
            special[self.size - 1] = None
        bins = np.minimum(codes, self.bins - 1)
        numbers = self._drawn(bins, fractions)
        drawn = numbers.astype(np.int64).tolist() if self.integer else numbers.tolist()
        if not special:
            return list(drawn)
        return [special.get(code, number) for code, number in zip(codes.tolist(), drawn, strict=True)]

    def _drawn(self, bins: IntArray, fractions: FloatArray) -> FloatArray:
        if self.points is not None:
            return np.array(self.points, np.float64)[bins]
        if self.integer:
            first, last = self._first[bins], self._last[bins]
            return np.minimum(first + np.floor(fractions * (last - first + 1)), last)
        edges = np.array(self.edges, np.float64)
        low, high = edges[bins], edges[bins + 1]
        # A product that rounds up to the upper edge would be in the next bin.
        return np.minimum(low + fractions * (high - low), np.nextafter(high, low))


def _number(value: object) -> float:
    """The number, or nan for what is none."""
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return math.nan


def _check_size(attribute: Attribute) -> None:
    if not 1 <= attribute.size <= MAX_VALUES:
        raise EngineInputError(
            f"attribute {attribute.name!r} has {attribute.size} values, more than {MAX_VALUES}: "
            "list fewer values or coarser bins"
        )
