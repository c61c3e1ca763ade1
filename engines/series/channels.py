"""How the totals of a step get their noise, and what that costs: by a public schedule, or as releases suggest.

Guarantee: all measurements of a span together are mu-GDP for one unit, mu from (epsilon, delta): by `FixedChannel`
    whatever the arrangement of the unit's events, and by `AdaptiveChannel` whatever earlier releases made of the
    amounts, as long as a unit in every step is accounted for. Proof: docs/engines/sequence.md, lemmas D and B. By
    `PureChannel` they are epsilon-DP: lemma H there.
Source: [balle2018]; [dong2019]; [smith2022] (a fixed total, adaptively spent).
Units: totals in lattice steps of their field; amounts in 2**-60 of the budget of a span.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor
from typing import Protocol

import numpy as np

from engines.core.accounting import Cost
from engines.core.contract import State
from engines.core.noise import NoiseSource
from engines.series.bank import FilterBank
from engines.series.budget import GaussianBudget, NoisyTotal, PureBudget, WeightSchedule
from engines.series.fields import Total
from schemas.errors import EngineInputError

WHOLE = 2**60
_LEAST_WEIGHT = Fraction(1, 2**40)
_LEAST_AMOUNT = WHOLE >> 40
"""Less is not worth its noise, and may ask for more than can be drawn."""
_TOO_NOISY = (
    "a step would need more noise than can be drawn: raise epsilon, or lower max_contributions or max_per_step, or "
    "have weights fall less, or end sooner"
)


class Channel(Protocol):
    """What measures the totals of steps, of one group or several of each field; keeps what its span has spent.

    An event is in one group, so what a unit's events move in all groups together is no more than in one: in L1 norm as
    much, in L2 norm less where they are apart. So every group of a field has the noise of the field's whole share, and
    is charged with the others once. Proof: docs/engines/sequence.md, lemma G.
    """

    def measure(self, step: int, totals: Sequence[Total], noise: NoiseSource) -> list[NoisyTotal] | None:
        """Charge a step, then draw; None where nothing is left for it. Raises: BudgetError before noise is drawn."""
        ...

    def arrays(self) -> State: ...

    def restore(self, state: State) -> None:
        """Take over a state. Raises: KeyError, ValueError, EngineInputError."""
        ...


def _fields(totals: Sequence[Total], shares: Sequence[Fraction]) -> list[int]:
    """Return the number of the field that each total is of: there are as many groups of each."""
    groups = len(totals) // len(shares)
    return [index // groups for index in range(len(totals))]


class _ChargedSpans:
    """The account of a channel that charges a span as a whole when it begins."""

    def __init__(self, budget: GaussianBudget | PureBudget, whole: Cost) -> None:
        """Args: whole: what a span costs."""
        self._presence, self._fresh, self._whole = budget.presence, budget.accountant(), whole
        self._span, self._accountant = -1, self._fresh

    def _charge(self, step: int) -> None:
        span, _ = self._presence.where(step)
        if span != self._span:
            self._accountant, self._span = self._fresh.charged(self._whole), span

    def arrays(self) -> State:
        return {"span": np.array([self._span], np.int64), **self._accountant.state()}

    def restore(self, state: State) -> None:
        """See `Channel.restore`."""
        (self._span,) = state["span"].tolist()
        self._accountant = self._accountant.restore(state)


class FixedChannel(_ChargedSpans):
    """Gaussian noise by a public schedule."""

    def __init__(self, budget: GaussianBudget, schedule: WeightSchedule) -> None:
        """Raises: EngineInputError if what one unit can meet is not bounded, or takes more noise than can be drawn."""
        moved = schedule.worst(budget.presence)
        super().__init__(budget, Cost.gaussian_dp(budget.mu_squared))
        self.budget, self.schedule = budget, schedule
        self._least = [
            max(_LEAST_WEIGHT, budget.least_part(field, moved=moved) / share)
            for field, share in enumerate(budget.shares)
        ]
        # The first step without full weight has the smallest weight of many schedules.
        if schedule.squared(schedule.full) < max(self._least):
            raise EngineInputError(_TOO_NOISY)

    def sigma_squared(self, field: int, step: int) -> Fraction | None:
        """Return the noise at a step of the span; None where the schedule gives it nothing."""
        weight = self.schedule.squared(step)
        if weight < self._least[field]:
            return None
        budget = self.budget
        worst = self.schedule.worst(budget.presence)
        return budget.sigma_squared(field, moved=worst, mu_squared=budget.mu_squared * budget.shares[field] * weight)

    def measure(self, step: int, totals: Sequence[Total], noise: NoiseSource) -> list[NoisyTotal] | None:
        """See `Channel.measure`."""
        _, at = self.budget.presence.where(step)
        fields = _fields(totals, self.budget.shares)
        sigmas = [self.sigma_squared(field, at) for field in range(len(self.budget.shares))]
        if None in sigmas:
            return None
        self._charge(step)
        return [
            self.budget.measure(field, total, sigma, noise.child("series", index))
            for index, (field, total) in enumerate(zip(fields, totals, strict=True))
            if (sigma := sigmas[field]) is not None
        ]


class PureChannel(_ChargedSpans):
    """Laplace noise for counts of histograms, the same in every step."""

    def __init__(self, budget: PureBudget) -> None:
        super().__init__(budget, Cost.pure_dp(budget.epsilon))
        self.budget = budget

    def measure(self, step: int, totals: Sequence[Total], noise: NoiseSource) -> list[NoisyTotal] | None:
        """See `Channel.measure`."""
        self._charge(step)
        return [
            self.budget.measure(field, counts, noise.child("series", index))
            for index, (field, counts) in enumerate(zip(_fields(totals, self.budget.shares), totals, strict=True))
        ]


class AdaptiveChannel:
    """The default: a filter bank for each total says what the present step deserves, in amounts of a fixed total.

    What a bank wishes depends on released measurements alone; the mean of all groups is cut to what is left before it
    is charged.
    """

    def __init__(self, budget: GaussianBudget, banks: Sequence[FilterBank]) -> None:
        """Raises: EngineInputError if a unit can be in fewer steps than a span has, or that has no end."""
        if not budget.presence.everywhere or budget.presence.steps is None:
            raise EngineInputError("an adaptive budget is for units that are in every step of a finite span")
        self.budget, self._banks, self._steps = budget, banks, budget.presence.steps
        self._span = 0
        self._spent = [0] * len(budget.shares)
        self._accountant = budget.accountant()
        self._moved = Fraction(budget.presence.per_step) ** 2
        self._least = [
            max(_LEAST_AMOUNT, ceil(WHOLE * budget.least_part(field, moved=self._moved)))
            for field in range(len(budget.shares))
        ]
        if any(
            least > _LEAST_AMOUNT and least * self._steps > self.whole(field) for field, least in enumerate(self._least)
        ):
            raise EngineInputError(_TOO_NOISY)

    def whole(self, field: int) -> int:
        """Return all that a field may spend in a span."""
        return floor(WHOLE * self.budget.shares[field])

    def measure(self, step: int, totals: Sequence[Total], noise: NoiseSource) -> list[NoisyTotal] | None:
        """See `Channel.measure`."""
        budget = self.budget
        span, at = budget.presence.where(step)
        if span != self._span:
            self._span, self._spent = span, [0] * len(budget.shares)
            self._accountant = budget.accountant()
        fields = _fields(totals, budget.shares)
        amounts = [self._amount(field, at) for field in range(len(budget.shares))]
        if min(amounts) <= 0:
            return None
        self._accountant = self._accountant.charged(Cost.gaussian_dp(budget.mu_squared * sum(amounts) / WHOLE))
        measured = []
        for index, (field, total) in enumerate(zip(fields, totals, strict=True)):
            amount = amounts[field]
            sigma_squared = budget.sigma_squared(
                field, moved=self._moved, mu_squared=budget.mu_squared * amount / WHOLE
            )
            one = budget.measure(field, total, sigma_squared, noise.child("series", index))
            measured.append(NoisyTotal(one.value, one.variance, amount / WHOLE))
        self._spent = [spent + amount for spent, amount in zip(self._spent, amounts, strict=True)]
        return measured

    def _amount(self, field: int, at: int) -> int:
        """Return what a field's measurement may cost now: as its banks wish, and never more than is left."""
        whole = self.whole(field)
        left = whole - self._spent[field]
        if left < self._least[field]:
            return 0
        per_amount = self.budget.precision(field) / whole
        groups = len(self._banks) // len(self.budget.shares)
        banks = self._banks[field * groups : (field + 1) * groups]
        wishes = [bank.wanted_precision(remaining=left * per_amount, left=self._steps - at) for bank in banks]
        wished = sum(wishes) / groups
        return left if at == self._steps - 1 else min(left, max(self._least[field], int(wished / per_amount)))

    def arrays(self) -> State:
        return {
            "span": np.array([self._span], np.int64),
            "spent": np.array(self._spent, np.int64),
            **self._accountant.state(),
        }

    def restore(self, state: State) -> None:
        """See `Channel.restore`."""
        (self._span,), spent = state["span"].tolist(), state["spent"].tolist()
        if len(spent) != len(self._spent):
            raise ValueError("spent")
        self._spent = spent
        self._accountant = self._accountant.restore(state)
