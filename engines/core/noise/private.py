"""Private values as a type: what may be added up and moved, but read by a mechanism alone.

Under test an engine is handed events that are `Hidden` (`engines.checks.coupling.sealed`). Functions marked `aggregate`
(they fold records into counts, and are listed in `tests/test_doors.py`) take them and give hidden counts. Mechanisms
open them.
Guarantee: none of its own. In production nothing is hidden: arrays are plain, and nothing here costs time.
Source: information-flow typing ([myers1999]) at run time; ours.
"""

from __future__ import annotations

import functools
import sys
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

P = ParamSpec("P")
T = TypeVar("T")


class PrivateValueRead(AssertionError):  # noqa: N818 - a verdict of the tests, like ContractBroken
    """A private value decided something, or left, without a mechanism. Names the operation, never the value."""


class Hidden:
    """A private value as a test hands it in. What is made of it is made such by `_again`."""

    __slots__ = ("_value",)
    _value: Any

    @abstractmethod  # without ABC: each value is asked whether it is one of these, which that makes slow
    def _again(self, value: Any) -> Any:
        """Return what is made of private values, private again."""


def _opened(value: Any) -> Any:
    match value:
        case Hidden():
            return value._value
        case tuple() if any(isinstance(each, Hidden | tuple | list) for each in value):
            return tuple(_opened(each) for each in value)
        case list() if any(isinstance(each, Hidden | tuple | list) for each in value):
            return [_opened(each) for each in value]
        case dict():
            return {name: _opened(each) for name, each in value.items()}
        case _ if hasattr(value, "_sealed_parts") and is_private(value):
            return value._sealed_parts(_opened)
        case _:
            return value


_PUBLIC = frozenset({bool, bytes, float, int, np.ndarray, str, type(None)})
"""Of which nearly all values are, and none that is private: they are asked for first."""


def _hidden_in(*values: Any) -> Hidden | None:
    """Return the first private value among these, or in a list, tuple or mapping of them."""
    for value in values:
        if type(value) in _PUBLIC:
            continue
        found: Hidden | None = None
        if isinstance(value, Hidden):
            found = value
        elif isinstance(value, list | tuple):
            found = _hidden_in(*value)
        elif isinstance(value, dict):
            found = _hidden_in(*value.values())
        elif hasattr(value, "_sealed_parts"):
            parts: list[Any] = []

            def look(part: Any, parts: list[Any] = parts) -> Any:
                parts.append(part)
                return part

            value._sealed_parts(look)
            found = next((part for part in parts if isinstance(part, Hidden)), None)
        if found is not None:
            return found
    return None


def is_private(*values: Any) -> bool:
    """Return whether one of these values is private, or a list, tuple or mapping holds one that is."""
    return _hidden_in(*values) is not None


OPENING = ("engines.core.noise.door", "engines.series.fields")
"""Modules that may open private values; in the last one, whether a reading came, which is public by declaration."""


def revealed(value: T) -> T:
    """Return what the door may read, and nobody else. Raises: PrivateValueRead where another module asks."""
    if is_private(value):
        asking = sys._getframe(1).f_globals["__name__"]
        if asking not in OPENING:
            raise PrivateValueRead(f"{asking} opens a private value, and is not the door")
    return cast("T", _opened(value))


def private_like(array: T, values: object) -> T:
    """Return `array`, private if `values` are: before private values are added to what began as public zeros."""
    hidden = _hidden_in(values)
    return array if hidden is None or is_private(array) else cast("T", hidden._again(array))


def aggregate(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a function that may look at private records and gives private counts, or private records again.

    Whoever marks one vouches that what it returns is private, or is the same for all neighbouring inputs; and that it
    keeps nothing else. The coupling tests look inside, `tests/test_doors.py` lists all of them.
    """

    @functools.wraps(function)
    def marked(*args: P.args, **options: P.kwargs) -> T:
        hidden = _hidden_in(*args, *options.values())
        if hidden is None:
            return function(*args, **options)
        opened = function(*(_opened(each) for each in args), **{name: _opened(each) for name, each in options.items()})
        return cast("T", hidden._again(opened))

    marked._aggregate = True  # type: ignore[attr-defined]
    return marked


def minimum(values: T, bound: int) -> T:
    """Return the smaller of each private number and a public bound."""
    return _elementwise(min, np.minimum, values, bound)


def clipped(values: T, low: int, high: int) -> T:
    """Return private numbers moved into public limits; Python's whole numbers stay such, of any size."""
    return _elementwise(max, np.maximum, minimum(values, high), low)


def _elementwise(plain: Callable[..., Any], ufunc: Callable[..., Any], values: T, bound: int) -> T:
    raw = _opened(values)
    result = plain(raw, bound) if isinstance(raw, int) else ufunc(raw, bound)
    return cast("T", values._again(result) if isinstance(values, Hidden) else result)
