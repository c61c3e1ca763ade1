"""Temporal privacy leakage: what one step's record loses to an adversary who knows how users move.

Noise at epsilon_t hides one user's state at step t from somebody who knows nothing of the other steps. Who knows the
transition matrix learns of it from the releases before (backward) and after (forward), too:
    B_t = L_b(B_(t-1)) + epsilon_t,    F_t = L_f(F_(t+1)) + epsilon_t,    total_t = B_t + F_t - epsilon_t,
    L(a) = max over rows q, d and sets of states S of ln (1 + q(S) (e^a - 1)) / (1 + d(S) (e^a - 1)).
`alpha-DP_T` says that no step's total is above alpha. 0 <= L(a) <= a, so totals lie between epsilon_t and the sum.
Source: [cao2017], and "... in continuous data release", TKDE 2019. There L is a linear-fractional program solved by
    removing states one by
    one; the best set is a prefix in the order of q/d, so all prefixes of all pairs are looked at at once.
Units: epsilon in nats, of one user's state in one step.

`allocate` gives budgets of single steps that keep every step's leakage at alpha or below (alpha-DP_T). With levels b, f
and e = b - L_b(b) = f - L_f(f), b + f - e = alpha: a first step at b, steps at e, and a last one at f hold the backward
leakage at b and the forward one at f throughout, so every total is alpha exactly. Without an end every step costs e.
Where that is worse than an even share of alpha among the steps, the even share is taken: leakage is never above the
sum. Where users may stay where they are for ever, e is 0 and an infinite horizon is refused.
Source: [cao2017], algorithms for finite and infinite horizons.
Guarantee: budgets are rounded down, and the curve of a finite horizon is computed again and compared with alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError

EXACT_STATES = 128
"""More states have too many pairs of rows; then L(a) = a is used, which is never below the true value."""
_ROUNDS = 10_000
_STILL = 1e-12
_HUGE = 500.0


@dataclass(frozen=True, slots=True, eq=False)
class Correlation:
    """What a step's leakage becomes one step further on, `L`.

    Args: sums_q, sums_d: probabilities of the candidate sets under the two rows, `(candidates,)`; None: L(a) = a.
    """

    sums_q: FloatArray | None
    sums_d: FloatArray | None

    @staticmethod
    def from_matrix(matrix: FloatArray) -> Correlation:
        """Read a matrix `(states, states)` whose rows say where a user is, given where they were one step apart."""
        states = len(matrix)
        if states > EXACT_STATES:
            return Correlation(None, None)
        found_q: list[FloatArray] = [np.zeros(1)]
        found_d: list[FloatArray] = [np.zeros(1)]
        for row in matrix:
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(row > 0, row / matrix, -1.0)
            order = np.argsort(-ratio, axis=1, kind="stable")
            found_q.append(np.cumsum(np.take(row, order), axis=1).ravel())
            found_d.append(np.cumsum(np.take_along_axis(matrix, order, axis=1), axis=1).ravel())
        q, d = np.concatenate(found_q), np.concatenate(found_d)
        kept = _undominated(q, d)
        return Correlation(np.minimum(q[kept], 1.0), d[kept])

    def step(self, leakage: float) -> float:
        """Return L(leakage).

        >>> Correlation.from_matrix(np.eye(2)).step(0.7), Correlation.from_matrix(np.full((2, 2), 0.5)).step(0.7)
        (0.7, 0.0)
        """
        if self.sums_q is None or self.sums_d is None or leakage > _HUGE:
            return leakage
        # Divided by e^a, so that nothing overflows: (e^-a + q (1 - e^-a)) / (e^-a + d (1 - e^-a)).
        small, rest = np.exp(-leakage), -np.expm1(-leakage)
        best = float(np.log((small + self.sums_q * rest) / (small + self.sums_d * rest)).max())
        return min(max(best, 0.0), leakage)


def _undominated(q: FloatArray, d: FloatArray) -> IntArray:
    """Return indices of sets that no other one beats with more of q and less of d."""
    order: IntArray = np.lexsort((-q, d)).astype(np.int64)
    best = np.maximum.accumulate(q[order])
    first = np.r_[True, q[order][1:] > best[:-1]]
    return order[first]


def reversed_chain(matrix: FloatArray) -> FloatArray | None:
    """Return where a user was a step before, given where they are, in the long run; None if there is no one long run.

    Returns: `(states, states)` rows of `pi_k P_kj / pi_j`; states that are never reached keep a row of their own.
    """
    states = len(matrix)
    system = np.vstack([matrix.T - np.eye(states), np.ones(states)])
    pi, _, rank, _ = np.linalg.lstsq(system, np.r_[np.zeros(states), 1.0], rcond=1e-10)
    if rank < states or (pi < -1e-9).any():
        return None
    pi = np.maximum(pi, 0.0)
    if (pi <= 1e-12).any():
        return None
    return matrix.T * pi[None, :] / pi[:, None]


@dataclass(frozen=True, slots=True, eq=False)
class Leakage:
    """The leakages of each step, `(steps,)`."""

    backward: FloatArray
    forward: FloatArray
    total: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Adversary:
    """An adversary who knows the chain, forwards and backwards. Args: backward, forward: see `Correlation`."""

    backward: Correlation
    forward: Correlation

    @staticmethod
    def worst() -> Adversary:
        """Return the adversary who knows where a user is at all steps from where they are at one."""
        return Adversary(Correlation(None, None), Correlation(None, None))

    @staticmethod
    def from_matrix(matrix: FloatArray) -> Adversary:
        """Return the adversary who knows this matrix and its long-run reversal; where there is none, the worst one."""
        if len(matrix) > EXACT_STATES:
            return Adversary.worst()
        before = reversed_chain(matrix)
        backward = Correlation(None, None) if before is None else Correlation.from_matrix(before)
        return Adversary(backward, Correlation.from_matrix(matrix))

    def curve(self, epsilons: Sequence[float]) -> Leakage:
        """Return the leakage at each of finitely many steps, all of which have been released.

        >>> always = Adversary.from_matrix(np.eye(2))
        >>> always.curve([0.1, 0.1, 0.1]).total.round(6).tolist()
        [0.3, 0.3, 0.3]
        """
        spent = np.array(epsilons, np.float64)
        backward, forward = spent.copy(), spent.copy()
        for at in range(1, len(spent)):
            backward[at] += self.backward.step(float(backward[at - 1]))
        for at in range(len(spent) - 2, -1, -1):
            forward[at] += self.forward.step(float(forward[at + 1]))
        return Leakage(backward, forward, backward + forward - spent)

    def supremum(self, epsilon: float, *, above: float = 100.0) -> float | None:
        """Return what a step's total approaches if each step costs `epsilon` for ever; None if it is beyond `above`."""
        ends = [fixed_point(correlation, epsilon, above=above) for correlation in (self.backward, self.forward)]
        if ends[0] is None or ends[1] is None:
            return None
        return ends[0] + ends[1] - epsilon


