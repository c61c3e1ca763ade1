"""The error to expect of an engine's answers, as figures: what noise alone does. Each engine's own stands in
`agents.show.presentation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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

    def first(self) -> dict[str, Any]:
        """The 95 % intervals of one release, for machines."""
        return {"unit": self.unit, "within": {answer.name: answer.first for answer in self.answers}}

    def within(self) -> str:
        """The errors of one release, as a phrase: `one leaf ±11, whole domain ±110 counts`."""
        answers = ", ".join(f"{answer.name} ±{rounded(answer.first)}" for answer in self.answers)
        return f"{answers} {self.unit}"

    def drowned(self, total: int, *, releases: int) -> str | None:
        """A sentence where noise is larger than all that there is; None where it is not, and where nothing is there.

        Args:
            total: events that are there. releases: since the start; for the nearest number below it the error is known.
        """
        if self.unit != "counts" or releases < 1 or total <= 0:  # of no events something else is the reason
            return None
        at = max(index for index, known in enumerate(RELEASES) if known <= releases)
        hidden = [answer for answer in self.answers if answer.intervals[at] > total]
        if not hidden:
            return None
        named = ", ".join(f"{answer.name} ±{rounded(answer.intervals[at])}" for answer in hidden)
        return (
            f"noise alone is larger than all {total:,} events that are there: {named} counts. Little can be read from "
            "these answers. Raise epsilon, lower max_contributions, make steps longer, or use a coarser domain."
        )


def rounded(value: float) -> str:
    """An error: whole where it is large, three digits where it is small."""
    return f"{round(value):,}" if 10 <= abs(value) < 1e15 else f"{value:.3g}"
