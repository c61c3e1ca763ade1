"""Clopper-Pearson: what counts of an event say about its probability, and so about epsilon, with a stated error.

Statistics: `hits` of `runs` independent runs showed the event. `lower` is below the true probability except with
    probability `alpha` over the runs, `upper` above it likewise; exact for every probability, no approximation.
Source: Clopper, Pearson, Biometrika 1934; for auditing: Jagielski, Ullman, Oprea, NeurIPS 2020.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

FloatArray = npt.NDArray[np.float64]


def lower(hits: npt.ArrayLike, runs: int, *, alpha: float) -> FloatArray:
    """One-sided lower confidence bound of a probability, elementwise; 0 where nothing was hit.

    >>> round(float(lower(90, 100, alpha=0.025)), 4)
    0.8238
    """
    k: npt.NDArray[Any] = np.asarray(hits, np.float64)
    bound = special.betaincinv(np.maximum(k, 1.0), runs - k + 1.0, alpha)
    return np.where(k > 0, bound, 0.0)


def upper(hits: npt.ArrayLike, runs: int, *, alpha: float) -> FloatArray:
    """One-sided upper confidence bound of a probability, elementwise; 1 where every run hit.

    >>> round(float(upper(90, 100, alpha=0.025)), 4)
    0.951
    """
    k: npt.NDArray[Any] = np.asarray(hits, np.float64)
    bound = special.betaincinv(k + 1.0, np.maximum(runs - k, 1.0), 1.0 - alpha)
    return np.where(k < runs, bound, 1.0)


def epsilon_below(
    more: npt.ArrayLike, less: npt.ArrayLike, *, runs: int, alpha: float, delta: float = 0.0
) -> FloatArray:
    """Lower bound of epsilon from one event fixed beforehand: log((P(more) - delta) / P(less)), never below 0.

    Args:
        more, less: hits among `runs` runs on either of two neighbouring inputs; elementwise.
        alpha: of the two one-sided bounds together; half goes to each.
    Statistics: exceeds the true epsilon (at this delta) with probability at most `alpha`.

    >>> round(float(epsilon_below(731, 269, runs=1000, alpha=1e-6)), 3)
    0.657
    """
    high = lower(more, runs, alpha=alpha / 2) - delta
    low = upper(less, runs, alpha=alpha / 2)
    return np.log(np.maximum(high / low, 1.0))
