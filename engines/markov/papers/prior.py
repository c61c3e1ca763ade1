"""The estimators of [cao2023] and its comparators: MAP (mode `paper`), MLE, the prior mean alone, and raw counts.

The prior of a step is `n p_t` with `p_t = p_(t-1) P` from a first distribution that is the frequency of the first
step's released counts, or even. It is never corrected by later counts: that is what the collective filter does.
Post-processing of released values: costs no privacy.
Source: [cao2023], sections 5.1 to 5.3 (eq. 5 to 8); `papers.map` says where the optimisation departs from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.contract import State
from engines.markov.chain import Transition
from engines.markov.config import First
from engines.markov.estimate import Estimate
from engines.markov.laplace import laplace_moments, matched_scale
from engines.markov.papers.map import map_counts
from engines.markov.simplex import likeliest
from engines.noise import DiscreteLaplace
from schemas.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """Implements `estimate.CountsEstimator`: MAP under the chain's prior, or with `alone` the prior mean itself.

    Args: transition, total. first: distribution of the first step. measured: number of states that are counted.
    """

    transition: Transition
    total: float
    first: First
    measured: int
    alone: bool = False

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
        if self.alone:
            return {"prior": prior}, (Estimate(step, self.total * prior, spread),)
        rate = np.zeros(len(prior))
        rate[: self.measured] = float(1 / scale)
        padded = np.zeros(len(prior))
        padded[: self.measured] = noisy
        counts = map_counts(padded, prior, self.total, rate)
        # The error that is left if the prior is right, cell by cell.
        seen = laplace_moments(self.total * prior, np.maximum(spread, 1e-9), padded, matched_scale(scale))[1]
        return {"prior": prior}, (Estimate(step, counts, np.where(rate > 0, seen, spread)),)


@dataclass(frozen=True, slots=True, eq=False)
class NoPrior:
    """Implements `estimate.CountsEstimator` without memory: MLE (not negative, summing to the total), or raw counts.

    Args: total. unseen: whether people may be in no state. raw: leave the noisy counts as they are.
    """

    total: float
    unseen: bool
    raw: bool = False

    def begin(self) -> State:
        return {}

    def observe(
        self, state: State, step: int, noisy: FloatArray, scale: Fraction, *, last: bool
    ) -> tuple[State, tuple[Estimate, ...]]:
        variance = DiscreteLaplace(scale).variance
        if not self.raw:
            counts = likeliest(noisy, self.total, unseen=self.unseen)
        elif self.unseen:
            counts = np.append(noisy, self.total - noisy.sum())
        else:
            counts = noisy
        variances = np.full(len(counts), variance)
        if self.unseen:
            variances[-1] *= len(noisy)
        return {}, (Estimate(step, counts, variances),)
