"""Names for the types of arrays. What an array's entries and shape mean is said where it is used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
WordArray = NDArray[np.uint64]

KeyArray = NDArray[np.uint64]
"""`(events, words)`: what a domain makes of an event."""
ReasonArray = NDArray[np.uint8]
"""`(events,)` of `schemas.events.Reason`; 0 is none."""

_DENSE = 1 << 16


def narrowed(values: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """Return the same whole numbers in a type of fewer bytes.

    Raises: OverflowError if one does not fit; it does not say which.

    >>> narrowed(np.array([0, 255]), np.uint8)
    array([  0, 255], dtype=uint8)
    """
    room = np.iinfo(dtype)
    if values.size and not room.min <= int(values.min()) <= int(values.max()) <= room.max:
        raise OverflowError(f"a number outside of {room.min} to {room.max} would be stored as another one")
    return values.astype(dtype)


def distinct(values: IntArray) -> list[int]:
    """Distinct values in ascending order; `np.unique`, but fast where they lie close together, as nearly always.

    >>> distinct(np.array([7, 3, 7]))
    [3, 7]
    """
    if len(values) == 0:
        return []
    low, high = int(values.min()), int(values.max())
    if low == high:
        return [low]
    found = np.flatnonzero(np.bincount(values - low)) + low if high - low < _DENSE else np.unique(values)
    return [int(value) for value in found]
