"""The recipe of a series engine, all of it public: how a mode measures totals, and what it makes of what was measured.

A mode is a `Channel`, which gives totals their noise, and a `SeriesEstimator` for each total, which makes a released
value of its noisy totals. Histograms need no estimator: what is released of them is made of one step's counts.
Guarantee: the channel's; an estimator sees measurements only.
Units: lattice steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf, sqrt
from typing import ClassVar, Protocol

import numpy as np

from engines.core.accounting import gaussian
from engines.core.contract import State
from engines.core.state import identity_of, written
from engines.series.bank import Clock, FilterBank
from engines.series.budget import GaussianBudget, Presence, PureBudget, WeightSchedule
from engines.series.channels import AdaptiveChannel, Channel, FixedChannel, PureChannel
from engines.series.fields import SeriesDomain, SeriesField, shares
from schemas.errors import EngineInputError
from schemas.guarantee import Mechanism


class SeriesEstimator(Protocol):
    """What makes a released value of a field's measurements."""

    def update(self, value: float, variance: float) -> tuple[float, float]:
        """Take in a measurement; return the estimate and the variance of its error."""
        ...

    def skip(self) -> None:
        """Pass over a step without a measurement."""
        ...

    def arrays(self) -> State: ...

    def restore(self, state: State) -> None: ...


_SHORT = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesConfig:
    """Args:

    name: of the stream. domain: its fields. mode: one of `modes`; those of the paper are in `papers.config`.
    epsilon, delta: of one unit over a span. Histograms have Laplace noise where delta is 0.
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
        if not (0 < self.delta < 1 or (self.pure and self.delta == 0)):
            raise EngineInputError("delta must be positive and below 1")
        if self.horizon is not None and self.horizon < 1:
            raise EngineInputError("horizon must be at least one step")
        self.build()

    @property
    def shifts(self) -> tuple[int, ...]:
        """Shifts of one event, by field."""
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
    def pure(self) -> bool:
        """Whether noise is Laplace noise: histograms, and no delta."""
        return self.domain.histograms and not self.delta

    @property
    def laplace(self) -> PureBudget:
        return PureBudget(epsilon=self.epsilon, presence=self.presence, shares=self.shares)

    @property
    def schedule(self) -> WeightSchedule:
        """Public weights of the steps, where the budget is not adaptive."""
        return WeightSchedule(decay=self.decay)

    @property
    def fixed(self) -> FixedChannel:
        """A channel by the public schedule, before its first step."""
        return FixedChannel(self.gaussian, self.schedule)

    @property
    def adaptive(self) -> bool:
        """Whether the budget of a step depends on releases: a unit is in every step of a span that ends."""
        return (
            self.mode == "default"
            and not self.domain.histograms
            and self.decay is None
            and self.presence.steps is not None
            and self.presence.everywhere
        )

    def build(self) -> tuple[Channel, Sequence[SeriesEstimator]]:
        """Return the channel of the mode and an estimator for each total but histograms, before the first step.

        Raises: EngineInputError.
        """
        if self.domain.histograms:
            return (PureChannel(self.laplace) if self.pure else self.fixed), []
        budget, steps = self.gaussian, self.presence.steps
        if self.adaptive:
            assert steps is not None
            banks = [
                self._bank(index, steps / budget.precision(index))
                for index in range(len(self.shifts))
                for _ in self.domain.groups
            ]
            return AdaptiveChannel(budget, banks), banks
        fixed, banks = self.fixed, []
        for index in range(len(self.shifts)):
            sigma_squared = fixed.sigma_squared(index, 0)
            assert sigma_squared is not None
            variance = float(sigma_squared) / 4.0 ** budget.refinement(index)
            banks += [self._bank(index, variance) for _ in self.domain.groups]
        return fixed, banks

    def _bank(self, index: int, variance: float) -> FilterBank:
        """Return the filter bank of a field, whose measurements have this variance if the budget is spent evenly."""
        span = self.horizon if self.presence.renews or self.presence.steps is None else self.presence.steps
        field = self.domain.fields[index]
        limits = (field.bounds[0] + 0.0, field.bounds[1] + 0.0) if self.domain.readings else (-inf, inf)
        return FilterBank(variance**0.5, self.clock, span, limits)

    def mechanisms(self) -> tuple[Mechanism, ...]:
        """Return what the mode promises for a span."""
        if self.pure:
            return tuple(
                Mechanism(
                    name=f"{self._named(field)}: counts of all bins in all steps of a span together",
                    distribution="discrete Laplace",
                    l1_sensitivity=field.shift,
                    scale=self.laplace.scale(index),
                    epsilon=self.epsilon * share,
                )
                for index, (field, share) in enumerate(zip(self.domain.fields, self.shares, strict=True))
            )
        if self.adaptive:
            budget, steps = self.gaussian, self.presence.steps
            assert steps is not None
            return self.measurements("discrete Gaussian", lambda index: sqrt(steps / budget.precision(index)))
        fixed = self.fixed
        # The smallest weight of the first steps is what most steps have.
        step = fixed.schedule.full

        def sigma(index: int) -> float:
            sigma_squared = fixed.sigma_squared(index, step)
            assert sigma_squared is not None
            return sqrt(sigma_squared) / (1 << fixed.budget.refinement(index))

        return self.measurements("discrete Gaussian", sigma)

    def measurements(self, distribution: str, sigma: Callable[[int], float]) -> tuple[Mechanism, ...]:
        """Return all measurements of each field, as one mechanism; its epsilon is that of its share of mu squared."""
        mu = gaussian.mu_for(self.epsilon, self.delta)
        mechanisms = []
        for index, (field, share) in enumerate(zip(self.domain.fields, self.shares, strict=True)):
            epsilon = self.epsilon
            if share < 1:
                epsilon = Fraction(gaussian.epsilon(self.delta, mu * float(share) ** 0.5)).limit_denominator(_SHORT)
            mechanisms.append(
                Mechanism(
                    name=f"{self._named(field)}: totals of all steps of a span together, scale at an even share",
                    distribution=distribution,
                    l1_sensitivity=ceil((field.sensitivity or field.shift * field.unit) * self.presence.per_step),
                    scale=Fraction(sigma(index) * field.unit).limit_denominator(_SHORT),
                    epsilon=max(epsilon, Fraction(1, _SHORT)),
                    shift=(field.shift * Fraction(field.unit)) ** 2,
                )
            )
        return tuple(mechanisms)

    def _named(self, field: SeriesField) -> str:
        by = self.domain.by
        return field.name if by is None else f"{field.name}, in each of {len(by.values)} groups by {by.field}"

    @property
    def identity(self) -> np.ndarray:
        return identity_of(written(("series", self)))
