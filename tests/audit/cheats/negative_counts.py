"""The paper's PrivTree input on negative counts: noisy siblings below zero lift a child above its parent.

Too rare for runs, at the depths where it hurts: the exact loss of one path shows it.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from engines.audited.paths import PathScores, worst_loss
from engines.auditor.cases import Case, Claim, Exact
from engines.spatial.split import SplitRule
from schemas.arrays import IntArray

EPSILON = Fraction(1, 2)


class RawHistory(PathScores):
    """Takes what was measured as it is, neither non-negative nor consistent."""

    def prior(self, held: IntArray) -> IntArray:
        return np.cumsum(held[:, ::-1], axis=1)[:, ::-1]


def _case(name: str, scores: PathScores) -> Case:
    loss = worst_loss(SplitRule(epsilon=EPSILON), scores)
    return Case(name, "mechanism", Claim(EPSILON), exact=(Exact("loss of the worst path found", loss),))


def cheat() -> Case:
    return _case("partition on raw noisy counts", RawHistory())


def honest() -> Case:
    return _case("partition on projected counts", PathScores())
