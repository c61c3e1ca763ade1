"""The recipe of the paper's modes: the AR(1) releaser on Gaussian noise (`paper`) or binomial (`paper-binomial`).

Guarantee: of the mode; see the modules of this folder.
Units: scales of binomial noise are sigma, in the field's own units.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from engines.series.config import SeriesConfig
from engines.series.modes import FixedChannel, Measuring, SeriesMode
from engines.series.papers.binomial import BinomialBudget, BinomialChannel
from engines.series.papers.releaser import Releaser
from engines.series.schedule import WeightSchedule
from schemas.guarantee import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSeriesConfig(SeriesConfig):
    """See `engines.series.config.SeriesConfig`. Raises: EngineInputError."""

    modes: ClassVar[frozenset[str]] = frozenset({"paper", "paper-binomial"})

    @property
    def schedule(self) -> WeightSchedule:
        """See `SeriesConfig.schedule`."""
        return WeightSchedule.of_paper(self.weight, self.decay)

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
    def version(self) -> int:
        """See `SeriesConfig.version`."""
        # 2: noise of paper-binomial that covers every arrangement of a unit's events; one event a step had it before.
        return 2 if self.mode == "paper-binomial" and self.presence.per_step > 1 else 1

    def build(self) -> SeriesMode:
        """See `SeriesConfig.build`."""
        schedule, presence = self.schedule, self.presence

        def squared(step: int) -> float:
            return float(schedule.squared(presence.where(step)[1]))

        channel = FixedChannel(self.fixed) if self.mode == "paper" else BinomialChannel(self.binomial)
        return Measuring(channel, [Releaser(squared, positive=self.positive) for _ in self.shifts])

    def mechanisms(self) -> tuple[Mechanism, ...]:
        """See `SeriesConfig.mechanisms`."""
        if self.mode == "paper":
            return SeriesConfig.mechanisms(self)
        budget = self.binomial
        weight = budget.schedule.squared(budget.schedule.full)

        def sigma(index: int) -> float:
            return sqrt(budget.half(index, weight, budget.base) / 2) * (1 << budget.coarse(index))

        return self.measurements("binomial", sigma)
