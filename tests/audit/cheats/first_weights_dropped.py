"""w_t dropped from the accounting at t <= 2: the releaser uses w = 1 there, the total counts w as everywhere else.

Runs have little power against the excess at a delta worth claiming; the exact Gaussian loss of all steps shows it.
"""

from __future__ import annotations

from fractions import Fraction

from engines.accounting import gaussian
from engines.accounting.lattice import dominating
from engines.auditor.cases import Case, Claim, Exact
from engines.series.gaussian import FixedAmounts, GaussianBudget
from engines.series.presence import Presence
from engines.series.schedule import WeightSchedule

STEPS = 50
CLAIM = Claim(Fraction(1), 1e-6)
BUDGET = GaussianBudget(
    epsilon=CLAIM.epsilon, delta=CLAIM.delta, presence=Presence(steps=STEPS), shifts=(1,), shares=(Fraction(1),)
)


class Paper(WeightSchedule):
    """The schedule as it is: the first two weights are in the total."""


class Dropped(WeightSchedule):
    """Counts as if the first two steps had the weight of the others."""

    def worst(self, presence: Presence) -> Fraction:
        return WeightSchedule(weight=self.weight).worst(presence)


def _case(name: str, kind: type[WeightSchedule]) -> Case:
    fixed = FixedAmounts(BUDGET, kind(weight=Fraction(1, 5), full=2))

    def loss() -> float:
        factor = 4 ** BUDGET.refinement(0)
        total = Fraction(0)
        for step in range(STEPS):
            sigma_squared = fixed.sigma_squared(0, step)
            assert sigma_squared is not None
            total += factor / dominating(sigma_squared)
        return gaussian.epsilon(CLAIM.delta, float(total) ** 0.5)

    return Case(name, "mechanism", CLAIM, exact=(Exact("Gaussian loss of a user in every step", loss),))


def cheat() -> Case:
    return _case("first weights dropped", Dropped)


def honest() -> Case:
    return _case("first weights counted", Paper)
