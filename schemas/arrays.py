"""Names for the types of arrays. What an array's entries and shape mean is said where it is used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
WordArray = NDArray[np.uint64]

KeyArray = NDArray[np.uint64]
"""`(events, words)`: what a domain makes of an event."""
ReasonArray = NDArray[np.uint8]
"""`(events,)` of `schemas.events.Reason`; 0 is none."""
