"""The error to expect of an engine's answers, as figures: what noise alone does. Each engine's own stands in
`agents.presentation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

NORMAL_95 = 1.959963984540054
RELEASES = (1, 10, 100, 1000)


@dataclass(frozen=True, slots=True)
class Answer:
    """One kind of answer that a consumer works out, such as the count of a small region.

    Attributes:
        size: how many independent draws of noise are in it after one release.
        deviations: standard deviation of its error after each of `RELEASES`.
        intervals: 95 % of its errors lie within plus or minus this, after each of `RELEASES`.
    """

    name: str
    size: int
    what: str
    deviations: tuple[float, ...]
    intervals: tuple[float, ...]

    @staticmethod
    def of(
        name: str,
        size: int,
        what: str,
        deviation: Callable[[int], float],
        interval: Callable[[int], float] | None = None,
    ) -> Answer:
        """From functions of the number of releases; without `interval` the error is taken for normal."""
        deviations = tuple(deviation(t) for t in RELEASES)
        intervals = tuple(interval(t) if interval else NORMAL_95 * deviation(t) for t in RELEASES)
        return Answer(name, size, what, deviations, intervals)

    @property
    def first(self) -> float:
        """95 % interval after one release."""
        return self.intervals[0]


@dataclass(frozen=True, slots=True)
class ErrorModel:
    """Attributes:

    answers: from small to large.
    sizes: what `Answer.size` counts, for the head of a table. unit: of the errors.
    growth: a sentence on how errors change with the number of releases.
    formula: in symbols. conditions: what it takes for granted.
    """

    answers: tuple[Answer, ...]
    sizes: str
    growth: str
    formula: str
    conditions: str
    unit: str = "counts"
