"""A Gaussian belief about a count meets the count with Laplace noise: exact mean, variance and evidence.

The posterior is a Gaussian pushed up by variance/scale below the noisy value and pushed down above it: two truncated
Gaussians, whose moments are known.
Post-processing of released values: costs no privacy. Source: ours, from the definition; the continuous law stands for
    the discrete one, with the same variance (`matched_scale`).
Units: counts; `evidence` is the log density of the noisy value before it was seen.
"""

from __future__ import annotations

from fractions import Fraction
from math import log, pi, sqrt

import numpy as np
from scipy.special import erfcx

from engines.core.noise import LEAST_VARIANCE, DiscreteLaplace
from schemas.arrays import FloatArray

LEAST_SCALE = sqrt(LEAST_VARIANCE / 2)
_ROOT2, _ROOT_2PI = sqrt(2), sqrt(2 * pi)
_FAR = -50.0
_LEAST_SHARE = 1e-18


def matched_scale(scale: Fraction) -> float:
    """Scale of the continuous Laplace law with the variance of the discrete one.

    >>> round(matched_scale(Fraction(4)), 3)
    3.99
    """
    return max(LEAST_SCALE, sqrt(DiscreteLaplace(scale).variance / 2))


def laplace_moments(
    mean: FloatArray, variance: FloatArray, noisy: FloatArray, scale: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Posterior mean and variance of N(mean, variance) given `noisy` = it + Laplace(scale), and the log evidence.

    All arrays have one shape; entries are independent of each other. `variance` is positive.

    >>> m, v, _ = laplace_moments(np.array([0.0]), np.array([1e6]), np.array([7.0]), 2.0)
    >>> round(float(m[0]), 2), round(float(v[0]), 2)
    (7.0, 8.0)
    """
    deviation = np.sqrt(variance)
    push = deviation / scale
    gap = (noisy - mean) / deviation
    mean_below, spread_below, weight_below = _half(gap, push)
    mean_above, spread_above, weight_above = _half(-gap, push)
    top = np.maximum(weight_below, weight_above)
    share_below, share_above = np.exp(weight_below - top), np.exp(weight_above - top)
    both = share_below + share_above
    share_below /= both
    share_above /= both
    shift = share_below * mean_below - share_above * mean_above
    share = share_below * spread_below + share_above * spread_above
    share += share_below * share_above * (mean_below + mean_above) ** 2
    evidence = top + np.log(both) - log(2 * scale)
    return mean + deviation * shift, variance * np.clip(share, _LEAST_SHARE, 1.0), evidence


def _half(gap: FloatArray, push: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, variance and log weight of the part below the noisy value, in standard deviations from the prior mean.

    A standard Gaussian pushed up by `push` and cut off at `gap`.
    """
    cut = gap - push
    tail = cut < 0
    # erfcx has no exponential in it to cancel against: exact however far out the cut is.
    scaled = erfcx(np.abs(cut) / _ROOT2) / 2
    with np.errstate(under="ignore"):
        bell = np.exp(-0.5 * cut * cut)
        mass = np.where(tail, scaled, 1 - scaled * bell)
        ratio = np.where(tail, 1.0, bell) / (_ROOT_2PI * mass)
    weight = np.log(mass) + np.where(tail, -0.5 * gap * gap, push * (push / 2 - gap))
    far = np.minimum(cut, _FAR)
    spread = np.where(cut < _FAR, (1 - 6 / far**2) / far**2, 1 - ratio * (cut + ratio))
    return push - ratio, spread, weight
