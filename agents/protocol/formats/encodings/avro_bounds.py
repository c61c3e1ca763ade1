"""What a record may cost that is read with an Avro schema: its bytes bound its depth, its values and its numbers.

The library reads a value within another one by recursion in C, where a value that is deep enough ends the process, and
believes a count of items that take no bytes, of which ten bytes can announce 2^62. So a schema that allows the latter
is refused before anything is read with it. A type that can hold itself, as a tree, is read by the library's reader in
Python, where too deep a value is an error; how deep a value may be is a bound of ours, the same wherever it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

DEEPEST = 100
"""Values within each other, as for Protobuf. The reader in Python has room for its five calls for each."""
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


def bound(schema: Any, named: Mapping[str, Any]) -> bool:
    """See the module; renames the logical type of decimals in place.

    Args: schema, named: as the library parsed them.
    Returns: whether a type of it can hold itself: then `too_deep` must be asked of each value.
    Raises: ValueError where reading with it has no bound.
    """
    costs = _Costs(named)
    costs.of(schema)
    return costs.recursive


def too_deep(value: Any) -> bool:
    """Whether a value that was read holds values more than `DEEPEST` within each other."""
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
    """Of the types of a schema.

    Attributes:
        recursive: whether one can hold itself.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.recursive = False
        self._named = named
        self._known: dict[str, _Cost] = {}

    def of(self, schema: Any, above: frozenset[str] = frozenset(), endless: frozenset[str] = frozenset()) -> _Cost:
        """Args: above: records that this is in; endless: those that it is in whatever the value."""
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
        if kind in ("bytes", "fixed") and schema.get("logicalType") == "decimal":
            schema["logicalType"] = BOUNDED_DECIMAL
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
