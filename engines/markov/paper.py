"""Mode `paper`: maximum a posteriori counts of each step, for Laplace noise, a multinomial prior and a declared total.

The prior of a step is `n p_t` with `p_t = p_(t-1) P` from a first distribution that is the frequency of the first
step's released counts, or even. It is never corrected by later counts: that is what the collective filter does.
Minimise  sum_i w_i |y_i - r_i| - r_i ln p_i + lnGamma(r_i + 1)  over r >= 0 with sum r = n: strictly convex and,
but for the total, separable. With a multiplier nu each entry is the noisy value held between two bounds,
`r_i(nu) = max(0, clip(y_i, psi^-1(ln p_i - nu - w_i) - 1, psi^-1(ln p_i - nu + w_i) - 1))`, and their sum falls in nu:
one root, found by Newton's method inside a bracket. So the optimum is global, and no solver is called.
Post-processing of released values: costs no privacy.
Source: [cao2023], section 5 (eq. 5 to 8). Departure: the paper replaces ln r! by Stirling's formula, which has no lower
    bound at 0 and is not convex below 1/2; lnGamma(r + 1) is exact and convex.
Units: counts; `rate` is 1/scale of the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from scipy.special import digamma

from engines.core.contract import State
from engines.markov.chain import Estimate, Transition, laplace_moments, likeliest, matched_scale
from schemas.arrays import BoolArray, FloatArray
from schemas.errors import EngineInputError

_ROUNDS = 200
_INVERSE_ROUNDS = 4
_TOLERANCE = 1e-13

First = Literal["frequency", "uniform"]
"""What the first step's distribution is."""


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """The `CountsEstimator` of mode `paper`.

    Args: transition, total. first: distribution of the first step. measured: number of states that are counted.
    """

    transition: Transition
    total: float
    first: First
    measured: int

    def begin(self) -> State:
        states = self.transition.states
        return {"prior": np.full(states, 1 / states)}

    def observe(
        self, state: State, step: int, noisy: FloatArray, scale: Fraction, *, last: bool
    ) -> tuple[State, tuple[Estimate, ...]]:
        prior = state["prior"] if step == 0 else self.transition.forward(state["prior"])
        if step == 0 and self.first == "frequency":
            prior = likeliest(noisy, self.total, unseen=self.transition.states > self.measured) / self.total
        prior = prior / prior.sum()
        spread = self.total * prior * (1 - prior)
        rate = np.zeros(len(prior))
        rate[: self.measured] = float(1 / scale)
        padded = np.zeros(len(prior))
        padded[: self.measured] = noisy
        counts = map_counts(padded, prior, self.total, rate)
        # The error that is left if the prior is right, cell by cell.
        seen = laplace_moments(self.total * prior, np.maximum(spread, 1e-9), padded, matched_scale(scale))[1]
        return {"prior": prior}, (Estimate(step, counts, np.where(rate > 0, seen, spread)),)


def map_counts(noisy: FloatArray, probabilities: FloatArray, total: float, rate: FloatArray | float) -> FloatArray:
    """Return the minimiser, `(states,)`; its sum misses `total` by rounding only.

    Args:
        noisy: `(states,)` counts with noise; ignored where `rate` is 0 (a state that is not measured).
        probabilities: `(states,)` of one user; where 0 the count is 0 (a structural zero).
        total: users in all; positive. rate: 1/scale, one number or `(states,)`.
    Raises: EngineInputError if no state is possible.

    >>> map_counts(np.array([9.0, 1.0]), np.array([0.5, 0.5]), 10.0, 1e6).round(6)
    array([9., 1.])
    >>> map_counts(np.array([9.0, 1.0]), np.array([0.5, 0.5]), 10.0, 1e-6).round(3)
    array([5., 5.])
    """
    possible = probabilities > 0
    if not possible.any():
        raise EngineInputError("a prior needs a state with positive probability")
    counts = np.zeros(len(noisy))
    weights = np.broadcast_to(np.asarray(rate, np.float64), noisy.shape)[possible]
    counts[possible] = _solve(noisy[possible], np.log(probabilities[possible]), total, weights)
    return counts


def _solve(noisy: FloatArray, log_prior: FloatArray, total: float, weights: FloatArray) -> FloatArray:
    # sum r > total at `low` since one entry alone is beyond it there; all entries are 0 at `high`.
    low = float((log_prior - weights).max() - digamma(total + 2.0)) - 1.0
    high = float((log_prior + weights).max()) + 1.0
    nu = float(np.clip(np.log(np.exp(log_prior).sum()) - np.log(total), low, high))
    counts, free = _counts_at(nu, noisy, log_prior, weights)
    for _ in range(_ROUNDS):
        excess = float(counts.sum()) - total
        if abs(excess) <= _TOLERANCE * total:
            break
        if excess > 0:
            low = nu
        else:
            high = nu
        slope = float((1 / _trigamma(counts[free] + 1)).sum())
        newton = nu + excess / slope if slope > 0 else low
        after = newton if low < newton < high else (low + high) / 2
        if after in (nu, low, high):
            break
        nu = after
        counts, free = _counts_at(nu, noisy, log_prior, weights)
    return _settled(counts, free, total)


def _counts_at(
    nu: float, noisy: FloatArray, log_prior: FloatArray, weights: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Return the entries for a multiplier, and which of them move with it (not held at the noisy value or at 0)."""
    least = _inverse_digamma(log_prior - nu - weights) - 1
    most = _inverse_digamma(log_prior - nu + weights) - 1
    counts = np.maximum(np.clip(noisy, least, most), 0.0)
    free = (counts > 0) & ((noisy <= least) | (noisy >= most))
    return counts, free


def _settled(counts: FloatArray, free: BoolArray, total: float) -> FloatArray:
    """Give the last rounding error to entries that may take it: those that move, or else those above 0."""
    takers = free if free.any() else counts > 0
    slack = np.where(takers, counts, 0.0)
    if slack.sum() <= 0:
        return counts
    settled: FloatArray = counts + (total - counts.sum()) * slack / slack.sum()
    return settled


def _trigamma(x: FloatArray) -> FloatArray:
    """Return psi'(x) for x >= 1, within 2 %: it only steers Newton's method."""
    return 1 / x + 1 / (2 * x * x) + 1 / (6 * x * x * x)


def _inverse_digamma(values: FloatArray) -> FloatArray:
    """Return the x >= 1 with psi(x) = value; 1 where the value is below psi(1)."""
    # Beyond exp(40) an entry is far above any total, and only its being so matters.
    x: FloatArray = np.exp(np.minimum(values, 40.0)) + 0.5
    for _ in range(_INVERSE_ROUNDS):
        x = np.maximum(x - (digamma(x) - values) / _trigamma(x), 1.0)
    return x
