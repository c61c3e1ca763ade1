"""Avro, each record with the schema that it was written with: names, unions and logical types as that says.

No reader's schema has a part in it: a field that a writer did not know is not there, whatever default another version
has. Logical types become Python's: decimal, date, times, timestamps. A value of one that no calendar has, such as the
infinity of a database, is wrong where it stands, and leaves the other fields of its record alone. A uuid is the text
that was written, since the key of its record is that text as well.

The bytes of a record bound its depth, its values and its numbers. The library reads a value within another one by
recursion in C, where a value that is deep enough ends the process, and believes a count of items that take no bytes, of
which ten bytes can announce 2^62. So a schema that allows the latter is refused before anything is read with it. A type
that can hold itself, as a tree, is read by the library's reader in Python, where too deep a value is an error; how deep
a value may be is a bound of ours, the same wherever it is read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from agents.protocol.formats.contract import SchemaEncoding, SchemaText, UnreadableError, framed
from agents.protocol.formats.values import NOT_FINITE, decimal_of
from schemas.events import Reason

DEEPEST = 100
"""Values within each other, as for Protobuf. The reader in Python has room for its five calls for each."""
MOST_FREE = 1_000
"""Values of no bytes in one record: named types could double them level by level."""
OURS = "privstream-"
"""Begins the logical types that readers of our own read: the library's stay what they are for others."""
_TIMES: Mapping[str, tuple[str, int]] = {
    "int-date": ("int-date", 1),
    "int-time-millis": ("int-time-millis", 1),
    "long-time-micros": ("long-time-micros", 1),
    **{
        f"long-{kind}-{unit}": (f"long-{kind}-{read_as}", divisor)
        for kind in ("timestamp", "local-timestamp")
        for unit, read_as, divisor in (("millis", "millis", 1), ("micros", "micros", 1), ("nanos", "micros", 1000))
    },
}
"""Type and logical type -> that by which the library reads it, and in how many of its units it is written."""


class _Cost(NamedTuple):
    """The cost of one value: how deep it can be, how many values in it take no bytes, and whether it may take none
    itself.
    """

    depth: int
    free: int
    empty: bool


_SOME = _Cost(1, 0, empty=False)
_NONE = _Cost(1, 1, empty=True)


def for_reading(schema: Any) -> Any:
    """Return a schema with all that reading needs: logical types are those of our readers, and there are no defaults,
    since no reader's schema has a part in it. What is wrong with a default or a precision is the writer's affair, and
    other libraries and registries let it pass.

    >>> for_reading({"type": "record", "name": "R", "fields": [{"name": "n", "type": "long", "default": "0"}]})
    {'type': 'record', 'name': 'R', 'fields': [{'name': 'n', 'type': 'long'}]}
    """
    if isinstance(schema, list):
        return [for_reading(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: for_reading(each) if key in ("type", "fields", "items", "values") else each
        for key, each in schema.items()
        if key != "default"
    }
    kind, logical = found.get("type"), found.get("logicalType")
    if isinstance(kind, str) and (f"{kind}-{logical}" in _TIMES or f"{kind}-{logical}" in _OTHERS):
        found["logicalType"] = f"{OURS}{logical}"
    return found


def bound(schema: Any, named: Mapping[str, Any]) -> bool:
    """Check that reading with a schema has a bound.

    Args: schema, named: as the library parsed them.
    Returns: whether a type of it can hold itself: then `too_deep` must be asked of each value.
    Raises: ValueError where reading with it has no bound.
    """
    costs = _Costs(named)
    costs.of(schema)
    return costs.recursive


def too_deep(value: Any) -> bool:
    """Return whether a value that was read holds values more than `DEEPEST` within each other."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return bool(level)


class _Costs:
    """The costs of the types of a schema; `recursive` where one can hold itself."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.recursive = False
        self._named = named
        self._known: dict[str, _Cost] = {}

    def of(self, schema: Any, above: frozenset[str] = frozenset(), endless: frozenset[str] = frozenset()) -> _Cost:
        """Return the cost of a type. Args: above: records that it is in; endless: those it is in whatever the value."""
        if isinstance(schema, list):  # a union: the number of its branch is a byte
            each = [self.of(branch, above) for branch in schema]
            return _checked(each, max((one.free for one in each), default=0), empty=False)
        if isinstance(schema, str):
            if schema in self._named:
                return self.of(self._named[schema], above, endless)
            return _NONE if schema == "null" else _SOME
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, above, endless)
        if kind in ("array", "map"):
            item = self.of(schema["items" if kind == "array" else "values"], above)
            if kind == "array" and item.empty:
                raise ValueError("an array of items that take no bytes")
            return _checked([item], item.free, empty=False)
        if kind == "fixed":
            return _SOME if schema["size"] > 0 else _NONE
        return _SOME if kind == "enum" else self.of(kind, above, endless)

    def _record(self, schema: Any, above: frozenset[str], endless: frozenset[str]) -> _Cost:
        name = schema["name"]
        if name in endless:
            raise ValueError("a record that always holds itself: no value has an end")
        if name in above:
            self.recursive = True
            return _SOME  # there is a byte between the two: of a union, or of a count
        if name not in self._known:
            inside, always = above | {name}, endless | {name}
            each = [self.of(field["type"], inside, always) for field in schema["fields"]]
            empty = all(one.empty for one in each)
            self._known[name] = _checked(each, sum(one.free for one in each) + empty, empty=empty)
        return self._known[name]


