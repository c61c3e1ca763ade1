"""The constants of growing blocks, and when a block closes: what it must have gathered, by released totals. Public.

Blocks grow with the table. Noise of a block is the same however long it is, so few large blocks cost less; but what a
block holds is not known until it closes. A block may hold a fixed share of what was covered before. Constants were
chosen by `benchmarks.tabular`; some differ with the law of the noise: k equal parts of a budget have k times the noise
each where epsilon adds up, and the root of that where mu^2 does. So with Gaussian noise the totals need less, larger
marginals are worth more, and the best shares differ by less.
Units: events.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import numpy as np

from engines.core.shares import PureShares, Shares
from schemas.arrays import FloatArray

EARLY, EARLY_APART = 4000.0, 8000.0
"""Events times epsilon, for 15 attributes, until which a stream is early; in proportion to their pairs. The second one
is for streams whose larger marginals have nothing till then."""
EARLY_MARGINALS = 120
"""While a stream is early larger marginals have a part of their budget; nothing where there are more of them than this.
"""
ONES_LEAST, ONES_GROWTH, ONES_DELETABLE = 120.0, 0.15, 0.3
"""Of a block of one-way marginals: events times epsilon for 15 attributes, and share of what was covered before."""
ONES_FAST = 400.0
"""Events times epsilon, for 15 attributes, until which such blocks double what was covered; the share then falls with
the root, since noise matters less and less beside what changes."""
LARGER_LEAST, LARGER_GROWTH = 2000.0, 0.7
"""Of a block of larger marginals: events times epsilon, and share of what was covered before."""
DELETABLE_LEAST, DELETABLE_GROWTH = 4000.0, 1.2
"""The same where rows can be deleted: noise of old blocks stays when their rows have gone."""
DRIFT, DRIFTED = 0.1, 0.25
"""Believed change of some one-way marginal above which this share of a block will do."""
UNKNOWN = 0.4
"""L1 distance from its prior, as a share of the rows, that a larger marginal may have as long as noise hides it."""
REST, FIRST_REST = 0.2, 0.05
"""Weight of a marginal that is not worth its noise, beside the others: later, and in the first block."""


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
        """Return the recipe for a kind of noise."""
        return PURE if isinstance(shares, PureShares) else GAUSSIAN

    def scale(self, share: Fraction) -> float:
        """Return the scale of the noise if a share of the budget went to one marginal: 1/epsilon, or 1/mu."""
        return 1 / float(share) if self.power == 0.5 else 1 / sqrt(share)

    def best(self, costs: FloatArray) -> FloatArray:
        """Return the weights by which marginals share their budget, from what a unit of noise costs in each."""
        return np.sqrt(costs) if self.power == 0.5 else costs**self.power


PURE = Recipe(totals=Fraction(1, 10), ones=Fraction(3, 10), power=0.5, absolute=0.7, kurtosis=5.0, early=Fraction(1, 4))
GAUSSIAN = Recipe(
    totals=Fraction(2, 25), ones=Fraction(3, 10), power=2 / 3, absolute=0.55, kurtosis=2.0, early=Fraction(1, 2)
)


def pure_epsilons(shares: Shares, ones: Fraction, larger: Fraction, counts: tuple[int, int]) -> tuple[float, float]:
    """Return epsilons of an event at which pure noise in one-way, and in larger marginals, would be as large.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSchedule:
    """Args:

    ones_epsilon, larger_epsilon: of one event over the whole stream; with Gaussian noise, those at which pure noise in
        the one-way and in the larger marginals would be as large.
    few: of the larger marginals' budget, for them while a stream is early, if there are few.
    attributes: that are measured.
    deletable: rows may be deleted by events of their own.
    windowed: rows expire by a ttl.
    larger: how many marginals of two or more attributes there are.
    """

    ones_epsilon: float
    larger_epsilon: float
    few: Fraction
    attributes: int
    deletable: bool
    windowed: bool
    larger: int

    def early(self, events: float) -> bool:
        """Tell whether most of the budget goes to the one-way marginals: so few events would drown in larger ones.

        Not where rows can be deleted: noise of early blocks would stay.
        """
        if self.deletable or not self.larger:
            return not self.larger
        limit = EARLY if self.early_share else EARLY_APART
        return events < limit * self._attributes * self._attributes / self.larger_epsilon

    @property
    def early_share(self) -> Fraction:
        """What is left to the larger marginals of their budget while the stream is early.

        At 0 they gather nothing then. Early, those with the fewest cells are worth measuring, if there are few.
        """
        return self.few if 0 < self.larger <= EARLY_MARGINALS else Fraction(0)

    @property
    def _attributes(self) -> float:
        """For 1 the constants above were chosen."""
        return max(self.attributes, 1) / 15

    def ones_due(self, fresh: float, covered: float, alive: float) -> bool:
        """Tell whether a block of one-way marginals with so many fresh events closes."""
        least = ONES_LEAST * self._attributes / self.ones_epsilon
        growth = ONES_DELETABLE if self.deletable else ONES_GROWTH
        if covered > 0:
            growth = max(growth, min(1.0, sqrt(ONES_FAST * self._attributes / self.ones_epsilon / covered)))
        return fresh >= max(least, growth * self._size(covered, alive))

    def larger_due(self, fresh: float, covered: float, alive: float, drift: float, noise: float = 1.0) -> bool:
        """Tell whether a block of larger marginals closes, sooner where the one-way ones have drifted.

        Args: noise: of them, beside that of marginals that count all rows.
        """
        if self.deletable:
            return fresh >= max(DELETABLE_LEAST / self.larger_epsilon, DELETABLE_GROWTH * self._size(covered, alive))
        least = LARGER_LEAST * noise / self.larger_epsilon
        size = max(least, LARGER_GROWTH * self._size(covered, alive))
        return fresh >= size or (drift > DRIFT and fresh >= max(least, DRIFTED * size))

    def _size(self, covered: float, alive: float) -> float:
        covered = max(covered, 0.0)
        small = min(max(alive, 0.0), covered)
        return small if self.windowed else sqrt(covered * small)


