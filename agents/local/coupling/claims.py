"""What a coupled pair may cost: the stream's guarantee for one unit, in the terms of its noise."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from engines.checks.coupling.loss import Losses, composed_epsilon
from engines.core.accounting import gaussian
from schemas.config import Stream

ROUNDING = 1e-9
"""Relative, of sums of logarithms in floating point; rational losses have none."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one unit is promised: `epsilon` of pure DP, or mu squared of Gaussian DP, or (epsilon, delta)."""

    epsilon: Fraction
    delta: float = 0.0

    @staticmethod
    def of(stream: Stream) -> Claim:
        """Return the claim of a configured stream."""
        return Claim(stream.privacy.epsilon_fraction, float(stream.privacy.delta))

    def share(self, losses: Losses) -> float:
        """Return how much of the claim these losses use: at most 1 where it holds."""
        shares = [losses.pure / float(self.epsilon)]
        if losses.mu_squared:
            shares.append(float(losses.mu_squared / Fraction(gaussian.mu_for(self.epsilon, self.delta)) ** 2))
        if losses.coins:
            shares.append(composed_epsilon(losses.coins, self.delta) / float(self.epsilon))
        return sum(shares)

    def covers(self, losses: Losses, spent: float) -> bool:
        """Say whether these losses are within the part of epsilon that is said to be spent."""
        noisy = bool(losses.mu_squared or losses.coins)
        return losses.pure <= spent * (1 + ROUNDING) and not (noisy and not spent)

    def holds(self, losses: Losses) -> bool:
        return self.share(losses) <= 1 + ROUNDING
