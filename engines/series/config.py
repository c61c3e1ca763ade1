"""The recipe of a series engine, all of it public, and the mode that it makes.

Guarantee: of the mode, see `engine`.
Units: as the parts have them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf, sqrt
from typing import ClassVar

import numpy as np

from engines.core.accounting import gaussian
from engines.core.identity import written
from engines.series.bank.filter_bank import FilterBank
from engines.series.clock import Clock
from engines.series.fields import SeriesDomain, shares
from engines.series.gaussian import AdaptiveAmounts, FixedAmounts, GaussianBudget
from engines.series.modes import Adaptive, FixedChannel, Measuring, SeriesMode
from engines.series.presence import Presence
from engines.series.schedule import WeightSchedule
from schemas.errors import EngineInputError
from schemas.guarantee import Mechanism

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
