"""Whether standard errors are true: the errors of many answers, each divided by its own."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, laplace, norm

FALSE_POSITIVES = 3e-7
"""Of each of the three counts below, on either side; so less than 2e-6 / 2 for a whole test where noise is as it "
"says."""


def beyond(limit: float) -> tuple[float, float]:
    """The least and the greatest probability that a standardised error exceeds a limit: noise is between a normal's and
    one Laplace variable's."""
    single, many = 2 * laplace.sf(limit * math.sqrt(2)), 2 * norm.sf(limit)
    return min(single, many), max(single, many)


def faults(errors: ArrayLike) -> list[str]:
    """What is wrong with independent standardised errors; empty: nothing can be told."""
    z = np.array(errors)
    above = int((z > 0).sum())
    found = []
    if not _within(above + int((z == 0).sum()) // 2, len(z), (0.49, 0.51)):
        found.append(f"{above} of {len(z)} errors are positive: the estimate is biased")
    for limit in (0.7, 1.6):
        exceed = int((np.abs(z) > limit).sum())
        if not _within(exceed, len(z), beyond(limit)):
            found.append(f"{exceed} of {len(z)} are beyond {limit}: the standard error is wrong")
    return found


def _within(count: int, of: int, probabilities: tuple[float, float]) -> bool:
    low, high = probabilities
    return bool(binom.ppf(FALSE_POSITIVES / 2, of, low) <= count <= binom.isf(FALSE_POSITIVES / 2, of, high))
