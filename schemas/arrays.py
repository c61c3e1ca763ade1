"""Type aliases for arrays, and arrays by name. What their entries and shapes mean is documented where they are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
WordArray = NDArray[np.uint64]

KeyArray = NDArray[np.uint64]
"""`(events, words)`: events as a domain encodes them."""
ReasonArray = NDArray[np.uint8]
"""`(events,)` of `schemas.events.Reason`; 0 means that the event is accepted."""

_Named = TypeVar("_Named")

_DENSE_SPAN = 1 << 16
"""Values within so narrow a range are counted by `np.bincount`, which is faster than sorting them."""


def narrowed(values: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """Return the same integers in a narrower type.

    Raises: OverflowError if a value does not fit; the message does not repeat the value, which may be private.

    >>> narrowed(np.array([0, 255]), np.uint8)
    array([  0, 255], dtype=uint8)
    """
    limits = np.iinfo(dtype)
    if values.size and not limits.min <= int(values.min()) <= int(values.max()) <= limits.max:
        raise OverflowError(f"a number outside of {limits.min} to {limits.max} would be stored as another one")
    return values.astype(dtype)


def under(prefix: str, parts: Mapping[str, _Named]) -> dict[str, _Named]:
    """Return the parts of a whole, with a prefix before their names."""
    return {f"{prefix}{name}": part for name, part in parts.items()}


def below(prefix: str, whole: Mapping[str, _Named]) -> dict[str, _Named]:
    """Return the parts whose names begin with a prefix, which is taken away: what `under` was given."""
    return {name.removeprefix(prefix): part for name, part in whole.items() if name.startswith(prefix)}


def distinct(values: IntArray) -> list[int]:
    """Return the distinct values in ascending order, as `np.unique` does, but faster where they lie close together.

    >>> distinct(np.array([7, 3, 7]))
    [3, 7]
    """
    if len(values) == 0:
        return []
    low, high = int(values.min()), int(values.max())
    if low == high:
        return [low]
    if high - low < _DENSE_SPAN:
        return [int(value) for value in np.flatnonzero(np.bincount(values - low)) + low]
    return [int(value) for value in np.unique(values)]


def rows_by(values: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Yield the distinct values in ascending order, each with the rows that have it in their order.

    Rows are sorted once: looking for each value in all of them takes hours where every row has its own.

    >>> [(value, rows.tolist()) for value, rows in rows_by(np.array([7, 3, 7]))]
    [(3, [1]), (7, [0, 2])]
    """
    if len(values) == 0:
        return
    low, high = int(values.min()), int(values.max())
    if low == high:
        yield low, np.arange(len(values))
        return
    narrow = (values - low).astype(np.uint16) if high - low < _DENSE_SPAN else values  # is sorted in linear time
    order = np.argsort(narrow, kind="stable")
    ordered = values[order]
    begins = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist()]
    for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
        yield int(ordered[begin]), order[begin:end]
