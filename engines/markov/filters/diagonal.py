"""The collective filter for many states: one mean and one variance for each, the chain as a sparse matrix.

Correlations between states are dropped, except for the one that matters: the total is declared, so what a step's means
lack to it is shared out in proportion to the variances.
Post-processing of released values: costs no privacy. Source: ours; see `filters.gaussian` for the full one.
Units: counts. Cost: O(states + nonzeros of the matrix) a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.markov.chain import Transition
from engines.markov.filters.gaussian import Belief
from engines.markov.laplace import laplace_moments
from schemas.arrays import BoolArray, FloatArray

_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class DiagonalFilter:
    """As `filters.gaussian.DenseFilter`, with `(states,)` variances as the spread of a belief."""

    transition: Transition
    total: float
    measured: BoolArray

    def start(self, concentration: float) -> Belief:
        """See `DenseFilter.start`."""
        states = self.transition.states
        alike = 1.0 if np.isinf(concentration) else (self.total + concentration) / (1 + concentration)
        mean = np.full(states, self.total / states)
        return Belief(mean, mean * alike * (1 - 1 / states) + _LEAST_VARIANCE)

    def belief(self, mean: FloatArray, variance: FloatArray) -> Belief:
        """See `DenseFilter.belief`."""
        left = np.maximum(1 - variance / max(float(variance.sum()), _LEAST_VARIANCE), 0.0)
        return Belief(mean, np.maximum(variance * left, _LEAST_VARIANCE))

    def predict(self, belief: Belief) -> Belief:
        counts = np.maximum(belief.mean, 0.0)
        variances = self.transition.forward_variance(counts, belief.spread)
        return Belief(self.transition.forward(belief.mean), np.maximum(variances, _LEAST_VARIANCE))

    def update(self, belief: Belief, noisy: FloatArray, scale: float) -> tuple[Belief, float]:
        """See `DenseFilter.update`."""
        mean, variance, evidence = laplace_moments(belief.mean, belief.spread, noisy, scale)
        mean = np.where(self.measured, mean, belief.mean)
        variance = np.where(self.measured, variance, belief.spread)
        mean = mean + (self.total - mean.sum()) * variance / variance.sum()
        return Belief(mean, variance), float(evidence[self.measured].sum())

    def smooth(self, belief: Belief, later: Belief) -> Belief:
        """See `DenseFilter.smooth`; the next step's states are taken as independent of each other."""
        ahead = self.predict(belief)
        counts = np.maximum(belief.mean, 0.0)
        mean = belief.mean + belief.spread * self.transition.backward((later.mean - ahead.mean) / ahead.spread)
        mean = mean + (self.total - mean.sum()) * belief.spread / belief.spread.sum()
        change = (later.spread - ahead.spread) / ahead.spread**2
        spread = belief.spread + belief.spread**2 * self.transition.backward_squared(change)
        return Belief(mean, np.clip(spread, _LEAST_VARIANCE, np.maximum(belief.spread, counts)))

    def variances(self, belief: Belief) -> FloatArray:
        """`(states,)`."""
        return belief.spread