def larger_weights(
    plain: FloatArray,
    lengths: FloatArray,
    finer: FloatArray,
    apart: FloatArray,
    rows: float,
    scale: float,
    blocks: int,
    *,
    rest: float,
    recipe: Recipe,
) -> FloatArray:
    """Return the weights by which larger marginals share their budget.

    Noise of marginal i costs w_i = plain_i / cells^1.2 a row in the wrong cell, so w_i cells_i in all, and its best
    share is in proportion to a power of that. Marginals that may be closer to their prior than noise would allow to see
    get `rest` of that.

    Args:
        finer: noise of each beside that of cells measured whole. What may be missed counts by it too, so that no more
            marginals get a full share than if they were whole: with more of them, ties drown.
        apart: L1 distance that each may have from its prior, as a share of the rows.
        scale: of the noise if one marginal had all of the budget.
        blocks: that were measured before.
    """
    worth = plain * lengths**-1.2 * finer
    best = recipe.best(worth * lengths)
    missed = apart * rows * worth
    order = np.argsort(-missed / best, kind="stable")
    noise = np.cumsum(best[order]) ** (1 / recipe.power) * (recipe.absolute * max(1.0, sqrt(blocks)) * scale)
    most = int(np.argmin(noise + missed.sum() - np.cumsum(missed[order]))) + 1
    kept = np.zeros(len(best), np.bool_)
    kept[order[:most]] = True
    return np.where(kept, best, rest * best)


def block_weights(net: float, variances: FloatArray) -> FloatArray:
    """Return the weights of a block's larger marginals `(marginals,)` beside other blocks of the same table.

    By inverse variance, as for samples of one law; times the root of the rows only, since that law changes.
    """
    return sqrt(max(abs(net), 1.0)) / variances
