"""Budgets of single steps that keep every step's temporal privacy leakage at alpha or below (alpha-DP_T).

With levels b, f and e = b - L_b(b) = f - L_f(f), b + f - e = alpha: a first step at b, steps at e, and a last one at f
hold the backward leakage at b and the forward one at f throughout, so every total is alpha exactly. Without an end
every step costs e. Where that is worse than an even share of alpha among the steps, the even share is taken: leakage is
never above the sum. Where users may stay where they are for ever, e is 0 and an infinite horizon is refused.
Source: [cao2017], algorithms for finite and infinite horizons.
Guarantee: budgets are rounded down, and the curve of a finite horizon is computed again and compared with alpha.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from engines.markov.leakage import Adversary, Correlation
from schemas.errors import EngineInputError

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
        """Budget of a step, counted from 0."""
        if step == 0:
            return self.first
        return self.last if self.horizon is not None and step == self.horizon - 1 else self.middle

    @property
    def largest(self) -> Fraction:
        """What one record costs at most, to somebody who knows of no correlation."""
        if self.horizon is None:
            return max(self.first, self.middle)
        return max(self.at(step) for step in {0, self.horizon - 1, min(1, self.horizon - 1)})


def allocate(alpha: Fraction, adversary: Adversary, *, horizon: int | None) -> Allocation:
    """Budgets under which no step's total leakage is above `alpha`.

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
    """e, b and f of the module's equations, by halving e: b and f rise with it."""
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
    """The least a with a - L(a) >= epsilon, which does not fall in a; None if it is above alpha."""
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
