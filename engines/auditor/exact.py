"""Losses that can be computed, without sampling: counters by their strategy matrix, the discrete Gaussian by its sum, a
threshold bit by its two probabilities.

A linear mechanism releases (a function of) `strategy @ values + noise`, noise independent by row. One event at time t
moves row i by `strategy[i, t]`. Discrete Laplace noise of scale b_i loses exactly `sum |strategy[i, t]| / b_i` on it;
Gaussian noise sees the L2 norm of the column only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from engines.noise import DiscreteGaussian
from schemas.arrays import FloatArray

_TAIL = 40  # standard deviations; beyond, a term is below 1e-347


def laplace_loss(strategy: npt.NDArray[Any], scale: Fraction) -> Fraction:
    """Exact epsilon of integer `strategy` `(rows, times)` under discrete Laplace noise of one scale.

    >>> laplace_loss(np.array([[1, 0], [1, 1]]), Fraction(2))
    Fraction(1, 1)
    """
    largest = int(np.abs(strategy).sum(axis=0).max(initial=0))
    return largest / scale if scale > 0 else Fraction(0)


def threshold_loss(thresholds: Sequence[int], scale: Fraction) -> float:
    """Exact epsilon of one bit, whether Laplace noise exceeds a threshold that one event moves by 1, up to rounding.

    The worst of the given thresholds and of both values of the bit; the logarithms are exact in both tails.

    >>> round(threshold_loss([0, 1, 4, -3], Fraction(1)), 6)
    1.0
    """
    at = np.array(thresholds, np.float64) / float(scale)
    moved = (np.array(thresholds, np.float64) - 1) / float(scale)
    losses = [here - there for here, there in zip(log_probabilities(at), log_probabilities(moved), strict=True)]
    return float(np.abs(losses).max())


def log_probabilities(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of Laplace noise of scale 1 exceeding x, and of not exceeding it."""
    tail = -np.abs(x) - np.log(2)
    rest = np.log1p(-np.exp(tail))
    return np.where(x >= 0, tail, rest), np.where(x >= 0, rest, tail)


def gaussian_delta(*, shift: int, sigma_squared: Fraction, epsilon: float) -> float:
    """Exact delta(epsilon) of one integer moved by `shift` under discrete Gaussian noise, up to float64 rounding.

    It is the sum over k of max(0, P(k) - e^epsilon P(k - shift)), the hockey-stick divergence.

    >>> round(gaussian_delta(shift=1, sigma_squared=Fraction(1), epsilon=1.0), 6)
    0.141351
    """
    sigma = math.sqrt(sigma_squared)
    reach = math.ceil(_TAIL * sigma) + abs(shift)
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    rate = 1 / (2 * float(sigma_squared))
    # log P(k - shift) - log P(k) is linear in k: the outcomes that count are a half-line.
    losses = rate * ((k - shift) ** 2 - k**2)
    telling = losses > epsilon
    mass = math.log(DiscreteGaussian(sigma_squared).pmf(0))
    log_p = mass - rate * k**2
    return math.fsum(np.exp(log_p[telling]) * -np.expm1(epsilon - losses[telling]))


def gaussian_epsilon(*, shift: int, sigma_squared: Fraction, delta: float) -> float:
    """Smallest epsilon at which `gaussian_delta` is at most `delta`, by bisection from above."""
    low, high = 0.0, 1.0
    while gaussian_delta(shift=shift, sigma_squared=sigma_squared, epsilon=high) > delta:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if gaussian_delta(shift=shift, sigma_squared=sigma_squared, epsilon=middle) > delta:
            low = middle
        else:
            high = middle
    return high
