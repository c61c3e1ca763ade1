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


def narrowed(values: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """The same whole numbers in a type of fewer bytes. Raises: OverflowError if one does not fit, unsaid which.

    >>> narrowed(np.array([0, 255]), np.uint8)
    array([  0, 255], dtype=uint8)
    """
    room = np.iinfo(dtype)
    if values.size and not room.min <= int(values.min()) <= int(values.max()) <= room.max:
        raise OverflowError(f"a number outside of {room.min} to {room.max} would be stored as another one")
    return values.astype(dtype)
