"""What the modes of engine `markov` are compared with, on the noisy counts of all steps at once.

Counts are `(steps, states)` users; everybody is in one of the states in each step. Post-processing of noisy counts.
Source: [cao2023], sections 5 and 6: the maximum likelihood of its comparator ([lee2015]) and the mean of its prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from scipy.special import gammaln

from engines.markov.chain import Transition, project
from engines.markov.filters import Collective, DenseFilter
from schemas.arrays import FloatArray


def likeliest_counts(noisy: FloatArray, total: float) -> FloatArray:
    """Each step's counts of maximum likelihood under Laplace noise that are not negative and sum to the total."""
    return project(noisy, total)


def prior_mean(noisy: FloatArray, total: float, matrix: FloatArray, *, even: bool = False) -> FloatArray:
    """What the chain expects from the first step's frequencies, or from even ones; later counts are not looked at."""
    share = np.full(len(matrix), 1 / len(matrix)) if even else project(noisy[0], total) / total
    shares = [share]
    for _ in noisy[1:]:
        shares.append(shares[-1] @ matrix)
    return total * np.array(shares)


def kalman(noisy: FloatArray, total: float, matrix: FloatArray, scales: Sequence[Fraction]) -> FloatArray:
    """The collective filter of mode `default` with the noise, of these scales by step, taken for Gaussian."""
    beliefs = DenseFilter(matrix, total, np.ones(len(matrix), np.bool_), exact=False)
    estimator = Collective(beliefs, Transition.from_matrix(matrix), lag=0)
    state, counts = estimator.begin(), []
    for step, (row, scale) in enumerate(zip(noisy, scales, strict=True)):
        state, (estimate,) = estimator.observe(state, step, row, scale, last=False)
        counts.append(estimate.counts)
    return np.array(counts)


def objective(counts: FloatArray, noisy: FloatArray, probabilities: FloatArray, rate: FloatArray | float) -> float:
    """Return what MAP counts minimise, up to a constant; infinite if a structural zero is occupied."""
    possible = probabilities > 0
    if (counts[~possible] > 0).any():
        return float("inf")
    r, y, p = counts[possible], noisy[possible], probabilities[possible]
    weights = np.broadcast_to(np.asarray(rate, np.float64), counts.shape)[possible]
    return float((weights * np.abs(y - r)).sum() - (r * np.log(p)).sum() + gammaln(r + 1).sum())
