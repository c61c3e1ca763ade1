"""Mode `default` with a declared chain: the collective filter with exact Laplace moments, and its smoother.

`DenseFilter` holds a Gaussian with a full covariance: it predicts, meets noisy counts and smooths.

Counts of users who move independently have mean `P'm` and a covariance that keeps their sum. Laplace noise is matched
cell by cell by a Gaussian with the exact posterior moments (expectation propagation), or, with `exact` off, taken for
Gaussian noise of the same variance (the Kalman filter).
Post-processing of released values: costs no privacy.
Source: collective filtering, [sheldon2011] (its Gaussian limit); expectation propagation,
    [minka2001]; smoothing, [rauch1965]. The combination is ours.
Units: counts. Cost: O(states^3) a step.

`DiagonalFilter` is for many states: one mean and one variance for each, the chain as a sparse matrix. Correlations
between states are dropped, except for the one that matters: the total is declared, so what a step's means lack to it is
shared out in proportion to the variances.
Cost: O(states + nonzeros of the matrix) a step.

`first_counts` says where users were in the first step: shares from a Dirichlet law meet its noisy counts. Counts are
`total` times the shares: Gamma variables of shape concentration/states that happen to add up to the total. Each meets
its Laplace noise on its own, tilted by exp(-multiplier * count) so that the means add up to the total (a saddle point);
moments and evidence are integrals over one count. A Gaussian prior of the same variance is fine where users are spread,
but cannot say that a few states hold all of them, and pulls those down.
Source: Dirichlet as conditioned Gammas and the saddle point are textbook ([butler2007], chapter 4); the combination is
    ours.
Cost: O(states), once.

`Collective` releases estimates, and revises them once by a fixed-lag smoother. Nobody knows where users start, so three
beliefs run side by side - in a few places, anywhere, and evenly spread - and are weighted by how well they foresaw the
noisy counts; one that foresaw badly is dropped for good. The first of them is no Gaussian and meets the first noisy
counts in `first_counts`.
State: (lag + 1) beliefs each of at most 3 starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import log, pi
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from engines.core.contract import State
from engines.markov.chain import Estimate, Transition, covariance_step, laplace_moments, matched_scale, project_onto
from schemas.arrays import BoolArray, FloatArray

SWEEPS = 3
DAMPING = 0.8
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """Mean `(states,)`; spread: covariances `(states, states)` here, `(states,)` variances in the diagonal filter."""

    mean: FloatArray
    spread: FloatArray


def _alike(total: float, concentration: float) -> float:
    """Return the variance of counts of people whose law has this concentration, beside that of independent ones."""
    return 1.0 if np.isinf(concentration) else (total + concentration) / (1 + concentration)


@dataclass(frozen=True, slots=True, eq=False)
class DenseFilter:
    """Args: matrix: `(states, states)`. total: users. measured: `(states,)`, False where nothing is counted."""

    matrix: FloatArray
    total: float
    measured: BoolArray
    exact: bool = True

    def start(self, concentration: float) -> Belief:
        """Return the belief that everyone's state is drawn from one distribution, itself Dirichlet with this
        concentration around the even one.

        Infinite: everyone is anywhere, independently. A small one allows that all are in one place.
        """
        share = 1 / len(self.matrix)
        alike = _alike(self.total, concentration)
        spread = self.total * alike * share * (np.eye(len(self.matrix)) - share)
        return Belief(np.full(len(self.matrix), self.total * share), spread)

    def belief(self, mean: FloatArray, variance: FloatArray) -> Belief:
        """Return the belief in independent counts `(states,)` of these moments that happen to add up to the total."""
        spread = np.diag(variance) - np.outer(variance, variance) / max(float(variance.sum()), _LEAST_VARIANCE)
        return Belief(mean, spread)

    def predict(self, belief: Belief) -> Belief:
        return Belief(*covariance_step(self.matrix, belief.mean, belief.spread))

    def update(self, belief: Belief, noisy: FloatArray, scale: float) -> tuple[Belief, float]:
        """Return the belief after a step's noisy counts `(states,)`, and the sum of their log evidence by cell."""
        variances = np.maximum(belief.spread.diagonal(), _LEAST_VARIANCE)
        evidence = laplace_moments(belief.mean, variances, noisy, scale)[2]
        return self.met(belief, noisy, scale), float(evidence[self.measured].sum())

    def met(self, belief: Belief, noisy: FloatArray, scale: float) -> Belief:
        """Return the belief after a step's noisy counts `(states,)`, where nobody asks how likely they were."""
        precision = np.where(self.measured, 1 / (2 * scale * scale), 0.0)
        shift = precision * noisy
        after = _meet(belief, precision, shift)
        for _ in range(SWEEPS if self.exact else 0):
            # Each cell's site is replaced: take it away, meet the true noise, and see what Gaussian that amounts to.
            inverse = 1 / np.maximum(after.spread.diagonal(), _LEAST_VARIANCE)
            without = np.maximum(inverse - precision, 1e-3 * inverse)
            cavity = (after.mean * inverse - shift) / without
            mean, variance, _ = laplace_moments(cavity, 1 / without, noisy, scale)
            precision_new = np.where(self.measured, np.maximum(1 / variance - without, 1e-12), 0.0)
            shift_new = np.where(self.measured, mean / variance - cavity * without, 0.0)
            precision = (1 - DAMPING) * precision + DAMPING * precision_new
            shift = (1 - DAMPING) * shift + DAMPING * shift_new
            after = _meet(belief, precision, shift)
        return after

    def smooth(self, belief: Belief, later: Belief) -> Belief:
        """Return the belief about a step, once `later` is known of the next one."""
        return self.smoothed(belief, self.predict(belief), later)[0]

    def smoothed(self, belief: Belief, ahead: Belief, later: Belief) -> tuple[Belief, FloatArray]:
        """Return what `smooth` does, and the covariance of the next step's counts with this one's, `(states, states)`.

        Args: ahead: `predict(belief)`. later: what is known of the next step.
        """
        # Singular along the sum, which both beliefs share exactly: any weight there gives the same answer.
        states = len(self.matrix)
        weight = max(float(ahead.spread.trace()), _LEAST_VARIANCE) / states
        regular = ahead.spread + weight / states
        regular.flat[:: states + 1] += 1e-9 * weight
        turned = np.linalg.solve(regular, (belief.spread @ self.matrix).T)
        gain = turned.T
        mean = belief.mean + gain @ (later.mean - ahead.mean)
        spread = belief.spread + gain @ (later.spread - ahead.spread) @ turned
        return Belief(mean, (spread + spread.T) / 2), later.spread @ turned

    def variances(self, belief: Belief) -> FloatArray:
        """Return the variance of each count, `(states,)`, not negative."""
        return np.maximum(np.diag(belief.spread), 0.0)


