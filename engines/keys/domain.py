"""The domain of keys that nobody listed: values of fields as bytes of public width.

A key is its fields as UTF-8 in NFC, one after the other with a NUL between them, filled up with NULs to whole words of
eight bytes, the first byte highest: so words have the order of bytes. A number is written as JSON has it, after U+0001,
and a boolean after U+0002: 1, true and "1" are three keys; 1 and 1.0 are one. Where events bring a value
(`engines.keys.values`), its level is one more word, behind those of the key.

Which raw values are no key, and why, is in docs/engines/keys.md, "What is a key". Beside these:

| raw value                                        | why the event is not used            |
|--------------------------------------------------|--------------------------------------|
| a text that is not Unicode (half of a pair)      | OUTSIDE_DOMAIN                       |
| a key outside of the public sample               | DROPPED: it is no event              |
| a key that is not on the public list, if there is one | OUTSIDE_DOMAIN; the first field is at fault |
| a point outside of the grid, if keys are its cells | OUTSIDE_DOMAIN; the coordinate that is beyond it is at fault |
| a coordinate or a value that is infinite, or no number | NOT_FINITE                     |
| a value beyond its limits                        | it is: clipped to them, and counted as such |
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from engines.core.contract import Columns, ScalarKind
from engines.core.coordinates import coordinates_at_fault, refused
from engines.keys.grid import KeyGrid
from engines.keys.values import BoundedValue
from schemas.arrays import BoolArray, KeyArray, ReasonArray
from schemas.errors import EngineInputError
from schemas.events import Reason

Scalar = str | int | float | bool
Name = tuple[bytes, ...]
"""The values of a key's fields as `written` tells them apart: 1, true and "1" are three, 1 and 1.0 are one."""
_ANY: frozenset[ScalarKind] = frozenset(("text", "number", "boolean"))
_BETWEEN, _NUMBER, _BOOLEAN = b"\0", b"\x01", b"\x02"
_WORD = 8
_WHOLE = 2**63
_OF_BYTE = 2
"""Characters of a text, at most, that a byte of its form NFC is made of."""


def written(value: object, *, most: int | None = None) -> bytes | Reason:
    """Return the bytes of one value, or why it has none.

    Args: most: bytes that a text may have, which one that is far longer is not asked for: to bring it into NFC takes
        the square of its length, minutes for a megabyte, in which this process does nothing else.

    >>> written("caf\\u0065\\u0301") == written("caf\\u00e9"), written(2.0) == written(2), written(True)
    (True, True, b'\\x02true')
    """
    match value:
        case bool():
            return _BOOLEAN + json.dumps(value).encode()
        case float() if not math.isfinite(value):
            return Reason.NOT_FINITE
        case int() | float():
            within = -_WHOLE <= value < _WHOLE
            number = int(value) if within and value == int(value) else value
            if isinstance(number, int) and not within:
                return Reason.OUTSIDE_DOMAIN
            return _NUMBER + json.dumps(number).encode()
        case str() if most is not None and len(value) > _OF_BYTE * most:
            return Reason.OUTSIDE_DOMAIN
        case str():
            try:
                text = unicodedata.normalize("NFC", value).encode()
            except UnicodeEncodeError:
                return Reason.OUTSIDE_DOMAIN
            return Reason.OUTSIDE_DOMAIN if _BETWEEN in text or text[:1] in (_NUMBER, _BOOLEAN) else text
        case None:
            return Reason.MISSING_FIELD
    return Reason.WRONG_TYPE


def read(text: bytes) -> Scalar:
    """Return the value of bytes that `written` made."""
    if text[:1] in (_NUMBER, _BOOLEAN):
        value: Scalar = json.loads(text[1:])
        return value
    return text.decode()


def name_of(values: Iterable[object]) -> Name:
    """Return the name of a key with these values; what can be no part of a key is taken for an empty text."""
    return tuple(part if isinstance(part, bytes) else b"" for part in map(written, values))


def row_bytes(keys: KeyArray) -> np.ndarray:
    """Return keys as `(keys,)` bytes, which have the order of their words; NULs at the end are no part of a key."""
    return np.ascontiguousarray(keys.astype(">u8")).view(f"S{_WORD * keys.shape[1]}").reshape(len(keys))


