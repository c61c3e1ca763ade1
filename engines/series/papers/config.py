"""The recipe of the papers' modes: what each is made of, and what it promises.

Guarantee: of the mode; see the modules of this folder.
Units: scales of Laplace noise in lattice steps of their field; of binomial noise sigma, in the field's own units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import ClassVar

from engines.series.config import SeriesConfig, fixed_mode
from engines.series.modes import FixedChannel, Measuring, SeriesEstimator, SeriesMode
from engines.series.papers.binomial import BinomialBudget, BinomialChannel
from engines.series.papers.dft import Fourier, FourierBudget
from engines.series.papers.fast import RandomWalk
from engines.series.papers.kalman import Kalman
from engines.series.papers.laplace import LaplaceBudget, LaplaceChannel
from engines.series.papers.plain import Plain
from engines.series.papers.releaser import Releaser
from engines.series.papers.tree import TreeDifferences
from engines.series.papers.wevent import GRAINS, WindowBudget, WindowEvents
from engines.series.schedule import WeightSchedule
from schemas.guarantee import Mechanism

_MODES = "kalman paper paper-binomial gaussian laplace fast dft bd ba tree"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSeriesConfig(SeriesConfig):
    """See `engines.series.config.SeriesConfig`. Raises: EngineInputError."""

    modes: ClassVar[frozenset[str]] = frozenset(_MODES.split())

    @property
    def schedule(self) -> WeightSchedule:
        """Of modes with public weights."""
        if self.mode in ("paper", "paper-binomial"):
            return WeightSchedule.of_paper(self.weight, self.decay)
        return WeightSchedule(decay=self.decay)

    @property
    def laplace(self) -> LaplaceBudget:
        return LaplaceBudget(epsilon=self.epsilon, presence=self.presence, shifts=self.shifts, shares=self.shares)

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
    def version(self) -> int:
        """See `SeriesConfig.version`."""
        # 2: noise of paper-binomial that covers every arrangement of a unit's events; one event a step had it before.
        return 2 if self.mode == "paper-binomial" and self.presence.per_step > 1 else 1

    def build(self) -> SeriesMode:
        """See `SeriesConfig.build`."""
        return _BUILD[self.mode](self)

    def mechanisms(self) -> tuple[Mechanism, ...]:
        """See `SeriesConfig.mechanisms`."""
        told = _MECHANISMS.get(self.mode)
        return SeriesConfig.mechanisms(self) if told is None else told(self)


def _releasers(config: PaperSeriesConfig) -> Sequence[SeriesEstimator]:
    schedule, presence = config.schedule, config.presence

    def squared(step: int) -> float:
        return float(schedule.squared(presence.where(step)[1]))

    return [Releaser(squared, positive=config.positive) for _ in config.shifts]


def _walks(config: PaperSeriesConfig) -> Sequence[SeriesEstimator]:
    return [RandomWalk(config.process_variance / field.unit**2) for field in config.domain.fields]


def _tree(config: PaperSeriesConfig) -> SeriesMode:
    return TreeDifferences(epsilon=config.epsilon, presence=config.presence, shifts=config.shifts, shares=config.shares)


def _plain(config: PaperSeriesConfig) -> Sequence[SeriesEstimator]:
    return [Plain() for _ in config.shifts]


_BUILD: Mapping[str, Callable[[PaperSeriesConfig], SeriesMode]] = {
    "kalman": lambda config: fixed_mode(config, lambda index, variance: Kalman()),
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


def _binomial_mechanisms(config: PaperSeriesConfig) -> tuple[Mechanism, ...]:
    budget = config.binomial
    weight = budget.schedule.squared(budget.schedule.full)

    def sigma(index: int) -> float:
        return sqrt(budget.half(index, weight, budget.base) / 2) * (1 << budget.coarse(index))

    return config.measurements("binomial", sigma)


def _laplace_mechanisms(config: PaperSeriesConfig) -> tuple[Mechanism, ...]:
    budget = config.laplace
    assert budget.presence.most is not None
    return tuple(
        Mechanism(
            name=f"{field.name}: total of a step, in lattice steps of {field.unit:g}",
            distribution="discrete Laplace",
            l1_sensitivity=field.shift,
            scale=budget.scale(index),
            epsilon=budget.event_epsilon * share,
            uses=budget.presence.most,
            shift=Fraction(field.shift),
        )
        for index, (field, share) in enumerate(zip(config.domain.fields, config.shares, strict=True))
    )


def _tree_mechanisms(config: PaperSeriesConfig) -> tuple[Mechanism, ...]:
    mode = config.build()
    assert isinstance(mode, TreeDifferences)
    most = config.presence.most
    assert most is not None
    return tuple(
        Mechanism(
            name=f"{field.name}: nodes of a binary tree, in lattice steps of {field.unit:g}",
            distribution="discrete Laplace",
            l1_sensitivity=field.shift * counter.l1_sensitivity,
            scale=counter.scale,
            epsilon=config.epsilon * share / most,
            uses=most,
            shift=Fraction(field.shift * counter.l1_sensitivity),
        )
        for field, share, counter in zip(config.domain.fields, config.shares, mode.counters, strict=True)
    )


def _fourier_mechanisms(config: PaperSeriesConfig) -> tuple[Mechanism, ...]:
    budget, most = config.fourier, config.presence.most
    assert most is not None
    return tuple(
        Mechanism(
            name=f"{field.name}: {budget.kept} Fourier coefficients of {budget.block} steps, 2^-16 of {field.unit:g}",
            distribution="discrete Laplace",
            l1_sensitivity=budget.l1_sensitivity(index),
            scale=budget.scale(index),
            epsilon=config.epsilon * share,
            # Of a unit, whose events together move it less than each by itself would.
            shift=Fraction(budget.l1_sensitivity(index), most),
        )
        for index, (field, share) in enumerate(zip(config.domain.fields, config.shares, strict=True))
    )


def _window_mechanisms(config: PaperSeriesConfig) -> tuple[Mechanism, ...]:
    budget = config.window
    mechanisms = []
    for index, field in enumerate(config.domain.fields):
        moved, even = budget.moved(index), budget.even(index)
        mechanisms += [
            Mechanism(
                name=f"{field.name}: distance of a total from the last release, in lattice steps of {field.unit:g}",
                distribution="discrete Laplace",
                l1_sensitivity=moved,
                scale=budget.dissimilarity_scale(index),
                epsilon=even,
                uses=budget.window,
                shift=Fraction(config.shifts[index]),
            ),
            Mechanism(
                name=f"{field.name}: releases of a window (scale at an even share), in steps of {field.unit:g}",
                distribution="discrete Laplace",
                l1_sensitivity=moved,
                scale=budget.scale(index, GRAINS),
                epsilon=even * budget.window,
                shift=Fraction(config.shifts[index]),
            ),
        ]
    return tuple(mechanisms)


_MECHANISMS: Mapping[str, Callable[[PaperSeriesConfig], tuple[Mechanism, ...]]] = {
    "paper-binomial": _binomial_mechanisms,
    "laplace": _laplace_mechanisms,
    "fast": _laplace_mechanisms,
    "tree": _tree_mechanisms,
    "dft": _fourier_mechanisms,
    "bd": _window_mechanisms,
    "ba": _window_mechanisms,
}
"""Of modes whose noise is not Gaussian."""
