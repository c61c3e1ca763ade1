"""Beliefs about collective counts as a Gaussian with a full covariance: predict, meet noisy counts, smooth.

Counts of users who move independently have mean `P'm` and a covariance that keeps their sum. Laplace noise is matched
cell by cell by a Gaussian with the exact posterior moments (expectation propagation), or, with `exact` off, taken for
Gaussian noise of the same variance (the Kalman filter).
Post-processing of released values: costs no privacy.
Source: collective filtering, [sheldon2011] (its Gaussian limit); expectation propagation,
    [minka2001]; smoothing, [rauch1965]. The combination is ours.
Units: counts. Cost: O(states^3) a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.markov.chain import Transition, covariance_step
from engines.markov.laplace import laplace_moments
from schemas.arrays import BoolArray, FloatArray

SWEEPS = 3
DAMPING = 0.8
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """Mean `(states,)`; spread: covariances `(states, states)` here, `(states,)` variances in the diagonal filter."""

    mean: FloatArray
    spread: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class DenseFilter:
    """Args: matrix: `(states, states)`. total: users. measured: `(states,)`, False where nothing is counted."""

    matrix: FloatArray
    total: float
    measured: BoolArray
    exact: bool = True

    @staticmethod
    def of(transition: Transition, total: float, measured: BoolArray) -> DenseFilter:
        return DenseFilter(transition.dense, total, measured)

    def start(self, concentration: float) -> Belief:
        """Everyone's state drawn from one distribution, itself Dirichlet with this concentration around the even one.

        Infinite: everyone is anywhere, independently. A small one allows that all are in one place.
        """
        share = 1 / len(self.matrix)
        alike = 1.0 if np.isinf(concentration) else (self.total + concentration) / (1 + concentration)
        spread = self.total * alike * share * (np.eye(len(self.matrix)) - share)
        return Belief(np.full(len(self.matrix), self.total * share), spread)

    def belief(self, mean: FloatArray, variance: FloatArray) -> Belief:
        """Independent counts `(states,)` of these moments that happen to add up to the total."""
        spread = np.diag(variance) - np.outer(variance, variance) / max(float(variance.sum()), _LEAST_VARIANCE)
        return Belief(mean, spread)

    def predict(self, belief: Belief) -> Belief:
        return Belief(*covariance_step(self.matrix, belief.mean, belief.spread))

    def update(self, belief: Belief, noisy: FloatArray, scale: float) -> tuple[Belief, float]:
        """The belief after a step's noisy counts `(states,)`, and their log evidence, cell by cell, added up."""
        variances = np.maximum(np.diag(belief.spread), _LEAST_VARIANCE)
        evidence = laplace_moments(belief.mean, variances, noisy, scale)[2]
        precision = np.where(self.measured, 1 / (2 * scale * scale), 0.0)
        shift = precision * noisy
        after = _meet(belief, precision, shift)
        for _ in range(SWEEPS if self.exact else 0):
            # Each cell's site is replaced: take it away, meet the true noise, and see what Gaussian that amounts to.
            inverse = 1 / np.maximum(np.diag(after.spread), _LEAST_VARIANCE)
            without = np.maximum(inverse - precision, 1e-3 * inverse)
            cavity = (after.mean * inverse - shift) / without
            mean, variance, _ = laplace_moments(cavity, 1 / without, noisy, scale)
            precision_new = np.where(self.measured, np.maximum(1 / variance - without, 1e-12), 0.0)
            shift_new = np.where(self.measured, mean / variance - cavity * without, 0.0)
            precision = (1 - DAMPING) * precision + DAMPING * precision_new
            shift = (1 - DAMPING) * shift + DAMPING * shift_new
            after = _meet(belief, precision, shift)
        return after, float(evidence[self.measured].sum())

    def smooth(self, belief: Belief, later: Belief) -> Belief:
        """The belief about a step, once `later` is known of the next one."""
        ahead = self.predict(belief)
        # Singular along the sum, which both beliefs share exactly: any weight there gives the same answer.
        states = len(self.matrix)
        weight = max(float(np.trace(ahead.spread)), _LEAST_VARIANCE) / states
        regular = ahead.spread + weight / states + np.diag(np.full(states, 1e-9 * weight))
        gain = np.linalg.solve(regular, (belief.spread @ self.matrix).T).T
        mean = belief.mean + gain @ (later.mean - ahead.mean)
        spread = belief.spread + gain @ (later.spread - ahead.spread) @ gain.T
        return Belief(mean, (spread + spread.T) / 2)

    def cross(self, belief: Belief, later: Belief) -> FloatArray:
        """Covariance of the next step's counts with this one's, `(states, states)`, given `later` of the next one."""
        ahead = self.predict(belief)
        states = len(self.matrix)
        weight = max(float(np.trace(ahead.spread)), _LEAST_VARIANCE) / states
        regular = ahead.spread + weight / states + np.diag(np.full(states, 1e-9 * weight))
        both: FloatArray = later.spread @ np.linalg.solve(regular, (belief.spread @ self.matrix).T)
        return both

    def variances(self, belief: Belief) -> FloatArray:
        """`(states,)`, not negative."""
        return np.maximum(np.diag(belief.spread), 0.0)


def _meet(prior: Belief, precision: FloatArray, shift: FloatArray) -> Belief:
    """A Gaussian prior, possibly singular, times one Gaussian site for each cell."""
    system = prior.spread * precision[None, :]
    system[np.diag_indices_from(system)] += 1.0
    spread = np.linalg.solve(system, prior.spread)
    spread = (spread + spread.T) / 2
    return Belief(prior.mean + spread @ (shift - precision * prior.mean), spread)