def key_of(values: Sequence[Scalar]) -> bytes:
    """Return the key of public values of all fields. Raises: EngineInputError if one of them can be in no record."""
    parts = [written(value) for value in values]
    if any(isinstance(part, Reason) for part in parts):
        raise EngineInputError("a key of the public list has a value that no record can have")
    return _BETWEEN.join(part for part in parts if isinstance(part, bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysDomain:
    """Implements `engines.core.contract.Domain`, and names the fields at fault.

    Args:
        fields: of the key, in order. max_bytes: of a key. one_in: of all keys, by their hash, one in so many is an
            event at all; the hash is public. listed: all keys there are, as bytes; empty: nobody listed them.
        grid: of whose cells, row by row, `listed` has the middles; None: records have the fields of the key.
        value: what events bring to a key; None: they are only counted.

    >>> domain = KeysDomain(fields=("page", "n"))
    >>> keys, reasons = domain.encode(Columns({}, {}, np.ones(2, np.int8), {"page": ["a", "b"], "n": [1, None]}))
    >>> reasons.tolist(), domain.decode(keys[:1])
    ([0, 2], [('a', 1)])
    """

    written_as: ClassVar[str] = "KeysDomain"
    text_fields: ClassVar[tuple[str, ...]] = ()

    fields: tuple[str, ...]
    max_bytes: int = 64
    one_in: int = 1
    listed: tuple[bytes, ...] = ()
    grid: KeyGrid | None = None
    value: BoundedValue | None = None
    _known: frozenset[bytes] = field(default=frozenset(), init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.fields or self.max_bytes < 1 or self.one_in < 1:
            raise EngineInputError("a domain of keys needs a field, and positive limits")
        object.__setattr__(self, "_known", frozenset(self.listed))

    @property
    def number_fields(self) -> tuple[str, ...]:
        return (*(() if self.grid is None else self.fields), *(() if self.value is None else (self.value.field,)))

    @property
    def value_fields(self) -> Mapping[str, frozenset[ScalarKind]]:
        return dict.fromkeys(self.fields, _ANY) if self.grid is None else {}

    @property
    def key_words(self) -> int:
        """Number of words of a key."""
        return -(-self.max_bytes // _WORD)

    @property
    def words(self) -> int:
        """Number of words of an event: of its key, and one for its value."""
        return self.key_words + (self.value is not None)

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        rows = self._written(columns)
        keys = self.packed([row if isinstance(row, bytes) else b"" for row in rows])
        reasons = np.array([0 if isinstance(row, bytes) else row[0] for row in rows], np.uint8)
        if self.value is not None:
            values = columns.numbers[self.value.field]
            finite = np.isfinite(values)
            reasons[~finite & (reasons == 0)] = Reason.NOT_FINITE
            levels = self.value.levels(np.where(finite, values, self.value.low))
            keys = np.column_stack((keys, levels))
        return keys, reasons

    def clipped(self, columns: Columns) -> BoolArray:
        """See `engines.core.contract.ClippingDomain`."""
        if self.value is None:
            return np.zeros(len(columns.operations), np.bool_)
        return self.value.clipped(columns.numbers[self.value.field])

    def pairs(self, keys: KeyArray) -> KeyArray:
        """See `engines.core.contract.PairDomain`: a key is the same whatever value comes with it."""
        return keys[:, : self.key_words]

    def at_fault(self, columns: Columns) -> Sequence[str]:
        """See `engines.core.contract.FaultNamingDomain`: the first field that is no part of a key, or the longest; and
        the value, where the key is none.
        """
        value, rows = "" if self.value is None else self.value.field, self._written(columns)
        if self.grid is not None:
            outside = coordinates_at_fault(columns, (self.grid.x, self.grid.y), self.grid.bounds)
            return [value if isinstance(row, bytes) else name for row, name in zip(rows, outside, strict=True)]
        return [value if isinstance(row, bytes) else row[1] for row in rows]

    def packed(self, keys: Sequence[bytes]) -> KeyArray:
        """Return `(keys, key_words)` of keys as bytes, none longer than `max_bytes`."""
        width = _WORD * self.key_words
        filled = np.array(keys, f"S{width}").reshape(len(keys))
        return filled.view(">u8").reshape(len(keys), self.key_words).astype(np.uint64)

    @property
    def public(self) -> KeyArray:
        """Return `(listed, key_words)` the keys of the public list, ascending."""
        return self.packed(sorted(self.listed))

    def decode(self, keys: KeyArray) -> list[tuple[Scalar, ...]]:
        """Return the values of the fields of keys, texts in NFC."""
        return [self._read(text) for text in row_bytes(keys).tolist()]

    def _read(self, text: bytes) -> tuple[Scalar, ...]:
        # NULs at the end are gone: empty texts there.
        parts = text.split(_BETWEEN)
        values = tuple(read(part) for part in parts + [b""] * (len(self.fields) - len(parts)))
        return values if self.grid is None else tuple(map(float, values))

    def _written(self, columns: Columns) -> list[bytes | tuple[Reason, str]]:
        if self.grid is not None:
            return self._in_cells(self.grid, columns)
        return [self._key(values) for values in zip(*(columns.values[name] for name in self.fields), strict=True)]

    def _in_cells(self, grid: KeyGrid, columns: Columns) -> list[bytes | tuple[Reason, str]]:
        x, y = columns.numbers[grid.x], columns.numbers[grid.y]
        cells = grid.cells(x, y).tolist()
        reasons = refused(x, y).tolist()
        return [self.listed[c] if c >= 0 else (Reason(r), "") for c, r in zip(cells, reasons, strict=True)]

    def _key(self, values: Sequence[Any]) -> bytes | tuple[Reason, str]:
        """Return a key as bytes, or why there is none and the field at fault."""
        parts: list[bytes] = []
        for name, value in zip(self.fields, values, strict=True):
            part = written(value, most=self.max_bytes)
            if isinstance(part, Reason):
                return part, name
            parts.append(part)
        key = _BETWEEN.join(parts)
        if len(key) > self.max_bytes:
            longest = max(range(len(parts)), key=lambda at: len(parts[at]))
            return Reason.OUTSIDE_DOMAIN, self.fields[longest]
        if self._known and key not in self._known:
            return Reason.OUTSIDE_DOMAIN, self.fields[0]
        if self.one_in > 1 and not self.sampled(key):
            return Reason.DROPPED, ""
        return key

    def sampled(self, key: bytes) -> bool:
        """Whether a key is in the public sample. Trailing empty fields are no part of its hash."""
        digest = hashlib.sha256(key.rstrip(_BETWEEN)).digest()
        return int.from_bytes(digest[:8], "big") % self.one_in == 0
