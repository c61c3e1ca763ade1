"""The domain of a table: attributes with public values, combinations that cannot be, and the keys of rows.

Public by declaration: nothing here is learnt from data. An event is one row, inserted or deleted. Its key holds one
code for each attribute and the operation. Of an event with several faults the first attribute's is reported; a
combination that cannot be is OUTSIDE_DOMAIN. A code is an index from 0. Codes of listed values or bins come first, in
their order, then "other" where the attribute has it, then "missing".

| raw value                                   | code, or why the event is not used        |
|---------------------------------------------|-------------------------------------------|
| null or absent                              | "missing" if `missing`, else MISSING_FIELD |
| true, where no boolean is listed            | WRONG_TYPE; so for texts and numbers      |
| 1.0, where 1 is listed                      | that of 1: JSON knows one kind of number  |
| not listed, or outside all bins             | as `unknown` says                         |
| a bin's lower edge                          | that bin; the last edge is in the last bin |

Of an attribute whose values are found (`Discovered`) an event's key has the text itself, behind its row: which code it
has is for the engine to say, by what was found before.

What an attribute may list is checked where it is configured (`schemas.config.engines.tabular.AttributeSection`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from engines.core.contract import Columns, ScalarKind
from engines.keys.domain import KeysDomain, row_bytes, written
from schemas.arrays import BoolArray, FloatArray, IntArray, KeyArray, ReasonArray
from schemas.config.engines.tabular import AttributeSection, Discover, Listed
from schemas.config.values import Number
from schemas.errors import EngineInputError
from schemas.events import Reason

Scalar = str | int | float | bool | None
_ROOM = 1 << 64


def kind_of(value: object) -> str:
    """Return what JSON can tell apart, `boolean`, `number`, `text` or `null`; `other` for what is no scalar."""
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


class Attribute(AttributeSection, ABC):
    """An attribute as it is configured, which makes codes of raw values and raw values of codes."""

    @property
    def name(self) -> str:
        """Field of the raw event."""
        return self.field

    @property
    @abstractmethod
    def kinds(self) -> frozenset[ScalarKind]:
        """What its values can be, null and what is shown for "other" apart."""

    @abstractmethod
    def encode(self, values: Sequence[Any]) -> tuple[IntArray, ReasonArray]:
        """Return codes and reasons, `(events,)` each; where a reason is not 0 the code is 0 and means nothing."""

    @abstractmethod
    def decode(self, codes: IntArray, fractions: FloatArray) -> list[Scalar]:
        """Return raw values of codes; `fractions` `(codes,)` in [0, 1) say where in its bin a number lies."""

    @property
    def binary(self) -> bool:
        """Whether it has two codes, now and for ever. Public."""
        return self.size == 2

    def _null(self) -> tuple[int, Reason]:
        return (self.size - 1, Reason.ACCEPTED) if self.missing else (0, Reason.MISSING_FIELD)


class Category(Attribute):
    """An attribute with listed values.

    >>> sex = Category(field="sex", values=("f", "m"), missing=True)
    >>> [array.tolist() for array in sex.encode(["m", None, "x", 3])]
    [[1, 2, 0, 0], [0, 0, 12, 3]]
    >>> sex.decode(np.array([0, 2]), np.zeros(2))
    ['f', None]
    """

    values: tuple[Listed, ...]

    @cached_property
    def kinds(self) -> frozenset[ScalarKind]:
        return cast("frozenset[ScalarKind]", frozenset(map(kind_of, self.values)))

    @cached_property
    def _codes(self) -> tuple[Mapping[Scalar, int], Mapping[bool, int]]:
        """Codes of values. Python takes True for 1, JSON does not: booleans have a table of their own."""
        codes: dict[Scalar, int] = {v: code for code, v in enumerate(self.values) if not isinstance(v, bool)}
        booleans = {v: code for code, v in enumerate(self.values) if isinstance(v, bool)}
        if self.unknown == "other":
            codes[self.other] = len(self.values)
        return codes, booleans

    def encode(self, values: Sequence[Any]) -> tuple[IntArray, ReasonArray]:
        find, boolean = (codes.get for codes in self._codes)
        if "number" in self.kinds or "boolean" in self.kinds:
            found: Iterable[int] = (boolean(v, -1) if v is True or v is False else find(v, -1) for v in values)
        else:
            found = map(find, values, repeat(-1))  # no boolean is taken for a text
        codes = np.fromiter(found, np.int64, len(values))
        reasons = np.zeros(len(values), np.uint8)
        for row in np.flatnonzero(codes < 0).tolist():
            codes[row], reasons[row] = self._unlisted(values[row])
        return codes, reasons

    def _unlisted(self, value: object) -> tuple[int, Reason]:
        if value is None:
            return self._null()
        if kind_of(value) not in self.kinds:
            return 0, Reason.WRONG_TYPE
        return (len(self.values), Reason.ACCEPTED) if self.unknown == "other" else (0, Reason.OUTSIDE_DOMAIN)

    def decode(self, codes: IntArray, fractions: FloatArray) -> list[Scalar]:
        raw = (*self.values, *(self.other,) * (self.unknown == "other"), None)
        return [raw[code] for code in codes.tolist()]


class Discovered(Attribute):
    """An attribute with values that nobody listed: texts, of which some were found. A value that was not is "other".

    Codes are 0 for "other", 1 for "missing" (of no row where nulls are refused: marginals need two codes), and then
    those of found values in the order in which they were found: a code never changes its meaning.

    >>> page = Discovered(field="page", values="discover", found=("/",))
    >>> [array.tolist() for array in page.encode(["/", "/about", None, 7])]
    [[2, 0, 0, 0], [0, 0, 2, 3]]
    >>> page.decode(np.array([2, 0]), np.zeros(2))
    ['/', 'other']
    """

    values: Discover
    found: tuple[str, ...] = ()

    @property
    def kinds(self) -> frozenset[ScalarKind]:
        return frozenset(("text",))

    @property
    def size(self) -> int:
        return FOUND + len(self.found)

    @property
    def binary(self) -> bool:
        """Never: it has two codes for as long as nothing is found."""
        return False

    @property
    def words(self) -> int:
        """Number of words of a text in the key of an event."""
        return self._texts.words

    @cached_property
    def _texts(self) -> KeysDomain:
        return KeysDomain(fields=(self.field,), max_bytes=self.max_key_bytes)

    @cached_property
    def nameless(self) -> KeyArray:
        """The text that stands for other values, `(1, words)`, which is never found; zeros where it is too long."""
        text = written(self.other)
        fits = isinstance(text, bytes) and len(text) <= self.max_key_bytes
        return self._texts.packed([text if fits and isinstance(text, bytes) else b""])

    def with_found(self, texts: Sequence[str]) -> Discovered:
        """Return the attribute with these values found, after those before."""
        return self.revised(found=(*self.found, *texts))

    def texts(self, keys: KeyArray) -> list[str]:
        """Return the values of texts as words."""
        return [str(text) for (text,) in self._texts.decode(keys)]

    def packed(self, values: Sequence[Any]) -> KeyArray:
        """Return `(values, words)` texts as words; zeros for what is none, or no value."""
        return self._texts.packed([text if isinstance(text, bytes) else b"" for text in map(self._written, values)])

    def _written(self, value: object) -> bytes | Reason:
        if value is not None and not isinstance(value, str):
            return Reason.WRONG_TYPE
        text = written(value, most=self.max_key_bytes)
        return Reason.OUTSIDE_DOMAIN if isinstance(text, bytes) and len(text) > self.max_key_bytes else text

    def encode(self, values: Sequence[Any]) -> tuple[IntArray, ReasonArray]:
        codes, reasons = np.zeros(len(values), np.int64), np.zeros(len(values), np.uint8)
        found = {text.encode(): code for code, text in enumerate(self.found, FOUND)}
        for row, value in enumerate(values):
            text = self._written(value)
            if isinstance(text, bytes):
                codes[row] = found.get(text, OTHER)
            elif text == Reason.MISSING_FIELD and self.missing:
                codes[row] = MISSING
            else:
                reasons[row] = text
        return codes, reasons

    def decode(self, codes: IntArray, fractions: FloatArray) -> list[Scalar]:
        raw = (self.other, None if self.missing else self.other, *self.found)
        return [raw[code] for code in codes.tolist()]

    def placed(self, codes: IntArray, texts: KeyArray) -> IntArray:
        """Return codes of events as ingest gave them, with those of found values for "other", by their texts."""
        if not self.found:
            return codes
        known = row_bytes(self._texts.packed([text.encode() for text in self.found]))
        order = np.argsort(known)
        wanted = row_bytes(texts)
        places = np.minimum(np.searchsorted(known[order], wanted), len(order) - 1)
        same = (codes == OTHER) & (known[order][places] == wanted) & (texts != self.nameless).any(axis=1)
        return np.where(same, order[places] + FOUND, codes)


OTHER, MISSING, FOUND = 0, 1, 2
"""Codes of an attribute whose values are found, and the first one of a found value."""


class Numeric(Attribute):
    """An attribute with numbers in bins: of the edges, lower ones belong to a bin, and the last one to the last bin.

    >>> age = Numeric(field="age", edges=(0, 18, 65, 120), integer=True)
    >>> [array.tolist() for array in age.encode([17.5, 18, 120, 121, "old"])]
    [[0, 1, 2, 0, 0], [0, 0, 0, 12, 3]]
    >>> age.decode(np.array([0, 1]), np.array([0.999, 0.0]))
    [17, 18]
    >>> Numeric(field="fare", edges=(0, 2.5, 100), decimals=2).decode(np.array([0, 1]), np.array([0.9999, 0.3]))
    [2.49, 31.75]
    """

    edges: tuple[Number, ...]

    @property
    def kinds(self) -> frozenset[ScalarKind]:
        return frozenset(("number",))

    def encode(self, values: Sequence[Any]) -> tuple[IntArray, ReasonArray]:
        numbers = np.fromiter((_number(value) for value in values), np.float64, len(values))
        edges, bins = np.array(self.edges, np.float64), self.listed
        codes = np.searchsorted(edges, numbers, side="right").astype(np.int64) - 1 - (numbers == edges[-1])
        reasons = np.zeros(len(values), np.uint8)
        for row in np.flatnonzero(np.isnan(numbers)).tolist():
            codes[row], reasons[row] = self._not_a_number(values[row])
        outside = ~np.isnan(numbers) & ((codes < 0) | (codes >= bins))
        match self.unknown:
            case "clamp":
                codes[outside] = np.clip(codes[outside], 0, bins - 1)
            case "other":
                codes[outside] = bins
            case "refuse":
                codes[outside], reasons[outside] = 0, Reason.OUTSIDE_DOMAIN
        return codes, reasons

    def _not_a_number(self, value: object) -> tuple[int, Reason]:
        if value is None:
            return self._null()
        if self.unknown == "other" and value == self.other:
            return self.listed, Reason.ACCEPTED
        return 0, Reason.NOT_FINITE if isinstance(value, float) else Reason.WRONG_TYPE

    def decode(self, codes: IntArray, fractions: FloatArray) -> list[Scalar]:
        """Return values of which `encode` gives the code back, whatever the fraction."""
        special: dict[int, Scalar] = {self.listed: self.other} if self.unknown == "other" else {}
        if self.missing:
            special[self.size - 1] = None
        numbers = self._drawn(np.minimum(codes, self.listed - 1), fractions)
        drawn = numbers.astype(np.int64).tolist() if self.integer else numbers.tolist()
        if not special:
            return list(drawn)
        return [special.get(code, number) for code, number in zip(codes.tolist(), drawn, strict=True)]

    def _drawn(self, bins: IntArray, fractions: FloatArray) -> FloatArray:
        if self.points is not None:
            return np.array(self.points, np.float64)[bins]
        edges = np.array(self.edges, np.float64)
        if self.scale is not None:
            # Whole parts of a number: exact in floats, and a quotient is the float next to it.
            first, last = np.array(self.ends(self.scale), np.float64)[bins].T
            drawn: FloatArray = np.minimum(first + np.floor(fractions * (last - first + 1)), last) / self.scale
            return drawn
        low, high = edges[bins], edges[bins + 1]
        # A product that rounds up to the upper edge would be in the next bin.
        return np.minimum(low + fractions * (high - low), np.nextafter(high, low))


def _number(value: object) -> float:
    """Return the number, or nan for what is none."""
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return math.nan


@dataclass(frozen=True, slots=True)
class RowKeys:
    """Packs rows of codes over attributes of these sizes: mixed-radix codes, in as few uint64 words as they need.

    The lowest bit of the first word says delete. Attributes follow in order, each word taking as many as fit whole.

    >>> keys = RowKeys((3, 4))
    >>> packed = keys.pack(np.array([[2, 1], [0, 3]]), np.array([1, -1], np.int8))
    >>> packed.tolist(), keys.codes(packed).tolist()
    ([[10], [19]], [[2, 1], [0, 3]])
    """

    sizes: tuple[int, ...]
    _places: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)
    _limits: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places, limits = [], [2]
        for size in self.sizes:
            if limits[-1] * size > _ROOM:
                limits.append(1)
            places.append((len(limits) - 1, limits[-1]))
            limits[-1] *= size
        object.__setattr__(self, "_places", tuple(places))
        object.__setattr__(self, "_limits", tuple(limits))

    @property
    def words(self) -> int:
        """Number of words of one key."""
        return len(self._limits)

    def pack(self, codes: IntArray, operations: npt.NDArray[np.int8]) -> KeyArray:
        """Return keys `(rows, words)` uint64 of codes `(rows, attributes)`; operations are +1 insert, -1 delete."""
        keys = np.zeros((len(codes), self.words), np.uint64)
        keys[:, 0] = operations < 0
        for attribute, (word, stride) in enumerate(self._places):
            keys[:, word] += codes[:, attribute].astype(np.uint64) * np.uint64(stride)
        return keys

    def codes(self, keys: KeyArray) -> IntArray:
        """Return codes of keys, `(rows, attributes)` int64."""
        codes = np.empty((len(keys), len(self.sizes)), np.int64)
        for attribute, ((word, stride), size) in enumerate(zip(self._places, self.sizes, strict=True)):
            codes[:, attribute] = keys[:, word] // np.uint64(stride) % np.uint64(size)
        return codes

    def check(self, keys: KeyArray) -> None:
        """Raises: EngineInputError if keys are not `(rows, words)` uint64 or one is outside the domain."""
        if keys.ndim != 2 or keys.shape[1] != self.words or keys.dtype != np.uint64:
            raise EngineInputError(f"keys must be uint64, with {self.words} words each")
        for word, limit in enumerate(self._limits):
            if len(keys) and int(keys[:, word].max()) >= limit:
                raise EngineInputError("a key is outside the domain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Impossible:
    """A structural zero: no row has one of `left_codes` in attribute `left` together with one of `right_codes` in
    attribute `right`. Attributes by index, left < right.
    """

    left: int
    left_codes: tuple[int, ...]
    right: int
    right_codes: tuple[int, ...]

    def among(self, codes: IntArray) -> BoolArray:
        """Tell which rows of codes `(rows, attributes)` it is of, `(rows,)`."""
        return np.isin(codes[:, self.left], self.left_codes) & np.isin(codes[:, self.right], self.right_codes)


@dataclass(frozen=True, slots=True)
class TableDomain:
    """See the module; implements `engines.core.contract.Domain`.

    Args:
        attributes: at least one, with distinct names.
        impossible: structural zeros; a value that cannot occur with any value of another attribute is refused.
    Raises: EngineInputError.

    >>> domain = TableDomain((Category(field="sex", values=("f", "m")), Numeric(field="age", edges=(0, 18, 120))))
    >>> columns = Columns({}, {}, np.int8([1, -1]), {"sex": ["m", "f"], "age": [17, 130]})
    >>> [array.tolist() for array in domain.encode(columns)]
    [[[2], [0]], [0, 12]]
    """

    number_fields: ClassVar[tuple[str, ...]] = ()
    text_fields: ClassVar[tuple[str, ...]] = ()

    attributes: tuple[Attribute, ...]
    impossible: tuple[Impossible, ...] = ()
    keys: RowKeys = field(init=False, repr=False, compare=False)
    """Of events: no value that is found later has a code there."""

    def __post_init__(self) -> None:
        sizes = tuple(FOUND if isinstance(each, Discovered) else each.size for each in self.attributes)
        object.__setattr__(self, "keys", RowKeys(sizes))
        for left, right in sorted({(zero.left, zero.right) for zero in self.impossible}):
            possible = self.possible_pairs(left, right)
            if not (possible.any(axis=1).all() and possible.any(axis=0).all()):
                raise EngineInputError(
                    f"attributes {self.names[left]!r} and {self.names[right]!r}: structural zeros leave a value no "
                    "partner: remove the value or a zero"
                )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each attribute."""
        return tuple(attribute.size for attribute in self.attributes)

    @property
    def discovered(self) -> tuple[int, Discovered] | None:
        """The attribute whose values are found, with its index; None where all are listed."""
        found = ((index, each) for index, each in enumerate(self.attributes) if isinstance(each, Discovered))
        return next(found, None)

    def with_found(self, texts: Sequence[str]) -> TableDomain:
        """Return the domain in which these values are found, too."""
        attributes = [each.with_found(texts) if isinstance(each, Discovered) else each for each in self.attributes]
        return TableDomain(tuple(attributes), self.impossible)

    @property
    def rows(self) -> int:
        """How many different rows there can be, structural zeros included."""
        return math.prod(self.sizes)

    @property
    def value_fields(self) -> Mapping[str, frozenset[ScalarKind]]:
        return {attribute.name: attribute.kinds for attribute in self.attributes}

    @property
    def words(self) -> int:
        return self.keys.words + (0 if self.discovered is None else self.discovered[1].words)

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """Return keys `(events, words)` and reasons `(events,)`, see `engines.core.contract.Domain`.

        Where values are found the words of a text follow those of the row.
        """
        codes, reasons = self.encode_values([columns.values[name] for name in self.names], len(columns.operations))
        if self.discovered is None:
            keys = self.keys.pack(codes, columns.operations)
        else:
            index, attribute = self.discovered
            codes[:, index] = np.where(codes[:, index] == MISSING, MISSING, OTHER)
            row, texts = self.keys.pack(codes, columns.operations), attribute.packed(columns.values[attribute.name])
            keys = np.concatenate([row, texts], axis=1)
        keys[reasons != 0] = 0
        return keys, reasons

    def check(self, keys: KeyArray) -> None:
        """Raises: EngineInputError if keys are not those of events; a text may be any."""
        if keys.ndim != 2 or keys.shape[1] != self.words:
            raise EngineInputError(f"keys must have {self.words} words each")
        self.keys.check(keys[:, : self.keys.words])

    def codes(self, keys: KeyArray) -> IntArray:
        """Return codes of events, `(rows, attributes)`, those of found values among them."""
        codes = self.keys.codes(keys)
        if self.discovered is not None:
            index, attribute = self.discovered
            codes[:, index] = attribute.placed(codes[:, index], keys[:, self.keys.words :])
        return codes

    def at_fault(self, columns: Columns) -> list[str]:
        """See `engines.core.contract.FaultNamingDomain`."""
        rows = len(columns.operations)
        fields = [""] * rows
        codes = np.empty((rows, len(self.attributes)), np.int64)
        for index, attribute in enumerate(self.attributes):
            codes[:, index], faults = attribute.encode(columns.values[attribute.name])
            for row in np.flatnonzero(faults).tolist():
                fields[row] = fields[row] or attribute.name
        for zero in self.impossible:
            pair = f"{self.names[zero.left]} and {self.names[zero.right]}"
            for row in np.flatnonzero(zero.among(codes)).tolist():
                fields[row] = fields[row] or pair
        return fields

    def encode_values(self, columns: Sequence[Sequence[object]], rows: int) -> tuple[IntArray, ReasonArray]:
        """Return codes `(rows, attributes)` of raw columns in the attributes' order, and reasons `(rows,)`."""
        codes = np.empty((rows, len(self.attributes)), np.int64)
        reasons = np.zeros(rows, np.uint8)
        for index, (attribute, column) in enumerate(zip(self.attributes, columns, strict=True)):
            codes[:, index], fault = attribute.encode(column)
            reasons = np.where(reasons == 0, fault, reasons)
        if self.impossible:
            reasons[(reasons == 0) & ~self.possible(codes)] = Reason.OUTSIDE_DOMAIN
        return codes, reasons

    def decode_values(self, codes: IntArray, fractions: FloatArray) -> list[list[Scalar]]:
        """Return raw columns of codes `(rows, attributes)`; `fractions`, of that shape, place numbers in their bins."""
        return [a.decode(codes[:, i], fractions[:, i]) for i, a in enumerate(self.attributes)]

    def possible(self, codes: IntArray) -> BoolArray:
        """Tell which rows have no structural zero, `(rows,)`."""
        fine = np.ones(len(codes), np.bool_)
        for zero in self.impossible:
            fine &= ~zero.among(codes)
        return fine

    def possible_pairs(self, left: int, right: int) -> BoolArray:
        """Return `(size of left, size of right)`, False at structural zeros of these two attributes; left < right."""
        fine = np.ones((self.sizes[left], self.sizes[right]), np.bool_)
        for zero in self.impossible:
            if (zero.left, zero.right) == (left, right):
                fine[np.ix_(zero.left_codes, zero.right_codes)] = False
        return fine
