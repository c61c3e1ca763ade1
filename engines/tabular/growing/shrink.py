"""Estimates of one-way marginals from noisy ones: projection and shrinkage. Post-processing.

Sources: simplex projection by sorting ([held1974]); shrinkage by the share of the spread that noise
explains ([james1961]).
"""

from __future__ import annotations

import numpy as np

from schemas.arrays import FloatArray

_LEAST = 1e-9


def simplex(values: FloatArray, total: float) -> FloatArray:
    """The nearest non-negative vector of this sum, which is positive.

    >>> simplex(np.array([3.0, -1.0, 1.0]), 2.0)
    array([2., 0., 0.])
    """
    falling = np.sort(values)[::-1]
    shifts = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(falling > shifts)[-1])
    projected: FloatArray = np.maximum(values - shifts[last], 0.0)
    return projected


def shrunken(counts: FloatArray, variance: float, total: float) -> FloatArray:
    """Noisy counts of one attribute, drawn towards even ones as far as noise explains their spread; on the simplex."""
    size = len(counts)
    spread = counts - counts.mean()
    signal = max(0.0, 1 - variance * (size - 1) / max(float((spread * spread).sum()), _LEAST))
    return simplex(total / size + signal * spread, total)


def news_share(residual: FloatArray, variance: float, *, least: float) -> float:
    """How much of a centred residual to believe: 0 below `least` times the noise, then 1 less the share of noise."""
    size = len(residual)
    noise = variance * max(size - 1, 1)
    ratio = float((residual * residual).sum()) / max(noise, _LEAST)
    return 1 - 1 / ratio if ratio > least else 0.0