def _meet(prior: Belief, precision: FloatArray, shift: FloatArray) -> Belief:
    """Multiply a Gaussian prior, possibly singular, by one Gaussian site for each cell."""
    system = prior.spread * precision[None, :]
    system.flat[:: len(system) + 1] += 1.0
    spread = np.linalg.solve(system, prior.spread)
    spread = (spread + spread.T) / 2
    return Belief(prior.mean + spread @ (shift - precision * prior.mean), spread)


_LEAST_SPREAD = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class DiagonalFilter:
    """A `DenseFilter` whose beliefs have `(states,)` variances as their spread."""

    transition: Transition
    total: float
    measured: BoolArray

    def start(self, concentration: float) -> Belief:
        states = self.transition.states
        alike = _alike(self.total, concentration)
        mean = np.full(states, self.total / states)
        return Belief(mean, mean * alike * (1 - 1 / states) + _LEAST_SPREAD)

    def belief(self, mean: FloatArray, variance: FloatArray) -> Belief:
        left = np.maximum(1 - variance / max(float(variance.sum()), _LEAST_SPREAD), 0.0)
        return Belief(mean, np.maximum(variance * left, _LEAST_SPREAD))

    def predict(self, belief: Belief) -> Belief:
        counts = np.maximum(belief.mean, 0.0)
        variances = self.transition.forward_variance(counts, belief.spread)
        return Belief(self.transition.forward(belief.mean), np.maximum(variances, _LEAST_SPREAD))

    def update(self, belief: Belief, noisy: FloatArray, scale: float) -> tuple[Belief, float]:
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
        return Belief(mean, np.clip(spread, _LEAST_SPREAD, np.maximum(belief.spread, counts)))

    def variances(self, belief: Belief) -> FloatArray:
        """Return the variance of each count, `(states,)`."""
        return belief.spread


_WIDE, _NEAR = 40, 20
"""Nodes over the whole range, and on each side of the noisy count, where the density has its kink."""


@dataclass(frozen=True, slots=True, eq=False)
class FirstCounts:
    """Attributes: mean, variance: `(states,)`, means add up to the total. evidence: log density of the noisy counts."""

    mean: FloatArray
    variance: FloatArray
    evidence: float


