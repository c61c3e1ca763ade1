"""Where users were in the first step: shares from a Dirichlet law meet its noisy counts, without a Gaussian's help.

Counts are `total` times the shares: Gamma variables of shape concentration/states that happen to add up to the total.
Each meets its Laplace noise on its own, tilted by exp(-multiplier * count) so that the means add up to the total (a
saddle point); moments and evidence are integrals over one count. A Gaussian prior of the same variance is fine where
users are spread, but cannot say that a few states hold all of them, and pulls those down.
Post-processing of released values: costs no privacy.
Source: Dirichlet as conditioned Gammas and the saddle point are textbook ([butler2007], chapter 4); the combination is
    ours.
Units: counts. Cost: O(states), once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi

import numpy as np
from scipy.special import gammaln

from schemas.arrays import BoolArray, FloatArray

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
    """Counts of the first step given its noisy ones.

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
    """`(states, nodes)` from 0 to `total`, close together near 0 and near the noisy count."""
    wide = np.geomspace(min(1e-4 * total, 1e-2 * scale), total, _WIDE)
    near = scale * np.geomspace(1e-2, 40.0, _NEAR)
    around = np.concatenate([-near, np.zeros(1), near])
    nodes = np.concatenate([np.broadcast_to(wide, (len(noisy), _WIDE)), noisy[:, None] + around], axis=1)
    return np.concatenate([np.zeros((len(noisy), 1)), np.sort(np.clip(nodes, 0, total), axis=1)], axis=1)


def _weights(nodes: FloatArray, shape: float) -> FloatArray:
    """Of the trapezium rule for r**(shape - 1) dr, exact for constants however steep that is at 0."""
    steps = np.diff(nodes**shape, axis=1) / shape
    weights = np.zeros(nodes.shape)
    weights[:, :-1] += steps / 2
    weights[:, 1:] += steps / 2
    return weights
