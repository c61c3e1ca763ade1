"""What is made of times and sizes: pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

WARM_UP = 0.02
"""Of the steps: the first ones are not looked at."""


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that is at least as large as that share of them.

    >>> quantile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    >>> quantile(list(range(1, 101)), 0.99)
    99
    """
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def step_times(seen: Mapping[int, float]) -> list[float]:
    """Seconds that each step took after the one before; steps that came together share theirs.

    Args: seen: step -> when it was seen. The first moment is where counting begins.

    >>> step_times({0: 10.0, 1: 11.0, 2: 13.0, 3: 13.0})
    [1.0, 1.0, 1.0]
    """
    found: list[float] = []
    moments: list[list[float]] = []  # when, and how many steps
    for step in sorted(seen):
        if moments and moments[-1][0] == seen[step]:
            moments[-1][1] += 1
        else:
            moments.append([seen[step], 1])
    for (before, _), (now, steps) in pairwise(moments):
        found += [(now - before) / steps] * int(steps)
    return found


def tenths(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """The first tenth behind the warm-up, and the last one."""
    warm = int(len(values) * WARM_UP)
    tenth = max(1, len(values) // 10)
    return values[warm : warm + tenth], values[-tenth:]


def flatness(values: Sequence[float]) -> float:
    """Median of the last tenth over that of the first one.

    >>> flatness([1.0] * 50 + [2.0] * 50)
    2.0
    """
    first, last = tenths(values)
    return median(last) / median(first)


def growth(samples: Sequence[tuple[float, float]]) -> float:
    """The last over that after the first tenth.

    Args: samples: (share that is done, size), in order.

    >>> growth([(0.0, 1.0), (0.05, 80.0), (0.1, 100.0), (0.5, 120.0), (1.0, 110.0)])
    1.1
    """
    return samples[-1][1] / next(size for share, size in samples if share >= 0.1)
