"""Private values that say so when something reads them: events as a guarded run hands them to an engine.

Functions marked `aggregate` take them and give `Private` counts; those may be added, shifted, indexed by public numbers
and stored. A comparison, a condition, a conversion or an index made of one raises `PrivateValueRead`: whatever the data
are, so that a threshold is found on data that does not straddle it. Mechanisms open them.
Source: information-flow typing ([myers1999]) at run time; ours.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from engines.core.noise.private import Hidden, PrivateValueRead, _opened, is_private

T = TypeVar("T")


class Private(Hidden):
    """Private numbers of public shape. See the module; made by `sealed` and of what is.

    >>> counts = Private(np.array([3, 5]))
    >>> (counts + 1)[0]
    <private>
    >>> bool(counts.sum() > 7)
    Traceback (most recent call last):
    engines.core.noise.private.PrivateValueRead: a private value decides a condition
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        self._value = _opened(value)

    def _again(self, value: Any) -> Any:
        return _sealed(value)

    def __repr__(self) -> str:
        return "<private>"

    @property
    def shape(self) -> tuple[int, ...]:
        """Public."""
        return np.shape(self._value)

    @property
    def size(self) -> int:
        """Public."""
        return int(np.size(self._value))

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.asarray(self._value).dtype

    def __len__(self) -> int:
        return len(self._value)

    def __getitem__(self, index: Any) -> Private:
        return Private(self._value[_public_index(index)])

    def __setitem__(self, index: Any, values: Any) -> None:
        self._value[_public_index(index)] = _opened(values)

    def __iter__(self) -> Any:
        return (Private(each) for each in self._value)

    def copy(self) -> Private:
        return Private(self._value.copy())

    def astype(self, dtype: Any, **options: Any) -> Private:
        return Private(self._value.astype(dtype, **options))

    def reshape(self, *shape: Any) -> Private:
        return Private(self._value.reshape(*shape))

    def sum(self, axis: Any = None) -> Private:
        return Private(np.sum(self._value, axis=axis))

    def any(self) -> Private:
        return Private(np.any(self._value))

    def max(self) -> Private:
        return Private(np.max(self._value))

    def min(self) -> Private:
        return Private(np.min(self._value))

    def tolist(self) -> list[Private]:
        """Return one private number for each entry of a vector: the number of entries is public."""
        return [Private(each) for each in self._value.tolist()]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Private:
        for target in (*options.get("out", ()), *(inputs[:1] if method == "at" else ())):
            if not isinstance(target, Private):
                raise PrivateValueRead("a private value is written into a public array")
        result: Private = _sealed(getattr(ufunc, method)(*_opened(inputs), **_opened(options)))
        return result

    def __array_function__(self, func: Any, types: Any, args: Any, options: Any) -> Any:
        if func not in _MOVES:
            raise PrivateValueRead(f"a private value goes through numpy.{func.__name__}")
        return _sealed(func(*_opened(args), **_opened(options)))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise PrivateValueRead("a private value becomes an array")

    def __bool__(self) -> bool:
        raise PrivateValueRead("a private value decides a condition")

    def __format__(self, _: str) -> str:
        raise PrivateValueRead("a private value is written as text")

    def _number(self) -> Any:
        raise PrivateValueRead("a private value becomes a number")

    __int__ = __float__ = __complex__ = __index__ = __round__ = __trunc__ = __floor__ = __ceil__ = _number
    item = _number


_MOVES = frozenset(
    getattr(np, name)
    for name in (
        "append concatenate stack diff cumsum sum where repeat reshape clip array_split split zeros_like round "
        "transpose ravel copy shape size ndim"
    ).split()
)
"""Functions of numpy that combine and move values, whose results' shapes do not depend on them."""


def _unary(name: str) -> None:
    function = getattr(operator, name)
    setattr(Private, f"__{name}__", lambda self: Private(function(self._value)))


def _comparison(name: str) -> None:
    function = getattr(operator, name)
    setattr(Private, f"__{name.strip('_')}__", lambda self, other: Private(function(self._value, _opened(other))))


def _binary(name: str) -> None:
    _comparison(name)
    function = getattr(operator, name)
    setattr(Private, f"__r{name.strip('_')}__", lambda self, other: Private(function(_opened(other), self._value)))


for _name in ("neg", "pos", "abs", "invert"):
    _unary(_name)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _comparison(_name)
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor"):
    _binary(_name)


class Sealed(Hidden):
    """A private object of any kind (events, trips): only its methods that are marked `aggregate` can be called."""

    __slots__ = ()

    def __init__(self, value: Any) -> None:
        self._value = value

    def _again(self, value: Any) -> Any:
        return _sealed(value)

    def __repr__(self) -> str:
        return f"<private {type(self._value).__name__}>"

    def __getattr__(self, name: str) -> Any:
        method = getattr(type(self._value), name, None)
        if getattr(method, "_aggregate", False):
            return functools.partial(cast("Callable[..., Any]", method), self)
        raise PrivateValueRead(f"{name} of private {type(self._value).__name__} is read")

    def __len__(self) -> int:
        raise PrivateValueRead(f"the length of private {type(self._value).__name__} is read")

    def __bool__(self) -> bool:
        raise PrivateValueRead("a private value decides a condition")

    def __iter__(self) -> Any:
        raise PrivateValueRead(f"private {type(self._value).__name__} is read")


def sealed(value: T) -> T:
    """Return the same value, private from here on; for tests.

    Arrays and numbers become `Private`, lists and tuples of them likewise, everything else `Sealed`. A class with a
    method `_sealed_parts` says itself which of its fields are private.
    """
    return cast("T", _sealed(value))


def _sealed(value: Any) -> Any:
    match value:
        case None | Private() | Sealed() | str():
            return value
        case np.ndarray() | np.generic() | int() | float():
            return Private(value)
        case tuple():
            return tuple(_sealed(each) for each in value)
        case list():
            return [_sealed(each) for each in value]
        case _ if hasattr(value, "_sealed_parts"):
            return value._sealed_parts(_sealed)
        case _:
            return Sealed(value)


def _public_index(index: Any) -> Any:
    if is_private(index):
        raise PrivateValueRead("a private value is an index")
    return index
