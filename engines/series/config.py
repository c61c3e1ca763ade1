"""The recipe of a series engine, all of it public, and how its mode turns the totals of a step into a release.

A mode takes exact totals and gives released values: it measures a step with noise of an adaptive amount (`Adaptive`) or
by a public rule (`Measuring`, through a `Channel`), and hands what was measured to a `SeriesEstimator` for each field.
Guarantee: a mode's own; an estimator sees measurements only.
Units: lattice steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf, sqrt
from typing import Any, ClassVar, Protocol

import numpy as np

from engines.core.accounting import Accountant, gaussian
from engines.core.contract import State
from engines.core.noise import NoiseSource
from engines.core.state import written
from engines.series.bank import Clock, FilterBank
from engines.series.budget import (
    WHOLE,
    AdaptiveAmounts,
    FixedAmounts,
    GaussianBudget,
    NoisyTotal,
    Presence,
    WeightSchedule,
)
from engines.series.fields import SeriesDomain, shares
from schemas.errors import EngineInputError
from schemas.guarantee import Mechanism


@dataclass(frozen=True, slots=True)
class Value:
    """One released number, and its standard error."""

    value: float
    deviation: float


@dataclass(frozen=True, slots=True)
class SeriesOutcome:
    """What a step of the stream lets out.

    Attributes:
        values: by field; none where nothing was measured and nothing is released.
        measurements: JSON-able, with variances; values and variances in lattice steps, see `engine`.
        over: the budget is used up.
    """

    values: tuple[Value, ...] = ()
    measurements: Sequence[dict[str, Any]] = ()
    over: bool = False


class SeriesMode(Protocol):
    """State and rule of one mode."""

    def step(self, step: int, totals: Sequence[int], present: bool, noise: NoiseSource) -> SeriesOutcome:
        """Release step `step`. Args: `totals` by field; `present`: False where readings are missing.

        Raises: BudgetError before noise is drawn.
        """
        ...

    def arrays(self) -> State: ...

    def restore(self, state: State) -> None:
        """Raises: KeyError, ValueError, EngineInputError."""
        ...


class SeriesEstimator(Protocol):
    """What makes a released value of a field's measurements."""

    def update(self, value: float, variance: float) -> tuple[float, float]:
        """Take in a measurement; return the estimate and the variance of its error."""
        ...

    def skip(self) -> None:
        """The present step has no measurement."""
        ...

    def arrays(self) -> State: ...

    def restore(self, state: State) -> None: ...


_LEAST_AMOUNT = WHOLE >> 40
"""Less would ask for more noise than a draw can have."""


class Channel(Protocol):
    """How totals of a step get their noise, and what that costs."""

    def measure(self, step: int, totals: Sequence[int], noise: NoiseSource) -> list[NoisyTotal] | None:
        """Charge, then draw; None where the schedule has nothing left for this step."""
        ...

    def arrays(self) -> State: ...

    def restore(self, state: State) -> None: ...


class FixedChannel:
    """Gaussian noise by a public schedule. A span is charged as a whole when it begins."""

    def __init__(self, amounts: FixedAmounts) -> None:
        self._amounts = amounts
        self._span = -1
        self._accountant = amounts.budget.accountant()

    def measure(self, step: int, totals: Sequence[int], noise: NoiseSource) -> list[NoisyTotal] | None:
        budget = self._amounts.budget
        span, at = budget.presence.where(step)
        sigmas = [self._amounts.sigma_squared(index, at) for index in range(len(totals))]
        if None in sigmas:
            return None
        if span != self._span:
            self._accountant = budget.accountant().charged(self._amounts.cost)
            self._span = span
        return [
            budget.measure(index, total, sigma, noise.child("series", index))
            for index, (total, sigma) in enumerate(zip(totals, sigmas, strict=True))
            if sigma is not None
        ]

    def arrays(self) -> State:
        return {"span": np.array([self._span], np.int64), **self._accountant.state()}

    def restore(self, state: State) -> None:
        (self._span,) = state["span"].tolist()
        self._accountant = self._accountant.restore(state)


class Measuring:
    """A mode of a channel and an estimator for each field."""

    def __init__(self, channel: Channel, estimators: Sequence[SeriesEstimator]) -> None:
        self._channel, self._estimators = channel, estimators

    def step(self, step: int, totals: Sequence[int], present: bool, noise: NoiseSource) -> SeriesOutcome:
        if not present:
            for estimator in self._estimators:
                estimator.skip()
            return SeriesOutcome()
        measured = self._channel.measure(step, totals, noise)
        if measured is None:
            return SeriesOutcome(over=True)
        return released(step, measured, self._estimators)

    def arrays(self) -> State:
        return _joined(self._channel.arrays(), self._estimators)

    def restore(self, state: State) -> None:
        self._channel.restore(state)
        _separate(state, self._estimators)