def fixed_point(correlation: Correlation, epsilon: float, *, above: float) -> float | None:
    """Return the least a with a = L(a) + epsilon, from below; None if it is beyond `above` or not reached."""
    leakage = epsilon
    for _ in range(_ROUNDS):
        after = correlation.step(leakage) + epsilon
        if after > above:
            return None
        if after - leakage <= _STILL:
            return after
        leakage = after
    return None


_GRID = 2**40
_MARGIN = 1e-9
_HALVINGS = 60
LEAST = 1e-6
"""A step's epsilon below it releases nothing but noise."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Budgets of the first step, of those between, and of the last one of `horizon`; exact. `horizon` None: no end."""

    written_as: ClassVar[str] = "Allocation"

    first: Fraction
    middle: Fraction
    last: Fraction
    horizon: int | None

    def at(self, step: int) -> Fraction:
        """Return the budget of a step, counted from 0."""
        if step == 0:
            return self.first
        return self.last if self.horizon is not None and step == self.horizon - 1 else self.middle

    @property
    def largest(self) -> Fraction:
        """The most that one record costs, to somebody who knows of no correlation."""
        if self.horizon is None:
            return max(self.first, self.middle)
        return max(self.at(step) for step in {0, self.horizon - 1, min(1, self.horizon - 1)})


def allocate(alpha: Fraction, adversary: Adversary, *, horizon: int | None) -> Allocation:
    """Return budgets under which no step's total leakage is above `alpha`.

    Raises: EngineInputError if there is no end and no positive budget could be kept up for ever.
    """
    if alpha <= 0 or (horizon is not None and horizon < 1):
        raise EngineInputError("alpha must be positive and the horizon at least 1")
    if horizon == 1:
        return Allocation(alpha, alpha, alpha, 1)
    level = float(alpha) * (1 - _MARGIN)
    middle, back, front = _levels(level, adversary)
    if horizon is None:
        if middle < LEAST:
            raise EngineInputError(
                "under this chain leakage adds up without end, so no alpha can be kept for ever: declare a horizon"
            )
        return Allocation(_down(middle), _down(middle), _down(middle), None)
    even = level / horizon
    if middle <= even and horizon > 2:
        share = _down(even)
        return Allocation(share, share, share, horizon)
    made = Allocation(_down(back), _down(middle), _down(front), horizon)
    # Beyond some hundred steps nothing new happens between the ends.
    steps = min(horizon, 512)
    budgets = [made.first] + [made.middle] * (steps - 2) + [made.last]
    worst = float(adversary.curve([float(budget) for budget in budgets]).total.max())
    if worst > float(alpha):
        raise EngineInputError("no allocation was found that keeps alpha: please report the transition matrix")
    return made


def _levels(alpha: float, adversary: Adversary) -> tuple[float, float, float]:
    """Return e, b and f of the module's equations, by halving e: b and f rise with it."""
    low, high = 0.0, alpha
    levels = (0.0, alpha / 2, alpha / 2)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        back = _level(adversary.backward, middle, alpha)
        front = _level(adversary.forward, middle, alpha)
        if back is not None and front is not None and back + front - middle <= alpha:
            low, levels = middle, (middle, back, front)
        else:
            high = middle
    return levels


def _level(correlation: Correlation, epsilon: float, alpha: float) -> float | None:
    """Return the least a with a - L(a) >= epsilon, which does not fall in a; None if it is above alpha."""
    if alpha - correlation.step(alpha) < epsilon:
        return None
    low, high = 0.0, alpha
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle - correlation.step(middle) >= epsilon:
            high = middle
        else:
            low = middle
    return high


def _down(value: float) -> Fraction:
    return Fraction(int(value * _GRID), _GRID)
