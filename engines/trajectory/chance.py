"""Random numbers for synthetic trips: post-processing, so floats do. They come from the step's seed like all else.

No noise is drawn here: nothing private may be handed to these.
"""

from __future__ import annotations

import numpy as np

from engines.core.noise import NoiseSource
from schemas.arrays import FloatArray, IntArray

_CHUNK = 1 << 22


def uniforms(count: int, source: NoiseSource) -> FloatArray:
    """Draw `(count,)` float64, uniform on (0, 1): multiples of 2**-53, moved up by half of that."""
    parts = [source.words(min(_CHUNK, count - done)) for done in range(0, count, _CHUNK)]
    words = np.concatenate(parts) if parts else np.zeros(0, np.uint64)
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def gammas(count: int, source: NoiseSource) -> FloatArray:
    """Draw `(count,)` from the Gamma law of shape 3/2 and mean 1: an exponential plus half the square of a normal."""
    first, second, angle = (uniforms(count, source) for _ in range(3))
    drawn: FloatArray = -(np.log(first) + np.log(second) * np.cos(2 * np.pi * angle) ** 2) / 1.5
    return drawn


def choices(weights: FloatArray, count: int, source: NoiseSource) -> IntArray:
    """Draw `(count,)` independent indices with these probabilities, up to a factor; `weights` has a positive sum."""
    bounds = np.cumsum(weights)
    picked = np.searchsorted(bounds, uniforms(count, source) * bounds[-1], side="right")
    # Rounding may pick a bound beyond the last positive weight.
    indices: IntArray = np.minimum(picked, int(np.flatnonzero(weights)[-1]))
    return indices


def systematic(weights: FloatArray, source: NoiseSource) -> IntArray:
    """Draw integers with these expectations, each within one of its own, and so are sums of neighbours.

    >>> from engines.core.noise import seeded
    >>> systematic(np.array([0.5, 0.5, 2.0]), seeded(1)).sum()
    np.int64(3)
    """
    sums = np.floor(np.append(0.0, np.cumsum(weights)) + float(uniforms(1, source)[0]))
    return np.diff(sums).astype(np.int64)
