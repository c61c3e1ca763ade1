"""How a precision is spread over coming steps: by a power of time, and by how uncertain each step will be.

Guarantee: arithmetic on public numbers.
Units: precisions.
"""

from __future__ import annotations

import numpy as np

from schemas.arrays import FloatArray

_EXACT = 64


def power_share(power: float, *, first: int, count: int) -> float:
    """first**-power over the sum of s**-power, s = first .. first + count - 1; the sum's tail by its integral.

    >>> power_share(0.0, first=3, count=4), round(power_share(1.0, first=1, count=2), 4)
    (0.25, 0.6667)
    """
    exact = min(count, _EXACT)
    total = float((np.arange(first, first + exact, dtype=np.float64) ** -power).sum())
    if count > exact:
        low, high = first + exact - 0.5, first + count - 0.5
        if abs(power - 1) < 1e-9:
            total += float(np.log(high / low))
        else:
            total += (high ** (1 - power) - low ** (1 - power)) / (1 - power)
    return float(first**-power) / total


def water_level(variances: FloatArray, mean: float, *, floor: float) -> float:
    """The level w for which max(w - 1 / variance, floor) is `mean` on average: least total variance afterwards.

    >>> water_level(np.array([1.0, 0.5]), 3.0, floor=0.0), water_level(np.array([1.0, 0.1]), 3.0, floor=1.0)
    (4.5, 6.0)
    """
    bare = np.sort(1 / variances)
    size = np.arange(1, len(bare) + 1)
    # The level if the k most uncertain steps are above the floor and the others on it.
    levels = (mean * len(bare) - floor * (len(bare) - size) + np.cumsum(bare)) / size
    above = np.flatnonzero(levels - bare >= floor)
    return float(levels[above[-1]]) if len(above) else float(mean + bare[0])
