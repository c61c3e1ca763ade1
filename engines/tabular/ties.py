"""How strongly two attributes of a table are tied together: Cramer's V.

Not private: for operators and benchmarks.
Source: [bergsma2013], the correction of the bias that a sample has towards ties.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from schemas.arrays import FloatArray, IntArray

STRONG = 0.1
"""A true V above which a pair is worth keeping."""


def cramers_v(counts: FloatArray | IntArray) -> float:
    """V of a table of counts of rows `(values of one, values of the other)`: from 0, independent, to 1.

    0 where an attribute has one value only.

    >>> cramers_v(np.array([[50, 0], [0, 50]])), cramers_v(np.array([[25, 25], [25, 25]]))
    (1.0, 0.0)
    """
    counts = np.asarray(counts, np.float64)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    rows, (r, k) = counts.sum(), counts.shape
    if min(r, k) < 2 or rows < 2:
        return 0.0
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / rows
    phi = float(((counts - expected) ** 2 / expected).sum()) / rows
    phi = max(0.0, phi - (r - 1) * (k - 1) / (rows - 1))
    least = min(r - (r - 1) ** 2 / (rows - 1), k - (k - 1) ** 2 / (rows - 1)) - 1
    return round(sqrt(phi / least), 12) if least > 0 else 0.0