class Adaptive:
    """The default: a filter bank for each field says what the present step deserves, in amounts of a fixed total.

    What a bank wishes depends on released measurements alone; it is cut to what is left before it is charged.
    """

    def __init__(self, amounts: AdaptiveAmounts, banks: Sequence[FilterBank]) -> None:
        self._amounts, self._banks = amounts, banks
        self._span = 0
        self._spent = [0] * len(banks)
        self._accountant: Accountant = self._budget.accountant()

    @property
    def _budget(self) -> GaussianBudget:
        return self._amounts.budget

    def step(self, step: int, totals: Sequence[int], present: bool, noise: NoiseSource) -> SeriesOutcome:
        if not present:
            for bank in self._banks:
                bank.skip()
            return SeriesOutcome()
        span, at = self._budget.presence.where(step)
        if span != self._span:
            self._span, self._spent = span, [0] * len(totals)
            self._accountant = self._budget.accountant()
        amounts = [self._amount(index, at) for index in range(len(totals))]
        if min(amounts) <= 0:
            return SeriesOutcome(over=True)
        self._accountant = self._accountant.charged(self._amounts.cost(amounts))
        measured = [
            self._budget.measure(index, total, self._amounts.sigma_squared(index, amount), noise.child("series", index))
            for index, (total, amount) in enumerate(zip(totals, amounts, strict=True))
        ]
        self._spent = [spent + amount for spent, amount in zip(self._spent, amounts, strict=True)]
        outcome = released(step, measured, self._banks)
        for measurement, amount in zip(outcome.measurements, amounts, strict=True):
            measurement["budget_share"] = amount / WHOLE
        return outcome

    def _amount(self, index: int, at: int) -> int:
        """What a field's measurement may cost now: as its bank wishes, and never more than is left."""
        steps = self._budget.presence.steps
        assert steps is not None
        whole = self._amounts.whole(index)
        left = whole - self._spent[index]
        if left < _LEAST_AMOUNT:
            return 0
        per_amount = self._amounts.precision(index) / whole
        wished = self._banks[index].wish(remaining=left * per_amount, left=steps - at)
        return left if at == steps - 1 else min(left, max(_LEAST_AMOUNT, int(wished / per_amount)))

    def arrays(self) -> State:
        own: State = {
            "span": np.array([self._span], np.int64),
            "spent": np.array(self._spent, np.int64),
            **self._accountant.state(),
        }
        return _joined(own, self._banks)

    def restore(self, state: State) -> None:
        (self._span,), spent = state["span"].tolist(), state["spent"].tolist()
        if len(spent) != len(self._spent):
            raise ValueError("spent")
        self._spent = spent
        self._accountant = self._accountant.restore(state)
        _separate(state, self._banks)


def released(step: int, measured: Sequence[NoisyTotal], estimators: Sequence[SeriesEstimator]) -> SeriesOutcome:
    """Hand measurements to their estimators."""
    values = []
    for one, estimator in zip(measured, estimators, strict=True):
        estimate, variance = estimator.update(one.value, one.variance)
        values.append(Value(estimate, max(variance, 0.0) ** 0.5))
    measurements = [
        {"field": index, "of_step": step, "value": one.value, "variance": one.variance}
        for index, one in enumerate(measured)
    ]
    return SeriesOutcome(tuple(values), measurements)


def _joined(own: State, estimators: Sequence[SeriesEstimator]) -> State:
    for index, estimator in enumerate(estimators):
        own |= {f"field/{index}/{name}": array for name, array in estimator.arrays().items()}
    return own


def _separate(state: State, estimators: Sequence[SeriesEstimator]) -> None:
    for index, estimator in enumerate(estimators):
        head = f"field/{index}/"
        estimator.restore({name.removeprefix(head): array for name, array in state.items() if name.startswith(head)})


