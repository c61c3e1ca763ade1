"""Counters that the product's are compared with: variances of their running sums, from their matrices.

Each function takes the number of activations and epsilon, or rho, and returns `(horizon,)` variances in squared events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import minimize

from engines.core.noise import DiscreteLaplace, scale_for
from schemas.arrays import FloatArray


def honaker(horizon: int, epsilon: Fraction) -> FloatArray:
    """Binary tree with estimates from below: same nodes and noise as `tree`, about 40 % less variance.

    A node of height l and those below it together estimate its interval, best with weights that are inverse to the
    heights' variances: with 2^l / (2^(l+1) - 1) times the variance of a node.
    Source: [honaker2015] (estimation from below).
    """
    levels, t = horizon.bit_length(), np.arange(1, horizon + 1)
    heights = sum((t >> level & 1) * (2**level / (2 ** (level + 1) - 1)) for level in range(levels))
    return np.asarray(heights) * DiscreteLaplace(scale_for(levels, epsilon)).variance


def optimal(horizon: int, epsilon: Fraction) -> FloatArray:
    """Most of an event in a node of its own, the rest in nodes that add up activations with optimised weights.

    That is the p-identity strategy S = [I; Theta] diag(1/s), s = 1 + column sums of Theta, of least mean variance, with
    noise of scale 1/epsilon on real numbers: each column adds up to 1.
    Source: [mckenna2018].
    """
    theta = optimised(horizon)
    weights = np.tri(horizon) * (1 + theta.sum(axis=0))
    inverse = np.linalg.inv(np.eye(horizon) + theta.T @ theta)
    return np.asarray(2 / float(epsilon) ** 2 * ((weights @ inverse) * weights).sum(axis=1))


@lru_cache(maxsize=8)
def optimised(horizon: int) -> FloatArray:
    """Find Theta `(nodes, horizon)` from one start: half a percent above what many starts find up to 200 activations.

    About 3 % at 1024.
    """
    nodes = round(horizon**0.5)
    start = 0.5 * np.random.default_rng([horizon, nodes, 0]).random(nodes * horizon)
    options: Any = {"maxiter": 1000, "maxcor": 20, "ftol": 1e-11, "gtol": 1e-8}
    bounds: list[tuple[float, float | None]] = [(0, None)] * start.size
    found = minimize(mean_variance, start, (horizon,), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return np.asarray(found.x).reshape(nodes, horizon)


def mean_variance(flat: FloatArray, horizon: int) -> tuple[float, FloatArray]:
    """Return the mean variance at epsilon 1, and its gradient.

    With W = L'L, V = diag(s) W diag(s) and X = (I + Theta' Theta)^-1 it is 2 tr(X V) / horizon.
    """
    theta = flat.reshape(-1, horizon)
    s = 1 + theta.sum(axis=0)
    tails = horizon - np.arange(horizon)  # the diagonal of W
    solved = np.linalg.solve(np.eye(len(theta)) + theta @ theta.T, theta)
    products = _times_w(solved * s)
    scaled = products * s
    value = float((tails * s * s).sum() - (theta * scaled).sum())
    through_x = -2 * (scaled - (scaled @ theta.T) @ solved)
    through_s = 2 * (tails * s - (theta * products).sum(axis=0))
    return 2 * value / horizon, (2 * (through_x + through_s) / horizon).ravel()


def _times_w(rows: FloatArray) -> FloatArray:
    return np.asarray(np.cumsum(np.cumsum(rows, axis=1)[:, ::-1], axis=1)[:, ::-1])


def square_root(horizon: int, rho: Fraction) -> FloatArray:
    """Gaussian noise by the Toeplitz square root of the lower triangle of ones, r_j = binom(2j, j) / 4^j.

    Source: [henzinger2023]; [fichtenberger2023]. `blt` is fitted to it.
    """
    squares = np.cumprod(np.concatenate([[1.0], 1 - 0.5 / np.arange(1, horizon)])) ** 2
    return np.asarray(np.cumsum(squares) * squares.sum() / (2 * float(rho)))


COUNTERS: Mapping[str, Callable[[int, Fraction], FloatArray]] = {
    "honaker": honaker,
    "optimal": optimal,
    "toeplitz": square_root,
}
LONGEST = {"optimal": 1024}
"""Activations for which strategies are found in about a minute."""
