"""What a record may cost that is read with an Avro schema: its bytes bound its depth, its values and its numbers.

The library reads a value within another one by recursion in C, where a value that is deep enough ends the process, and
believes a count of items that take no bytes, of which ten bytes can announce 2^62. So a schema that allows this is
refused before anything is read with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

DEEPEST = 100
"""Values within each other, as for Protobuf."""
MOST_FREE = 1_000
"""Values of no bytes in one record: named types could double them level by level."""
BOUNDED_DECIMAL = "privstream-decimal"
"""Logical type of decimals here, read by a reader of our own."""


class _Cost(NamedTuple):
    """Of one value: how deep it can be, how many values in it take no bytes, and whether it may take none itself."""

    depth: int
    free: int
    empty: bool


_SOME = _Cost(1, 0, empty=False)
_NONE = _Cost(1, 1, empty=True)


def bound(schema: Any, named: Mapping[str, Any]) -> None:
    """See the module; renames the logical type of decimals in place.

    Args: schema, named: as the library parsed them. Raises: ValueError where reading with it has no bound.
    """
    _cost(schema, named, frozenset(), {})


def _cost(schema: Any, named: Mapping[str, Any], above: frozenset[str], known: dict[str, _Cost]) -> _Cost:
    """Args: above: records that this is in. known: what records cost."""
    if isinstance(schema, list):  # a union: the number of its branch is a byte
        each = [_cost(branch, named, above, known) for branch in schema]
        return _checked(each, max((one.free for one in each), default=0), empty=False)
    if isinstance(schema, str):
        if schema in named:
            return _cost(named[schema], named, above, known)
        return _NONE if schema == "null" else _SOME
    kind = schema["type"]
    if kind in ("record", "error"):
        return _record(schema, named, above, known)
    if kind in ("array", "map"):
        item = _cost(schema["items" if kind == "array" else "values"], named, above, known)
        if kind == "array" and item.empty:
            raise ValueError("an array of items that take no bytes")
        return _checked([item], item.free, empty=False)
    if kind in ("bytes", "fixed") and schema.get("logicalType") == "decimal":
        schema["logicalType"] = BOUNDED_DECIMAL
    if kind == "fixed":
        return _SOME if schema["size"] > 0 else _NONE
    return _SOME if kind == "enum" else _cost(kind, named, above, known)


def _record(schema: Any, named: Mapping[str, Any], above: frozenset[str], known: dict[str, _Cost]) -> _Cost:
    name = schema["name"]
    if name in above:
        raise ValueError("a record that can hold itself")
    if name not in known:
        each = [_cost(field["type"], named, above | {name}, known) for field in schema["fields"]]
        empty = all(one.empty for one in each)
        known[name] = _checked(each, sum(one.free for one in each) + empty, empty=empty)
    return known[name]


def _checked(parts: list[_Cost], free: int, *, empty: bool) -> _Cost:
    depth = 1 + max((one.depth for one in parts), default=0)
    if depth > DEEPEST or free > MOST_FREE:
        raise ValueError("values within each other, or values that take no bytes, beyond what any record needs")
    return _Cost(depth, free, empty=empty)
