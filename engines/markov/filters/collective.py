"""Mode `default`: the collective filter with exact Laplace moments, and its fixed-lag smoother as revisions.

Nobody knows where users start, so three beliefs run side by side - in a few places, anywhere, and evenly spread - and
are weighted by how well they foresaw the noisy counts; one that foresaw badly is dropped for good. The first of them
is no Gaussian and meets the first noisy counts in `filters.start`.
Post-processing of released values: costs no privacy. Source: ours; parts in `filters.gaussian`, `filters.diagonal`.
Units: counts. State: (lag + 1) beliefs each of at most 3 starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engines.core.contract import State
from engines.markov.chain import Transition
from engines.markov.estimate import Estimate
from engines.markov.filters.gaussian import Belief
from engines.markov.filters.start import first_counts
from engines.markov.laplace import matched_scale
from engines.markov.simplex import project_onto
from schemas.arrays import BoolArray, FloatArray

CROWDED = 0.25
"""Concentration of the first start: few states hold nearly everybody."""
START_WEIGHTS = (1.0, 2.0, 3.0)
"""Of the starts, in the order of `_starts`; chosen on simulated chains with even, random and single-state starts."""
_LOST = 9.0
"""More weight of the even start where an even share is lost in the noise: then nothing is learnt of the start for long,
and of all guesses this one is the least wrong at worst."""
LEAST_WEIGHT = 1e-4
"""A start is dropped below it."""
ALIKE = 0.02
"""Means so few standard deviations apart, and variances so close, are the same belief."""
_ROUNDING = 1e-9


class BeliefFilter(Protocol):
    """`filters.gaussian.DenseFilter` or `filters.diagonal.DiagonalFilter`."""

    @property
    def total(self) -> float: ...
    @property
    def measured(self) -> BoolArray: ...
    def start(self, concentration: float) -> Belief: ...
    def belief(self, mean: FloatArray, variance: FloatArray) -> Belief: ...
    def predict(self, belief: Belief) -> Belief: ...
    def update(self, belief: Belief, noisy: FloatArray, scale: float) -> tuple[Belief, float]: ...
    def smooth(self, belief: Belief, later: Belief) -> Belief: ...
    def variances(self, belief: Belief) -> FloatArray: ...


@dataclass(frozen=True, slots=True, eq=False)
class Collective:
    """Implements `estimate.CountsEstimator`.

    Args:
        filter: how a belief moves. transition: for the states that can be reached. lag: a step is revised when it is so
            many steps old, and the last ones at the end; 0 for never.
    """

    filter: BeliefFilter
    transition: Transition
    lag: int

    def begin(self) -> State:
        beliefs = [self.filter.start(concentration) for concentration in self._starts()]
        weights = np.array(START_WEIGHTS)
        return {
            "means": np.stack([belief.mean for belief in beliefs])[:, None],
            "spreads": np.stack([belief.spread for belief in beliefs])[:, None],
            "weights": np.log(weights / weights.sum()),
            "possible": np.ones((1, self.transition.states), np.bool_),
        }

    def observe(
        self, state: State, step: int, noisy: FloatArray, scale: Fraction, *, last: bool
    ) -> tuple[State, tuple[Estimate, ...]]:
        means, spreads, possible = state["means"], state["spreads"], state["possible"]
        matched = matched_scale(scale)
        padded = np.zeros(self.transition.states)
        padded[: len(noisy)] = noisy
        weights = state["weights"].copy()
        if step == 0:
            lost = min(1.0, matched * len(noisy) / self.filter.total)
            weights[-1] += np.log1p(_LOST / START_WEIGHTS[-1] * lost**2)
        updated = []
        for start in range(len(weights)):
            belief = Belief(means[start, -1], spreads[start, -1])
            if step == 0 and start == 0:
                first = first_counts(padded, matched, self.filter.total, CROWDED, self.filter.measured)
                belief, evidence = self.filter.belief(first.mean, first.variance), first.evidence
            else:
                belief, evidence = self.filter.update(
                    belief if step == 0 else self.filter.predict(belief), padded, matched
                )
            updated.append(belief)
            weights[start] += evidence
        weights -= weights.max()
        weights -= np.log(np.exp(weights).sum())
        kept = self._kept(weights, updated)
        if step == 0:
            # What stood there was the belief before anything was seen: it is of no step.
            means, spreads = means[:, :0], spreads[:, :0]
        else:
            possible = np.concatenate([possible, self.transition.reachable(possible[-1])[None]])
        keep = slice(-self.lag - 1, None)
        after = {
            "means": np.concatenate([means, np.stack([b.mean for b in updated])[:, None]], axis=1)[kept, keep],
            "spreads": np.concatenate([spreads, np.stack([b.spread for b in updated])[:, None]], axis=1)[kept, keep],
            "weights": weights[kept],
            "possible": possible[keep],
        }
        return after, self._estimates(after, step, last=last)

    def _starts(self) -> tuple[float, ...]:
        """Concentrations of the first step's beliefs: people crowd in a few states, are anywhere, are evenly spread."""
        return (CROWDED, float(self.transition.states), float("inf"))

    def _kept(self, weights: FloatArray, beliefs: list[Belief]) -> npt.NDArray[np.intp]:
        """Starts that still matter; one that has come to believe what the best one does leaves it its weight."""
        best = int(np.argmax(weights))
        known, variances = beliefs[best].mean, self.filter.variances(beliefs[best])
        kept = weights >= np.log(LEAST_WEIGHT)
        for start, belief in enumerate(beliefs):
            if start == best or not kept[start]:
                continue
            near = ((belief.mean - known) ** 2 <= ALIKE**2 * variances + _ROUNDING).all()
            if near and (np.abs(self.filter.variances(belief) - variances) <= ALIKE * variances + _ROUNDING).all():
                kept[start] = False
                weights[best] = np.logaddexp(weights[best], weights[start])
        return np.flatnonzero(kept)

    def _estimates(self, state: State, step: int, *, last: bool) -> tuple[Estimate, ...]:
        window = state["means"].shape[1]
        back = range(window - 1) if last else range(1 if window == self.lag + 1 and self.lag else 0)
        paths = list(zip(state["means"], state["spreads"], strict=True))
        now = [Belief(means[-1], spreads[-1]) for means, spreads in paths]
        estimates = [self._mixed(state, now, step, window - 1, revised=False)]
        if back:
            smoothed = [
                self._smoothed(mean, spread) for mean, spread in zip(state["means"], state["spreads"], strict=True)
            ]
            for at in back:
                beliefs = [each[at] for each in smoothed]
                estimates.append(self._mixed(state, beliefs, step - (window - 1 - at), at, revised=True))
        return tuple(estimates)

    def _smoothed(self, means: FloatArray, spreads: FloatArray) -> list[Belief]:
        """Beliefs of the window's steps given all of it, oldest first."""
        beliefs = [Belief(means[-1], spreads[-1])]
        for at in range(len(means) - 2, -1, -1):
            beliefs.append(self.filter.smooth(Belief(means[at], spreads[at]), beliefs[-1]))
        return beliefs[::-1]

    def _mixed(self, state: State, beliefs: list[Belief], step: int, at: int, *, revised: bool) -> Estimate:
        shares = np.exp(state["weights"])
        shares /= shares.sum()
        means = np.stack([belief.mean for belief in beliefs])
        variances = np.stack([self.filter.variances(belief) for belief in beliefs])
        mean = shares @ means
        possible = state["possible"][at]
        spread = shares @ (variances + (means - mean) ** 2)
        return Estimate(
            step, project_onto(mean, self.filter.total, possible), np.where(possible, spread, 0.0), revised=revised
        )
