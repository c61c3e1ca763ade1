"""When a block closes: what it must have gathered, by released totals. Public.

Blocks grow with the table. Noise of a block is the same however long it is, so few large blocks cost less; but what a
block holds is not known until it closes. A block may hold a fixed share of what was covered before.
Units: events.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from engines.tabular.attributes import FloatArray

EARLY = 5000.0
"""Events times epsilon until which a stream is early."""
ONES_LEAST, ONES_GROWTH, ONES_DELETABLE = 200.0, 0.15, 0.3
"""Of a block of one-way marginals: events times epsilon for 15 attributes, and share of what was covered before."""
LARGER_LEAST, LARGER_GROWTH = 2000.0, 0.7
"""Of a block of larger marginals: events times epsilon, and share of what was covered before."""
DELETABLE_LEAST, DELETABLE_GROWTH = 4000.0, 1.2
"""The same where rows can be deleted: noise of old blocks stays when their rows have gone."""
DRIFT, DRIFTED = 0.1, 0.25
"""Believed change of some one-way marginal above which this share of a block will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Args:

    epsilon: of one event over the whole stream. attributes: that are measured.
    deletable: rows may be deleted by events of their own.
    windowed: rows expire by a ttl.
    larger: there are marginals of two or more attributes.
    """

    epsilon: float
    attributes: int
    deletable: bool
    windowed: bool
    larger: bool

    def early(self, events: float) -> bool:
        """True while all of the budget goes to the one-way marginals: so few events would drown in larger ones.

        Not where rows can be deleted: what was inserted without being counted could not be taken back.
        """
        return not self.larger or (not self.deletable and events < EARLY / self.epsilon)

    def ones_due(self, fresh: float, covered: float, alive: float) -> bool:
        """True if a block of one-way marginals with so many fresh events closes."""
        least = ONES_LEAST * max(self.attributes, 1) / 15 / self.epsilon
        growth = ONES_DELETABLE if self.deletable else ONES_GROWTH
        return fresh >= max(least, growth * self._size(covered, alive))

    def larger_due(self, fresh: float, covered: float, alive: float, drift: float) -> bool:
        """True if a block of larger marginals closes, sooner where the one-way ones have drifted."""
        if self.deletable:
            return fresh >= max(DELETABLE_LEAST / self.epsilon, DELETABLE_GROWTH * self._size(covered, alive))
        least = LARGER_LEAST / self.epsilon
        size = max(least, LARGER_GROWTH * self._size(covered, alive))
        return fresh >= size or (drift > DRIFT and fresh >= max(least, DRIFTED * size))

    def _size(self, covered: float, alive: float) -> float:
        covered = max(covered, 0.0)
        small = min(max(alive, 0.0), covered)
        return small if self.windowed else sqrt(covered * small)


def larger_weights(
    plain: FloatArray, lengths: FloatArray, apart: FloatArray, rows: float, epsilon: float, blocks: int
) -> FloatArray:
    """Weights by which larger marginals share their budget.

    Noise of marginal i costs w_i = plain_i / cells^1.2 a row in the wrong cell, so its best share is in proportion to
    sqrt(w_i cells_i). Marginals whose last fit is closer to its prior than noise would allow to see get 0.3 of that.

    Args:
        apart: L1 distance of each from its prior in the last fit, as a share of the rows; all 0 before there was one.
        blocks: that were measured before.
    """
    worth = plain * lengths**-1.2
    root = np.sqrt(worth * lengths)
    if not apart.any():
        return root
    missed = apart * rows * worth
    order = np.argsort(-missed / root, kind="stable")
    noise = np.cumsum(root[order]) ** 2 * (0.7 * max(1.0, sqrt(blocks)) / epsilon)
    best = int(np.argmin(noise + missed.sum() - np.cumsum(missed[order]))) + 1
    kept = np.zeros(len(root), np.bool_)
    kept[order[:best]] = True
    weights: FloatArray = np.where(kept, root, 0.3 * root)
    return weights
