"""The public clock of a series: which steps of a day, or of a week, look alike.

Guarantee: a function of the step's number alone.
Units: steps; days.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from schemas.arrays import FloatArray
from schemas.errors import EngineInputError

HARMONICS = 6
WEEKEND_HARMONICS = 3
_WEEK = 7
_SATURDAY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Args:

    period: steps after which a day (for daily steps: a week) repeats.
    phase: place of step 0 in its period.
    weekday: of step 0, Monday = 0; None: weekends are not known or not told apart.
    Raises: EngineInputError if the period is below 2.
    """

    written_as: ClassVar[str] = "Clock"

    period: int
    phase: int = 0
    weekday: int | None = None

    def __post_init__(self) -> None:
        if self.period < 2:
            raise EngineInputError("a period must be at least two steps")

    @property
    def scales(self) -> FloatArray:
        """`(regressors,)` prior scale of each regressor's coefficient, relative to the first."""
        daily = [1 / k for k, _ in self._waves(HARMONICS)]
        if self.weekday is None:
            return np.array(daily)
        return np.array([*daily, 1.0, *(1 / k for k, _ in self._waves(WEEKEND_HARMONICS))])

    def regressors(self, first: int, count: int) -> FloatArray:
        """`(count, regressors)`: waves of the day, and a level and waves of the weekend's own."""
        table = _table(self)
        return table[np.arange(first, first + count) % len(table)]

    def table(self) -> FloatArray:
        """`(steps, regressors)`: those of one round, after which all of them repeat."""
        steps = np.arange(self.period * (1 if self.weekday is None else _WEEK)) + self.phase
        turn = 2 * np.pi * (steps % self.period) / self.period
        columns = [np.cos(k * turn - lag) for k, lag in self._waves(HARMONICS)]
        if self.weekday is not None:
            days = (steps // self.period + self.weekday) % _WEEK
            weekend = (days >= _SATURDAY).astype(np.float64)
            columns.append(weekend - 2 / 7)
            columns += [weekend * np.cos(k * turn - lag) for k, lag in self._waves(WEEKEND_HARMONICS)]
        return np.stack(columns, axis=1)

    def _waves(self, most: int) -> list[tuple[int, float]]:
        """(multiple of the base frequency, lag): cosine and sine, only the cosine at the highest one."""
        return [
            (k, lag)
            for k in range(1, min(most, self.period // 2) + 1)
            for lag in ((0.0,) if 2 * k == self.period else (0.0, np.pi / 2))
        ]


@lru_cache(maxsize=16)
def _table(clock: Clock) -> FloatArray:
    return clock.table()