_SHORT = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesConfig:
    """Args:

    name: of the stream. domain: its fields. mode: one of `modes`; those of the paper are in `papers.config`.
    epsilon, delta: of one unit over a span.
    presence: where a unit can be.
    horizon: steps after which nothing is released; None: for ever.
    clock: of days and weeks, if steps have one.
    weight: of the true value, modes paper and paper-binomial. positive: its correlation is known to be above zero.
    decay: r of weights w_t**2 in proportion to r**t, for a span without end.
    Raises: EngineInputError.
    """

    written_as: ClassVar[str] = "SeriesConfig"
    modes: ClassVar[frozenset[str]] = frozenset({"default"})

    name: str
    domain: SeriesDomain
    mode: str = "default"
    epsilon: Fraction
    delta: float
    presence: Presence
    horizon: int | None = None
    clock: Clock | None = None
    weight: Fraction = Fraction(3, 10)
    positive: bool = False
    decay: Fraction | None = None

    def __post_init__(self) -> None:
        if self.mode not in self.modes:
            raise EngineInputError(f"mode must be one of {', '.join(sorted(self.modes))}")
        if self.epsilon <= 0:
            raise EngineInputError("epsilon must be positive")
        if not 0 < self.delta < 1:
            raise EngineInputError("delta must be positive and below 1")
        if self.horizon is not None and self.horizon < 1:
            raise EngineInputError("horizon must be at least one step")
        self.build()

    @property
    def shifts(self) -> tuple[int, ...]:
        """Of one event, by field."""
        return tuple(field.shift for field in self.domain.fields)

    @property
    def shares(self) -> tuple[Fraction, ...]:
        return shares(self.domain.fields)

    @property
    def gaussian(self) -> GaussianBudget:
        return GaussianBudget(
            epsilon=self.epsilon, delta=self.delta, presence=self.presence, shifts=self.shifts, shares=self.shares
        )

    @property
    def schedule(self) -> WeightSchedule:
        """Public weights of the steps, where the budget is not adaptive."""
        return WeightSchedule(decay=self.decay)

    @property
    def fixed(self) -> FixedAmounts:
        return FixedAmounts(self.gaussian, self.schedule)

    @property
    def adaptive(self) -> bool:
        """True where the budget of a step depends on releases: a unit is in every step of a span that ends."""
        return (
            self.mode == "default"
            and self.decay is None
            and self.presence.steps is not None
            and self.presence.everywhere
        )

    def build(self) -> SeriesMode:
        """The mode before its first step. Raises: EngineInputError."""
        if self.adaptive:
            return Adaptive(*adaptive_parts(self))
        fixed, banks = self.fixed, []
        for index in range(len(self.shifts)):
            sigma_squared = fixed.sigma_squared(index, 0)
            assert sigma_squared is not None
            banks.append(_bank(self, index, float(sigma_squared) / 4.0 ** fixed.budget.refinement(index)))
        return Measuring(FixedChannel(fixed), banks)

    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What the mode promises for a span."""
        if self.adaptive:
            amounts, steps = AdaptiveAmounts(self.gaussian), self.presence.steps
            assert steps is not None
            return self.measurements("discrete Gaussian", lambda index: sqrt(steps / amounts.precision(index)))
        fixed = self.fixed
        # The smallest weight of the first steps is what most steps have.
        step = fixed.schedule.full

        def sigma(index: int) -> float:
            sigma_squared = fixed.sigma_squared(index, step) or Fraction(1)
            return sqrt(sigma_squared) / (1 << fixed.budget.refinement(index))

        return self.measurements("discrete Gaussian", sigma)

    def measurements(self, distribution: str, sigma: Callable[[int], float]) -> tuple[Mechanism, ...]:
        """All measurements of each field, as one mechanism; its epsilon is that of its share of mu squared."""
        mu = gaussian.mu_for(self.epsilon, self.delta)
        mechanisms = []
        for index, (field, share) in enumerate(zip(self.domain.fields, self.shares, strict=True)):
            epsilon = self.epsilon
            if share < 1:
                epsilon = Fraction(gaussian.epsilon(self.delta, mu * float(share) ** 0.5)).limit_denominator(_SHORT)
            mechanisms.append(
                Mechanism(
                    name=f"{field.name}: totals of all steps of a span together, scale at an even share",
                    distribution=distribution,
                    l1_sensitivity=ceil((field.sensitivity or field.shift * field.unit) * self.presence.per_step),
                    scale=Fraction(sigma(index) * field.unit).limit_denominator(_SHORT),
                    epsilon=max(epsilon, Fraction(1, _SHORT)),
                    shift=(field.shift * Fraction(field.unit)) ** 2,
                )
            )
        return tuple(mechanisms)

    @property
    def version(self) -> int:
        """Of the law of the noise, in `identity`."""
        return 1

    @property
    def identity(self) -> np.ndarray:
        """`(32,)` uint8: states of configurations with another one mean something else."""
        return np.frombuffer(hashlib.sha256(written(("series", self.version, self)).encode()).digest(), np.uint8)


def _bank(config: SeriesConfig, index: int, variance: float) -> FilterBank:
    span = config.horizon if config.presence.renews or config.presence.steps is None else config.presence.steps
    field = config.domain.fields[index]
    limits = (field.bounds[0] + 0.0, field.bounds[1] + 0.0) if config.domain.readings else (-inf, inf)
    return FilterBank(variance**0.5, config.clock, span, limits)


def adaptive_parts(config: SeriesConfig) -> tuple[AdaptiveAmounts, list[FilterBank]]:
    """Of mode default, for users that can be in every step: the budget, and a bank for each field."""
    amounts = AdaptiveAmounts(config.gaussian)
    steps = config.presence.steps
    assert steps is not None
    banks = [_bank(config, index, steps / amounts.precision(index)) for index in range(len(config.shifts))]
    return amounts, banks
