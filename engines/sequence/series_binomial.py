"""Binomial measurement of a step's totals, with the paper's own accounting: mode `paper-binomial`.

The paper adds binomial noise to w z, which is no integer, so that what is released tells w z modulo 1. Here the noise
goes on the integer z, with 1 / w**2 times the coins; dividing by w afterwards would give the paper's variances.
Guarantee: (epsilon, delta)-DP for a unit over a span. A draw with m = `half` coins on an integer moved by s is
    (e_t, d_t)-DP by lemma A.2 (the likelihood ratio of s neighbouring counts is at most ((m + k + s) / (m - k - s + 1))
    ** s, and Hoeffding bounds the k where that is beyond e_t); the draws that a unit meets compose by Kairouz, Oh,
    Viswanath 2017, as in theorem A.3. Looser than what Gaussian noise is given: see docs/engines/sequence.md.
Source: paper 004, lemma A.2 and theorem A.3.
Units: lattice steps, coarsened by 2**`coarse` where many coins would be needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, e, exp, expm1, inf, log, sqrt

from engines.noise import NoiseSource, binomial_mechanism
from engines.noise.binomial import MAX_HALF
from engines.sequence.series_gaussian import Measured
from engines.sequence.series_presence import Presence
from engines.sequence.series_schedule import Schedule
from schemas.errors import EngineInputError

_MOST_SHIFT = 4
_MARGIN = 1e-9
"""Of epsilon and delta, for rounding."""


def draw_epsilon(half: int, shift: int, delta: float) -> float:
    """Lemma A.2 (ii): epsilon of one draw on an integer that moves by `shift`; infinite with too few coins.

    >>> round(draw_epsilon(10_000, 1, 1e-6), 4)
    0.0745
    """
    room = half - shift + 1 - sqrt(half * log(1 / delta))
    return shift * log((2 * half + 1) / room - 1) if room > 0 else inf


def composed(draws: list[tuple[float, int]], slack: float) -> float:
    """Epsilon of all draws together, each (epsilon, how many), by Kairouz, Oh, Viswanath 2017, theorem 3.5.

    Args:
        slack: the delta that composition itself may cost.
    """
    if any(epsilon == inf for epsilon, _ in draws):
        return inf
    plain = sum(epsilon * count for epsilon, count in draws)
    if plain > 1e4:
        return inf
    drift = sum(count * epsilon * expm1(epsilon) / (exp(epsilon) + 1) for epsilon, count in draws)
    squares = sum(count * epsilon**2 for epsilon, count in draws)
    return min(
        plain,
        drift + sqrt(2 * squares * log(e + sqrt(squares) / slack)),
        drift + sqrt(2 * squares * log(1 / slack)),
    )


@dataclass(frozen=True, kw_only=True)
class BinomialBudget:
    """Public constants. Args: as `series_gaussian.FixedAmounts` has them; the schedule must not decay."""

    epsilon: Fraction
    delta: float
    presence: Presence
    shifts: tuple[int, ...]
    shares: tuple[Fraction, ...]
    schedule: Schedule

    def __post_init__(self) -> None:
        if self.presence.busy is None or self.schedule.decay is not None:
            raise EngineInputError("binomial noise needs a horizon or a bound on a unit's events, and no decay")
        least = min(self.schedule.weight**2, Fraction(1))
        halves = [self.half(field, least, min(self.base, 2 * MAX_HALF)) for field in range(len(self.shifts))]
        if max(halves) > MAX_HALF:
            raise EngineInputError("this budget needs too many coins: use mode paper, or a shorter horizon")

    def coarse(self, field: int) -> int:
        """Bits of a total that are dropped, so that one event moves it by four to eight steps."""
        return max(0, (self.shifts[field] * self.presence.per_step).bit_length() - _MOST_SHIFT.bit_length())

    def shift(self, field: int) -> int:
        """How far a unit moves the coarse total of a step: floor(a) - floor(b) is at most ceil(a - b)."""
        moved = self.shifts[field] * self.presence.per_step
        return -(-moved >> self.coarse(field))

    def half(self, field: int, weight: Fraction, base: float) -> int:
        """Coins of a draw, halved: `base` at weight 1, full share and a shift of 1."""
        return ceil(base * self.shift(field) ** 2 / float(weight * self.shares[field]))

    def _total(self, base: float) -> float:
        """Epsilon of a span, by theorem A.3 with equal shares of delta for all draws."""
        busy = self.presence.busy
        assert busy is not None
        each = self.delta * (1 - _MARGIN) / (2 * busy * len(self.shifts))
        full = min(busy, self.schedule.full)
        draws = []
        for field in range(len(self.shifts)):
            for weight, count in ((Fraction(1), full), (self.schedule.weight**2, busy - full)):
                if count:
                    half = self.half(field, weight, base)
                    draws.append((draw_epsilon(half, self.shift(field), each), count))
        return composed(draws, self.delta * (1 - _MARGIN) / 2)

    @cached_property
    def base(self) -> float:
        """The least `base` that keeps the promise, as a search finds it; checked, not derived."""
        target = float(self.epsilon) * (1 - _MARGIN)
        low = high = 1.0
        while self._total(high) > target:
            low, high = high, 2 * high
            if high > MAX_HALF:
                return inf
        while high > low * (1 + 1e-6):
            middle = (low + high) / 2
            low, high = (middle, high) if self._total(middle) > target else (low, middle)
        return high

    def measure(self, field: int, step: int, total: int, noise: NoiseSource) -> Measured:
        """Draw noise for the total of a step of the span."""
        factor = 1 << self.coarse(field)
        half = self.half(field, self.schedule.squared(step), self.base)
        noisy = binomial_mechanism(total >> self.coarse(field), half, noise)
        return Measured((noisy + (factor - 1) / (2 * factor)) * factor, half / 2 * factor**2)
