"""Constants of growing blocks that differ with the law of the noise. Public; chosen by `benchmarks.tabular`.

k equal parts of a budget have k times the noise each where epsilon adds up, and the root of that where mu^2 does. So
with Gaussian noise the totals need less, larger marginals are worth more, and the best shares differ by less.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import numpy as np

from engines.core.shares import PureShares, Shares
from schemas.arrays import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Attributes:

    totals, ones: shares of the budget; the larger marginals have the rest.
    power: where noise in a marginal costs c for each unit of its standard deviation, its best share is in proportion to
        c to this power: 1/2 where the deviation is 1/share, 2/3 where it is the root of that.
    absolute: of what a marginal's noise costs, beside its scale, in deciding whether it is worth it.
    kurtosis: variance of the square of a noise, in squares of its variance.
    early: of the larger marginals' budget, for them while a stream is early and there are few of them.
    """

    totals: Fraction
    ones: Fraction
    power: float
    absolute: float
    kurtosis: float
    early: Fraction

    @staticmethod
    def of(shares: Shares) -> Recipe:
        """That of a kind of noise."""
        return PURE if isinstance(shares, PureShares) else GAUSSIAN

    def scale(self, share: Fraction) -> float:
        """Of the noise if a share of the budget went to one marginal: 1/epsilon, or 1/mu."""
        return 1 / float(share) if self.power == 0.5 else 1 / sqrt(share)

    def best(self, costs: FloatArray) -> FloatArray:
        """Weights by which marginals share their budget, from what a unit of noise costs in each."""
        weights: FloatArray = np.sqrt(costs) if self.power == 0.5 else costs**self.power
        return weights


PURE = Recipe(totals=Fraction(1, 10), ones=Fraction(3, 10), power=0.5, absolute=0.7, kurtosis=5.0, early=Fraction(1, 4))
GAUSSIAN = Recipe(
    totals=Fraction(2, 25), ones=Fraction(3, 10), power=2 / 3, absolute=0.55, kurtosis=2.0, early=Fraction(1, 2)
)


def pure_epsilons(shares: Shares, ones: Fraction, larger: Fraction, counts: tuple[int, int]) -> tuple[float, float]:
    """Of an event: epsilons at which pure noise in the one-way, and in the larger marginals, would be as large.

    Thresholds of the schedule are in events times epsilon.

    Args:
        ones, larger: shares of the lines. counts: of their marginals.
    """
    if isinstance(shares, PureShares):
        return float(shares.epsilon), float(shares.epsilon)
    rest = 1 - PURE.totals - PURE.ones
    few, many = (
        sqrt(2 * count * float(share)) / float(part)
        for count, share, part in zip(counts, (ones, larger), (PURE.ones, rest), strict=True)
    )
    return few, many
