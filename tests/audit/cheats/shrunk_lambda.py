"""PrivTree's lambda times 0.83, which holds at epsilon 1 and fails at small epsilon: by the exact loss of one path."""

from __future__ import annotations

from fractions import Fraction

from engines.audited.paths import PathScores, worst_loss
from engines.auditor.cases import Case, Claim, Exact
from engines.spatial.split import SplitRule, path_cost

EPSILON = Fraction(1, 20)


class ShrunkRule(SplitRule):
    """Its decay follows the smaller scale, as the constant was meant."""

    @property
    def scale(self) -> Fraction:
        return Fraction(83, 100) * path_cost(self.fanout) / self.epsilon


def _case(name: str, rule: SplitRule) -> Case:
    exact = Exact("loss of the worst path found", worst_loss(rule, PathScores()))
    return Case(name, "mechanism", Claim(EPSILON), exact=(exact,))


def cheat() -> Case:
    return _case("partition with 0.83 of lambda", ShrunkRule(epsilon=EPSILON))


def honest() -> Case:
    return _case("partition with all of lambda", SplitRule(epsilon=EPSILON))
