"""Numbers that people bring to a key, beside being counted: between public limits, as whole numbers of levels.

A value v is the whole number q from -L to L next to L (v - c) / h, for the middle c of the limits, half their distance
h, and L = `LEVELS`: so it is rounded by h / 8192 at most, and what a person can move is the same in both directions.
With n noisy people and a noisy sum s of levels, values sum up to c n + h s / L, and their mean is c + h s / (L n).
Units: values and limits in those of the raw field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from engines.keys.table import LEVELS
from schemas.arrays import BoolArray, FloatArray, WordArray
from schemas.errors import EngineInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedValue:
    """See the module.

    Args:
        field: of the raw event. low, high: limits, to which values beyond are clipped.
    Raises: EngineInputError if they are not two finite numbers, the lower one first.

    >>> price = BoundedValue(field="price", low=0.0, high=100.0)
    >>> price.levels(np.array([0.0, 50.0, 1000.0])).tolist()
    [0, 4096, 8192]
    >>> [each.tolist() for each in price.sums(np.array([4.0]), np.array([-2048.0]))]
    [[175.0], [43.75]]
    """

    written_as: ClassVar[str] = "BoundedValue"

    field: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not -np.inf < self.low < self.high < np.inf:
            raise EngineInputError("limits of a value must be two finite numbers, the lower one first")

    @property
    def middle(self) -> float:
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> float:
        """Half the distance of the limits: what a person moves at most."""
        return self.high / 2 - self.low / 2

    def levels(self, values: FloatArray) -> WordArray:
        """Return `(events,)` levels of finite values plus `LEVELS`, as `PeriodTable.added` takes them."""
        relative = (np.clip(values, self.low, self.high) - self.middle) / self.half
        levels = np.rint(relative * LEVELS)
        # Floats round so coarsely beside narrow limits that a limit could be beyond the last level.
        return (np.clip(levels, -LEVELS, LEVELS) + LEVELS).astype(np.uint64)

    def clipped(self, values: FloatArray) -> BoolArray:
        """Return which values are beyond the limits."""
        return (values < self.low) | (values > self.high)

    def sums(self, people: FloatArray, levels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the sum of the values of each key, and their mean, which lies within the limits.

        Args: people, levels: `(keys,)` noisy counts, and noisy sums of levels.
        """
        beside = self.half * (levels / LEVELS)
        means = self.middle + beside / np.maximum(people, 1)
        return self.middle * people + beside, np.clip(means, self.low, self.high)

    def errors(
        self, people: FloatArray, means: FloatArray, counted: float, summed: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the standard error of each sum, and that of each mean, to first order.

        Args: counted, summed: standard error of a count, and of a sum of levels divided by `LEVELS`.
        """
        of_sum = np.full(len(people), np.hypot(self.half * summed, self.middle * counted))
        of_mean = np.hypot(self.half * summed, (means - self.middle) * counted) / np.maximum(people, 1)
        return of_sum, of_mean
