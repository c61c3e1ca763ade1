"""Gaussian measurement of a step's totals: discrete noise on a fine lattice, accounted by Gaussian DP, exactly.

A total, an integer, is multiplied by 2**refinement, and discrete Gaussian noise is added to that. So noise lies on
integers, and the lattice is so fine that Gaussian DP holds for it to 75 digits (`accounting.lattice`).
Guarantee: all measurements of a span together are mu-GDP for one unit, mu from (epsilon, delta): `fixed`, whatever the
    arrangement of the unit's events, and `adaptive`, whatever earlier releases made of the amounts, as long as a unit
    in every step is accounted for. Proof: docs/engines/sequence.md, lemmas D and B.
Source: [balle2018]; [dong2019]; [smith2022] (a fixed total, adaptively spent).
Units: totals in lattice steps of their field; variances in their squares; amounts in 2**-60 of the budget of a span.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor, log2, sqrt

from engines.core.accounting import Accountant, GaussianEvent, gaussian
from engines.core.accounting.lattice import sigma_squared_of
from engines.core.noise import NoiseSource, gaussian_mechanism
from engines.core.noise.private import clipped
from engines.series.presence import Presence
from engines.series.schedule import WeightSchedule
from schemas.errors import EngineInputError

WHOLE = 2**60
_LEAST_SIGMA = 2**11
_LARGEST = 2**61


@lru_cache(maxsize=64)
def _mu_squared(epsilon: Fraction, delta: float) -> Fraction:
    return Fraction(gaussian.mu_for(epsilon, delta)) ** 2


@dataclass(frozen=True, slots=True)
class NoisyTotal:
    """One noisy total. Public. Units: lattice steps, and their squares."""

    value: float
    variance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianBudget:
    """Public constants: what a span may cost, and the noise that any part of it buys.

    Args:
        epsilon, delta: of one unit over a span.
        presence: where a unit can be.
        shifts: of one event, by field, in lattice steps.
        shares: of the budget, by field; they add up to one at most.
    """

    epsilon: Fraction
    delta: float
    presence: Presence
    shifts: tuple[int, ...]
    shares: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if len(self.shifts) != len(self.shares) or sum(self.shares) > 1 or min(self.shifts) < 1:
            raise EngineInputError("shifts and shares must be positive, one for each field, shares at most one in all")
        if not 1e-40 <= self.delta < 1:
            raise EngineInputError("delta must be at least 1e-40 and below 1")

    @property
    def mu_squared(self) -> Fraction:
        """Of the whole span."""
        return _mu_squared(self.epsilon, self.delta)

    def accountant(self) -> Accountant:
        """An unspent budget of one span."""
        return Accountant(epsilon=self.epsilon, delta=self.delta, rule="gaussian")

    def refinement(self, field: int) -> int:
        """Exponent of the factor that makes the lattice fine enough for all of the budget in one draw."""
        least = self.shifts[field] / sqrt(self.mu_squared)
        return max(0, ceil(log2(_LEAST_SIGMA / least)))

    def sigma_squared(self, field: int, *, moved: Fraction, mu_squared: Fraction) -> Fraction:
        """Noise on the refined lattice for which a field costs at most `mu_squared`.

        Args:
            moved: squared events that a unit moves it by, all in all.
        """
        return sigma_squared_of(moved * self.shifts[field] ** 2 * (1 << 2 * self.refinement(field)), mu_squared)

    def measure(self, field: int, total: int, sigma_squared: Fraction, noise: NoiseSource) -> NoisyTotal:
        """Draw noise for one total.

        A total that would leave int64 is moved to its end: a monotone function with steps of one at most, so
        sensitivity stays.
        """
        factor = 1 << self.refinement(field)
        refined = clipped(total * factor, -_LARGEST, _LARGEST)
        noisy = gaussian_mechanism(refined, sigma_squared, noise)
        return NoisyTotal(noisy / factor, float(sigma_squared) / factor**2)


@dataclass(frozen=True, slots=True)
class FixedAmounts:
    """A public schedule; charged as a whole when a span begins."""

    budget: GaussianBudget
    schedule: WeightSchedule

    def __post_init__(self) -> None:
        self.schedule.worst(self.budget.presence)

    @property
    def event(self) -> GaussianEvent:
        """What a span costs a unit."""
        return GaussianEvent(sigma_squared=1 / self.budget.mu_squared)

    def sigma_squared(self, field: int, step: int) -> Fraction | None:
        """Noise at a step of the span; None where the schedule gives it nothing."""
        weight = self.schedule.squared(step)
        if weight * 2**40 < 1:
            return None
        budget = self.budget
        worst = self.schedule.worst(budget.presence)
        return budget.sigma_squared(field, moved=worst, mu_squared=budget.mu_squared * budget.shares[field] * weight)


@dataclass(frozen=True, slots=True)
class AdaptiveAmounts:
    """Amounts that may depend on releases; a unit in every step is accounted for."""

    budget: GaussianBudget

    def __post_init__(self) -> None:
        if not self.budget.presence.everywhere or self.budget.presence.steps is None:
            raise EngineInputError("an adaptive budget is for units that are in every step of a finite span")

    def whole(self, field: int) -> int:
        """All that a field may spend in a span."""
        return floor(WHOLE * self.budget.shares[field])

    def precision(self, field: int) -> float:
        """1 / variance of a field's measurement if all of it were spent at once, up to rounding."""
        budget = self.budget
        return float(budget.mu_squared * budget.shares[field]) / (budget.shifts[field] * budget.presence.per_step) ** 2

    def events(self, amounts: Sequence[int]) -> GaussianEvent | None:
        """What a step of these amounts costs a unit; None if they are all zero."""
        spent = sum(amounts)
        return GaussianEvent(sigma_squared=WHOLE / (self.budget.mu_squared * spent)) if spent else None

    def sigma_squared(self, field: int, amount: int) -> Fraction:
        """Noise that an amount buys."""
        moved = Fraction(self.budget.presence.per_step) ** 2
        return self.budget.sigma_squared(field, moved=moved, mu_squared=self.budget.mu_squared * amount / WHOLE)