def first_counts(
    noisy: FloatArray, scale: float, total: float, concentration: float, measured: BoolArray
) -> FirstCounts:
    """Return the counts of the first step given its noisy ones.

    Args:
        noisy: `(states,)`, ignored where `measured` is False. concentration: positive; 1 lets a few states have all.

    >>> found = first_counts(np.array([96.0, 9.0, -7.0]), 5.0, 100.0, 1.0, np.ones(3, bool))
    >>> bool(found.mean[0] > 80), round(float(found.mean.sum()), 6)
    (True, 100.0)
    """
    from scipy.optimize import brentq

    if len(noisy) == 1:
        surprise = abs(float(noisy[0]) - total) / scale + log(2 * scale) if measured[0] else 0.0
        return FirstCounts(np.array([total]), np.zeros(1), -surprise)
    shape = concentration / len(noisy)
    rate = np.where(measured, 1 / scale, 0.0)
    nodes = _nodes(np.where(measured, noisy, 0.0), scale, total)
    distance = np.abs(noisy[:, None] - nodes) * rate[:, None]
    nearest = distance.min(axis=1)
    weights = _weights(nodes, shape)

    def moments(multiplier: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        exponent = nearest[:, None] - distance - multiplier * nodes
        top = exponent.max(axis=1)
        density = weights * np.exp(exponent - top[:, None])
        mass = density.sum(axis=1)
        mean = (density * nodes).sum(axis=1) / mass
        variance = (density * (nodes - mean[:, None]) ** 2).sum(axis=1) / mass
        return mean, variance, top + np.log(mass)

    def excess(multiplier: float) -> float:
        return float(moments(multiplier)[0].sum()) - total

    bound = rate.max() + 1 / scale
    while excess(-bound) < 0:
        bound *= 2
    low, high = -bound, bound
    while excess(high) > 0:
        high *= 2
    multiplier = float(brentq(excess, low, high, xtol=1e-12 * bound, maxiter=200))
    mean, variance, logs = moments(multiplier)
    spread = max(float(variance.sum()), 1e-9)
    evidence = float((logs - nearest).sum()) - float(measured.sum()) * log(2 * scale)
    # The Gammas' own density at their sum, and that of the tilted ones: the condition that they add up.
    prior = (concentration - 1) * log(total) - float(gammaln(concentration)) + len(noisy) * float(gammaln(shape))
    evidence += multiplier * total - 0.5 * log(2 * pi * spread) - prior
    return FirstCounts(mean + (total - mean.sum()) * variance / spread, variance, evidence)


def _nodes(noisy: FloatArray, scale: float, total: float) -> FloatArray:
    """Return nodes `(states, nodes)` from 0 to `total`, close together near 0 and near the noisy count."""
    wide = np.geomspace(min(1e-4 * total, 1e-2 * scale), total, _WIDE)
    near = scale * np.geomspace(1e-2, 40.0, _NEAR)
    around = np.concatenate([-near, np.zeros(1), near])
    nodes = np.concatenate([np.broadcast_to(wide, (len(noisy), _WIDE)), noisy[:, None] + around], axis=1)
    return np.concatenate([np.zeros((len(noisy), 1)), np.sort(np.clip(nodes, 0, total), axis=1)], axis=1)


def _weights(nodes: FloatArray, shape: float) -> FloatArray:
    """Return the weights of the trapezium rule for r**(shape - 1) dr, exact for constants however steep it is at 0."""
    steps = np.diff(nodes**shape, axis=1) / shape
    weights = np.zeros(nodes.shape)
    weights[:, :-1] += steps / 2
    weights[:, 1:] += steps / 2
    return weights


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
    """What `DenseFilter` and `DiagonalFilter` have in common."""

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
    """The `CountsEstimator` of mode `default` with a declared chain.

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
        """Return concentrations of the first beliefs: people crowd in a few states, are anywhere, are evenly spread."""
        return (CROWDED, float(self.transition.states), float("inf"))

    def _kept(self, weights: FloatArray, beliefs: list[Belief]) -> npt.NDArray[np.intp]:
        """Return the starts that still matter; one that has come to believe what the best one does leaves it its
        weight.
        """
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
            smoothed = [self._smoothed(means, spreads) for means, spreads in paths]
            for at in back:
                beliefs = [each[at] for each in smoothed]
                estimates.append(self._mixed(state, beliefs, step - (window - 1 - at), at, revised=True))
        return tuple(estimates)

    def _smoothed(self, means: FloatArray, spreads: FloatArray) -> list[Belief]:
        """Return the beliefs of the window's steps given all of it, oldest first."""
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
