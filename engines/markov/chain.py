"""Transitions between states, and the arithmetic of counts that every estimator shares.

`Transition` says how users move from one step to the next: a public matrix, dense or sparse.

Guarantee: none needed; the matrix is declared, or learnt from released counts. Structural zeros (moves that cannot
    happen) are kept everywhere: a state that nobody can have reached is released as 0.
Source: [cao2023], section 5.2 (eq. 7); the covariance of collective counts is that of independent multinomial moves.
Units: row = state now, column = state next, entries are probabilities.

`project` and `likeliest` give counts that cannot be negative and add up to a declared total.
Source: the Euclidean projection onto a simplex by sorting ([held1974]). It also solves the maximum
    likelihood problem under Laplace noise of [cao2023]'s comparator ([lee2015]), min |y - r|_1 with
    r >= 0 and sum r = n, whose solution is not unique: every entry moves the same way as the sum has to, or from below
    zero up to zero, so no smaller L1 distance is possible.

`laplace_moments` gives exact mean, variance and evidence where a Gaussian belief about a count meets the count with
Laplace noise. The posterior is a Gaussian pushed up by variance/scale below the noisy value and pushed down above it:
two truncated Gaussians, whose moments are known.
Post-processing of released values: costs no privacy. Source: ours, from the definition; the continuous law stands for
    the discrete one, with the same variance (`matched_scale`).
Units: counts; `evidence` is the log density of the noisy value before it was seen.

Estimators (`CountsEstimator`) see released values only, so they are post-processing and cost no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import log, pi, sqrt
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from scipy.special import erfcx

from engines.core.contract import State
from engines.core.noise import LEAST_VARIANCE, DiscreteLaplace
from schemas.arrays import BoolArray, FloatArray
from schemas.errors import EngineInputError

# The stubs of scipy's sparse arrays infer their element type from the first argument, wrongly.
Sparse = Any
_csr: Any = sparse.csr_array

ROW_TOLERANCE = 1e-6
"""By how much a row's sum may miss 1, for numbers written with few digits; rows are then divided by their sum."""
SPARSE_ABOVE = 64
"""States beyond which only diagonal filters are used, on a sparse matrix."""


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """A checked transition matrix. Make one with `from_matrix`."""

    matrix: Sparse
    _forward: Sparse = field(repr=False)
    _squared: Sparse = field(repr=False)

    @staticmethod
    def from_matrix(matrix: FloatArray | Sparse) -> Transition:
        """Check a `(states, states)` matrix, and divide its rows by their sums.

        Raises: EngineInputError, naming the first row (from 1) that is negative, not finite or does not sum to 1.

        >>> Transition.from_matrix(np.array([[0.5, 0.5], [0.2, 0.7]]))
        Traceback (most recent call last):
        ...
        schemas.errors.EngineInputError: row 2 of the transition matrix sums to 0.9: rows are probabilities and sum to 1
        """
        rows: Sparse = _csr(matrix, copy=True).astype(np.float64)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        if rows.ndim != 2 or rows.shape[0] != rows.shape[1] or rows.shape[0] < 1:
            raise EngineInputError("the transition matrix must be square, with a row and a column for each state")
        bad = ~np.isfinite(rows.data) | (rows.data < 0)
        if bad.any():
            row = int(np.searchsorted(rows.indptr, int(np.argmax(bad)), side="right"))
            raise EngineInputError(f"row {row} of the transition matrix has an entry that is no probability")
        sums = np.asarray(rows.sum(axis=1)).ravel()
        off = np.abs(sums - 1) > ROW_TOLERANCE
        if off.any():
            row = int(np.argmax(off))
            raise EngineInputError(
                f"row {row + 1} of the transition matrix sums to {sums[row]:.6g}: rows are probabilities and sum to 1"
            )
        rows = _csr(sparse.diags_array(1 / sums) @ rows)
        forward = _csr(rows.T)
        return Transition(rows, forward, _csr(forward.multiply(forward)))

    @property
    def states(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def dense(self) -> FloatArray:
        """The matrix, `(states, states)`; a copy."""
        return np.asarray(self.matrix.toarray())

    def forward(self, counts: FloatArray) -> FloatArray:
        """Return the expected counts of the next step, `(states,)`."""
        return np.asarray(self._forward @ counts)

    def forward_variance(self, counts: FloatArray, variances: FloatArray) -> FloatArray:
        """Return the variances of the next step's counts, `(states,)`: what was unsure before, and the moves
        themselves.

        The counts before are taken as independent of each other.
        """
        return np.asarray(self._squared @ (variances - counts) + self._forward @ counts)

    def backward(self, values: FloatArray) -> FloatArray:
        """Return `matrix @ values`, `(states,)`."""
        return np.asarray(self.matrix @ values)

    def backward_squared(self, values: FloatArray) -> FloatArray:
        """Return `values` times the matrix of squared entries."""
        return np.asarray(self._squared.T @ values)

    def reachable(self, possible: BoolArray) -> BoolArray:
        """Return which states can hold anybody a step after these could, `(states,)`."""
        return np.asarray((self._forward @ possible.astype(np.float64)) > 0)


def covariance_step(matrix: FloatArray, mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean `P'm` and covariance `P'SP + sum_l m_l (diag P_l - P_l P_l')` of the next step's counts, P dense.

    Args:
        matrix: `(states, states)`. mean: `(states,)`. covariance: `(states, states)`.
    """
    leaving = np.maximum(mean, 0.0)
    moves = np.diag(leaving @ matrix) - (matrix.T * leaving) @ matrix
    return matrix.T @ mean, matrix.T @ covariance @ matrix + moves


def project(values: FloatArray, total: float) -> FloatArray:
    """Return the point of {r >= 0, sum r = total} nearest to `values`, `(..., cells)`; each row is projected by itself.

    >>> project(np.array([5.0, 1.0, -3.0]), 4.0)
    array([4., 0., 0.])
    """
    ordered = -np.sort(-values, axis=-1)
    above = (np.cumsum(ordered, axis=-1) - total) / np.arange(1, values.shape[-1] + 1)
    kept = np.maximum((ordered > above).sum(axis=-1), 1)
    rows = above.reshape(-1, values.shape[-1])
    shift = rows[np.arange(len(rows)), kept.reshape(-1) - 1].reshape(*kept.shape, 1)
    nearest: FloatArray = np.maximum(values - shift, 0.0)
    return nearest


def project_onto(values: FloatArray, total: float, possible: BoolArray) -> FloatArray:
    """Project as `project` does, with zeros where `possible` is False: a structural zero stays one."""
    nearest = np.zeros(values.shape)
    nearest[..., possible] = project(values[..., possible], total)
    return nearest


def likeliest(noisy: FloatArray, total: float, *, unseen: bool) -> FloatArray:
    """Return maximum likelihood counts under Laplace noise; what is missing to `total` goes to those who are unseen.

    Args:
        noisy: `(states,)` counts with noise. unseen: append the count of those who are in no state.
    Returns: `(states,)`, or `(states + 1,)` with the unseen ones last.
    """
    if not unseen:
        return project(noisy, total)
    clipped = np.maximum(noisy, 0.0)
    seen = clipped if clipped.sum() <= total else project(noisy, total)
    return np.append(seen, total - seen.sum())


LEAST_SCALE = sqrt(LEAST_VARIANCE / 2)
_ROOT2, _ROOT_2PI = sqrt(2), sqrt(2 * pi)
_FAR = -50.0
_LEAST_SHARE = 1e-18


def matched_scale(scale: Fraction) -> float:
    """Return the scale of the continuous Laplace law with the variance of the discrete one.

    >>> round(matched_scale(Fraction(4)), 3)
    3.99
    """
    return max(LEAST_SCALE, sqrt(DiscreteLaplace(scale).variance / 2))


def laplace_moments(
    mean: FloatArray, variance: FloatArray, noisy: FloatArray, scale: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the posterior mean and variance of x ~ N(mean, variance) given `noisy` = x + Laplace(scale), and its log
    density.

    All arrays have one shape; entries are independent of each other. `variance` is positive.

    >>> m, v, _ = laplace_moments(np.array([0.0]), np.array([1e6]), np.array([7.0]), 2.0)
    >>> round(float(m[0]), 2), round(float(v[0]), 2)
    (7.0, 8.0)
    """
    deviation = np.sqrt(variance)
    push = deviation / scale
    gap = (noisy - mean) / deviation
    mean_below, spread_below, weight_below = _half(gap, push)
    mean_above, spread_above, weight_above = _half(-gap, push)
    top = np.maximum(weight_below, weight_above)
    share_below, share_above = np.exp(weight_below - top), np.exp(weight_above - top)
    both = share_below + share_above
    share_below /= both
    share_above /= both
    shift = share_below * mean_below - share_above * mean_above
    share = share_below * spread_below + share_above * spread_above
    share += share_below * share_above * (mean_below + mean_above) ** 2
    evidence = top + np.log(both) - log(2 * scale)
    return mean + deviation * shift, variance * np.clip(share, _LEAST_SHARE, 1.0), evidence


def _half(gap: FloatArray, push: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return mean, variance and log weight of the part below the noisy value, in standard deviations from the prior
    mean.

    A standard Gaussian pushed up by `push` and cut off at `gap`.
    """
    cut = gap - push
    tail = cut < 0
    # erfcx has no exponential in it to cancel against: exact however far out the cut is.
    scaled = erfcx(np.abs(cut) / _ROOT2) / 2
    with np.errstate(under="ignore"):
        bell = np.exp(-0.5 * cut * cut)
        mass = np.where(tail, scaled, 1 - scaled * bell)
        ratio = np.where(tail, 1.0, bell) / (_ROOT_2PI * mass)
    weight = np.log(mass) + np.where(tail, -0.5 * gap * gap, push * (push / 2 - gap))
    far = np.minimum(cut, _FAR)
    spread = np.where(cut < _FAR, (1 - 6 / far**2) / far**2, 1 - ratio * (cut + ratio))
    return push - ratio, spread, weight


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Counts of one step, `(states,)` each, those who are unseen last where there are any.

    Attributes:
        step: that they are of. variances: of the error that is left, as far as the estimator can tell.
        revised: True if the step was released before.
    """

    step: int
    counts: FloatArray
    variances: FloatArray
    revised: bool = False


class CountsEstimator(Protocol):
    """What estimates counts from noisy ones; its state goes in and comes out, and it keeps none of its own."""

    def begin(self) -> State:
        """Return the state before the first step."""
        ...

    def observe(
        self, state: State, step: int, noisy: FloatArray, scale: Fraction, *, last: bool
    ) -> tuple[State, tuple[Estimate, ...]]:
        """Return the next state, this step's estimate, and revisions of earlier ones.

        Args:
            noisy: `(states,)` counts with discrete Laplace noise of this scale. last: no step will follow.
        """
        ...