def _checked(parts: list[_Cost], free: int, *, empty: bool) -> _Cost:
    depth = 1 + max((one.depth for one in parts), default=0)
    if depth > DEEPEST or free > MOST_FREE:
        raise ValueError("values within each other, or values that take no bytes, beyond what any record needs")
    return _Cost(depth, free, empty=empty)


class AvroEncoding(SchemaEncoding):
    """Avro behind the id of its writer's schema."""

    kind = "AVRO"

    @staticmethod
    def reader_of(text: SchemaText) -> Callable[[io.BytesIO], Any]:
        """Raises: whatever the library does where a schema is none; ValueError where reading with it has no bound."""
        import fastavro

        named: dict[str, Any] = {}
        for _, each in text.references:
            fastavro.parse_schema(for_reading(msgspec.json.decode(each)), named_schemas=named)
        parsed = fastavro.parse_schema(for_reading(msgspec.json.decode(text.text)), named_schemas=named)
        recursive = bound(parsed, named)
        fastavro.read.LOGICAL_READERS.update(_readers(fastavro.read.LOGICAL_READERS))
        if not recursive:
            return lambda stream: fastavro.schemaless_reader(stream, parsed, None)
        # A seventh as fast; where a value is too deep it raises RecursionError, and the reader in C ends the process.
        from fastavro._read_py import schemaless_reader

        def read(stream: io.BytesIO) -> Any:
            found = schemaless_reader(stream, parsed, None)
            if too_deep(found):
                raise ValueError("values within each other, beyond what any record needs")
            return found

        return read

    def read(self, data: bytes, header: bytes | None) -> Any:
        ref, begin = framed(data, header)
        read = self.book.reader(ref, self.kind)
        stream = io.BytesIO(data)
        stream.seek(begin)
        try:
            document = read(stream)
        except Exception:  # the library raises whatever the bytes lead it to
            raise UnreadableError(Reason.UNREADABLE) from None
        if stream.tell() != len(data):  # bytes that the schema does not explain
            raise UnreadableError(Reason.UNREADABLE)
        return document


def _readers(known: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """Return our readers by the names under which the library looks for them. Args: known: its own."""
    found: dict[str, Callable[..., Any]] = {name: _time(known[of], divisor) for name, (of, divisor) in _TIMES.items()}
    return {name.replace("-", f"-{OURS}", 1): read for name, read in {**found, **_OTHERS}.items()}


def _time(read: Callable[..., Any], divisor: int) -> Callable[..., Any]:
    """Return a reader of times, dates and instants; of one that Python's calendar does not have it gives what no field
    can be.
    """

    def within(data: int, schema: Any = None, _: Any = None) -> Any:
        try:
            return read(data if divisor == 1 else data // divisor, schema)
        except (ValueError, OverflowError):
            return NOT_FINITE

    return within


def _decimal(data: bytes, schema: Any = None, _: Any = None) -> Any:
    """Return a decimal as it was written, where the library would round it to the precision that its schema claims."""
    return decimal_of(data, schema.get("scale", 0))


def _uuid(data: bytes, schema: Any = None, _: Any = None) -> Any:
    if len(data) != 16:
        return data
    digits = data.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


_OTHERS: Mapping[str, Callable[..., Any]] = {
    "bytes-decimal": _decimal,
    "fixed-decimal": _decimal,
    "string-uuid": lambda data, schema=None, _=None: data,
    "fixed-uuid": _uuid,
}
