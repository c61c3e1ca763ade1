"""Sensitivity 1 where it is 2: a user may have two events in a step, and the noise is that for one.

The honest engine is told, by `Presence`, how many there may be. The exact Gaussian loss of the larger shift decides.
"""

from __future__ import annotations

from fractions import Fraction

from engines.accounting import gaussian
from engines.accounting.lattice import dominating
from engines.auditor.cases import Case, Claim, Exact
from engines.series.gaussian import FixedAmounts, GaussianBudget
from engines.series.presence import Presence
from engines.series.schedule import WeightSchedule

CLAIM = Claim(Fraction(1), 1e-6)
EVENTS = 2


class OneEvent:
    """A step's count with noise for one event."""

    per_step = 1

    def amounts(self) -> FixedAmounts:
        presence = Presence(events=self.per_step, per_step=self.per_step)
        budget = GaussianBudget(
            epsilon=CLAIM.epsilon, delta=CLAIM.delta, presence=presence, shifts=(1,), shares=(Fraction(1),)
        )
        return FixedAmounts(budget, WeightSchedule())


class TwoEvents(OneEvent):
    """As many as there may be."""

    per_step = EVENTS


def _case(name: str, made: OneEvent) -> Case:
    def loss() -> float:
        amounts = made.amounts()
        sigma_squared = amounts.sigma_squared(0, 0)
        assert sigma_squared is not None
        shift = EVENTS * 2 ** amounts.budget.refinement(0)
        return gaussian.epsilon(CLAIM.delta, shift / float(dominating(sigma_squared)) ** 0.5)

    return Case(name, "mechanism", CLAIM, exact=(Exact("Gaussian loss of two events in a step", loss),))


def cheat() -> Case:
    return _case("noise for one event", OneEvent())


def honest() -> Case:
    return _case("noise for two events", TwoEvents())
