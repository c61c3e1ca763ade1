"""The recipe of a series engine, all of it public, and the mode that it makes.

Guarantee: of the mode, see `series`.
Units: as the parts have them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import ClassVar

import numpy as np

from engines.identity import written
from engines.sequence.series_bank import FilterBank
from engines.sequence.series_binomial import BinomialBudget
from engines.sequence.series_clock import Clock
from engines.sequence.series_dft import Fourier, FourierBudget
from engines.sequence.series_fast import RandomWalk
from engines.sequence.series_fields import SeriesDomain, shares
from engines.sequence.series_gaussian import AdaptiveAmounts, FixedAmounts, GaussianBudget
from engines.sequence.series_kalman import Kalman
from engines.sequence.series_laplace import LaplaceBudget
from engines.sequence.series_modes import (
    Adaptive,
    BinomialChannel,
    Estimator,
    FixedChannel,
    LaplaceChannel,
    Measuring,
    Mode,
)
from engines.sequence.series_paper import Releaser
from engines.sequence.series_plain import Plain
from engines.sequence.series_presence import Presence
from engines.sequence.series_schedule import Schedule
from engines.sequence.series_tree import TreeDifferences
from engines.sequence.series_wevent import WindowBudget, WindowEvents
from schemas.errors import EngineInputError

GAUSSIAN_MODES = frozenset({"default", "kalman", "paper", "paper-binomial", "gaussian"})
"""Those that promise (epsilon, delta)."""
WINDOW_MODES = frozenset({"ba", "bd"})
"""Those that promise epsilon for windows of steps only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesConfig:
    """Args:

    name: of the stream. domain: its fields. mode: one of `MODES`.
    epsilon, delta: of one unit over a span; delta is 0 in modes that are pure.
    presence: where a unit can be; its `steps` are the window in modes ba and bd.
    horizon: steps after which nothing is released; None: for ever.
    clock: of days and weeks, if steps have one.
    weight: of the true value, modes paper and paper-binomial. positive: its correlation is known to be above zero.
    decay: r of weights w_t**2 in proportion to r**t, for a span without end.
    process_variance: of the random walk, mode fast, in squares of the raw field's units.
    delay: steps of a block, mode dft. coefficients: of them, those that are measured.
    Raises: EngineInputError.
    """

    written_as: ClassVar[str] = "SeriesConfig"

    name: str
    domain: SeriesDomain
    mode: str = "default"
    epsilon: Fraction
    delta: float = 0.0
    presence: Presence
    horizon: int | None = None
    clock: Clock | None = None
    weight: Fraction = Fraction(3, 10)
    positive: bool = False
    decay: Fraction | None = None
    process_variance: float = 1.0
    delay: int = 24
    coefficients: int = 6

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise EngineInputError(f"mode must be one of {', '.join(sorted(MODES))}")
        if self.epsilon <= 0:
            raise EngineInputError("epsilon must be positive")
        if (self.delta != 0) != (self.mode in GAUSSIAN_MODES):
            raise EngineInputError("delta must be positive in modes that add Gaussian or binomial noise, else 0")
        if self.horizon is not None and self.horizon < 1:
            raise EngineInputError("horizon must be at least one step")
        if not self.process_variance > 0:
            raise EngineInputError("process_variance must be positive")
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
    def laplace(self) -> LaplaceBudget:
        return LaplaceBudget(epsilon=self.epsilon, presence=self.presence, shifts=self.shifts, shares=self.shares)

    @property
    def schedule(self) -> Schedule:
        """Of modes with public weights."""
        if self.mode in ("paper", "paper-binomial"):
            return Schedule.of_paper(self.weight, self.decay)
        return Schedule(decay=self.decay)

    @property
    def fixed(self) -> FixedAmounts:
        return FixedAmounts(self.gaussian, self.schedule)

    @property
    def binomial(self) -> BinomialBudget:
        return BinomialBudget(
            epsilon=self.epsilon,
            delta=self.delta,
            presence=self.presence,
            shifts=self.shifts,
            shares=self.shares,
            schedule=self.schedule,
        )

    @property
    def fourier(self) -> FourierBudget:
        block = self.delay if self.presence.steps is None else min(self.delay, self.presence.steps)
        return FourierBudget(
            epsilon=self.epsilon,
            presence=self.presence,
            shifts=self.shifts,
            shares=self.shares,
            block=block,
            kept=min(self.coefficients, block),
        )

    @property
    def window(self) -> WindowBudget:
        return WindowBudget(epsilon=self.epsilon, presence=self.presence, shifts=self.shifts, shares=self.shares)

    @property
    def adaptive(self) -> bool:
        """True where the budget of a step depends on releases: a unit is in every step of a span that ends."""
        return (
            self.mode == "default"
            and self.decay is None
            and self.presence.steps is not None
            and self.presence.everywhere
        )

    def build(self) -> Mode:
        """The mode before its first step. Raises: EngineInputError."""
        return MODES[self.mode](self)

    @property
    def identity(self) -> np.ndarray:
        """`(32,)` uint8: states of configurations with another one mean something else."""
        # 2: noise of paper-binomial that covers every arrangement of a unit's events; one event a step had it before.
        version = 2 if self.mode == "paper-binomial" and self.presence.per_step > 1 else 1
        return np.frombuffer(hashlib.sha256(written(("series", version, self)).encode()).digest(), np.uint8)


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


def _default(config: SeriesConfig) -> Mode:
    if not config.adaptive:
        return _fixed(config, lambda index, variance: _bank(config, index, variance))
    return Adaptive(*adaptive_parts(config))


def _fixed(config: SeriesConfig, estimator: Callable[[int, float], Estimator]) -> Mode:
    fixed = config.fixed
    estimators = []
    for index in range(len(config.shifts)):
        sigma_squared = fixed.sigma_squared(index, 0)
        assert sigma_squared is not None
        estimators.append(estimator(index, float(sigma_squared) / 4.0 ** fixed.budget.refinement(index)))
    return Measuring(FixedChannel(fixed), estimators)


def _releasers(config: SeriesConfig) -> Sequence[Estimator]:
    schedule, presence = config.schedule, config.presence

    def squared(step: int) -> float:
        return float(schedule.squared(presence.where(step)[1]))

    return [Releaser(squared, positive=config.positive) for _ in config.shifts]


def _walks(config: SeriesConfig) -> Sequence[Estimator]:
    return [RandomWalk(config.process_variance / field.unit**2) for field in config.domain.fields]


def _tree(config: SeriesConfig) -> Mode:
    return TreeDifferences(epsilon=config.epsilon, presence=config.presence, shifts=config.shifts, shares=config.shares)


def _plain(config: SeriesConfig) -> Sequence[Estimator]:
    return [Plain() for _ in config.shifts]


MODES: Mapping[str, Callable[[SeriesConfig], Mode]] = {
    "default": _default,
    "kalman": lambda config: _fixed(config, lambda index, variance: Kalman()),
    "paper": lambda config: Measuring(FixedChannel(config.fixed), _releasers(config)),
    "paper-binomial": lambda config: Measuring(BinomialChannel(config.binomial), _releasers(config)),
    "gaussian": lambda config: Measuring(FixedChannel(config.fixed), _plain(config)),
    "laplace": lambda config: Measuring(LaplaceChannel(config.laplace), _plain(config)),
    "fast": lambda config: Measuring(LaplaceChannel(config.laplace), _walks(config)),
    "dft": lambda config: Fourier(config.fourier),
    "bd": lambda config: WindowEvents(config.window, "bd"),
    "ba": lambda config: WindowEvents(config.window, "ba"),
    "tree": _tree,
}
"""By name."""
