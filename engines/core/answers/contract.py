"""What an engine that answers questions from its measurements is: the question, the answer, and who gives it.

Privacy: measurements are public, so every answer is post-processing and costs nothing.
Units: counts are events, inserts less deletes; of a series its field's units. Steps count from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Protocol, runtime_checkable

from engines.core.answers.where import Where
from engines.core.contract import ScalarKind
from engines.core.intervals import NORMAL_95
from schemas.errors import PrivstreamError

Measured = Sequence[tuple[int, Mapping[str, Any]]]
"""All measurements of a stream with their steps, in order, as `Release.measurements` has them. Of an engine whose
records are counts (`EngineFacts.records_are_counts`) also one `{RECORDS: [...]}` for each step: the fields of each."""
RECORDS = "records"

LAPLACE_KURTOSIS = 3.0
"""Excess over a normal's, of discrete Laplace noise; that of Gaussian noise is 0. The larger one is taken."""


class QueryError(PrivstreamError):
    """The question cannot be answered from what was measured, or makes no sense. Says what can be asked instead."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A field that a condition may name.

    Attributes:
        listed: all values that there are, or None where they are numbers of an interval.
        others: what a value is counted as that is not listed; None where there is no such value.
    """

    kinds: frozenset[ScalarKind]
    listed: tuple[Any, ...] | None = None
    others: str | None = None


@dataclass(frozen=True, slots=True)
class CountQuestion:
    """How much came in steps `first` to `last`, both included.

    Attributes:
        where: condition on fields; None: all.
        region: a shape as WKB in the units of the domain's coordinates; None: everywhere.
        series: which of several numbers; None: the only one.
    """

    first: int
    last: int
    where: Where | None = None
    region: bytes | None = None
    series: str | None = None


@dataclass(frozen=True, slots=True)
class CountAnswer:
    """Attributes:

    estimate: unbiased but for what is `cut`, of all that has been measured: nothing is put in for what is `pending`.
        None where nothing of it was measured: that is not 0.
    standard_error: of the noise in it, from its variances; None where the question cuts what was measured as one, or
        has steps that are in totals alone: no variance says how far off the share is that was taken of it. None beside
        no estimate, too.
    low, high: ends of a 95 % interval. Where the question cuts what was measured as one, wherever in it the events lie.
    high: None where events wait for their measurement, and nothing says how many. low: None where they may be negative.
    cut: the noisy count of what lies in cells or blocks of steps that the question cuts; these are shared out.
    pending: share of the region and steps that no measurement covers. Their events are in no number here.
    since: the first step of what is counted, where that is not the question's.
    """

    estimate: float | None
    standard_error: float | None
    low: float | None
    high: float | None
    cut: float = 0.0
    pending: float = 0.0
    since: int | None = None


class Answerer(Protocol):
    """Made by the function that an `EngineSpec` names as `answers`: of a `Stream`, `Measured` and its last public step.

    Raises: QueryError, in a mode whose measurements cannot be added up.
    """

    @property
    def fields(self) -> Mapping[str, Asked]:
        """What a condition may name."""
        ...

    @property
    def regions(self) -> bool:
        """Whether a shape may be asked for."""
        ...

    @property
    def series(self) -> Sequence[str]:
        """Names of its numbers, where a step has several or one that is no count; else empty."""
        ...

    @property
    def settled(self) -> int:
        """The last step up to which everything that came is measured, or counted in totals; -1: none."""
        ...

    def answer(self, question: CountQuestion) -> CountAnswer:
        """Raises: QueryError."""
        ...


@dataclass(frozen=True, slots=True)
class LargestKey:
    """One of the keys with most people. Attributes: fields: of the key. found: the step that listed it first."""

    fields: Mapping[str, Any]
    found: int
    answer: CountAnswer


@runtime_checkable
class KeysAnswerer(Answerer, Protocol):
    """What answers of keys that are listed, as well."""

    def largest(self, last: int, most: int, where: Where | None, series: str | None) -> Sequence[LargestKey]:
        """Return so many listed keys at most that meet a condition, after a step; those with most of a series first."""
        ...

    def note(self, last: int) -> str:
        """Say whom counts after a step are of, how many keys are listed, and what one needs to be."""
        ...


@dataclass(frozen=True, slots=True)
class Sum:
    """A linear combination of independent noisy counts.

    Attributes:
        variance: of its noise. fourth: sum of the squares of what each noise adds to the variance.
    """

    value: float
    variance: float
    fourth: float = 0.0

    @property
    def reach(self) -> float:
        """Half the width of a 95 % interval: a normal's, widened for the tails of few Laplace noises.

        Source: the expansion of Cornish and Fisher, to the fourth cumulant.
        """
        if self.variance <= 0:
            return 0.0
        excess = LAPLACE_KURTOSIS * self.fourth / self.variance**2
        return (NORMAL_95 + (NORMAL_95**3 - 3 * NORMAL_95) * excess / 24) * sqrt(self.variance)


def answered(
    shared: Sum, whole: Sum, touched: Sum, *, pending: float = 0.0, bounded: bool = True, signed: bool = False
) -> CountAnswer:
    """Return the answer of three sums: with cut parts shared out, without them, and with all of them.

    Where nothing is cut the three are the same. Else the truth lies between the last two, but for their noise, where
    events are only inserted; so does the interval of whatever of it is the question's ([imbens2004]).

    Args:
        pending: 1 where nothing was measured, so that the sums are of nothing.
        bounded: False where events wait for their measurement, and nothing says how many.
        signed: whether what waits may be negative.
    """
    measured = pending < 1
    ends = [(each.value - each.reach, each.value + each.reach) for each in (shared, whole, touched)]
    return CountAnswer(
        estimate=shared.value if measured else None,
        standard_error=sqrt(max(shared.variance, 0.0)) if measured and whole == touched else None,
        low=min(low for low, _ in ends) if bounded or not signed else None,
        high=max(high for _, high in ends) if bounded else None,
        cut=touched.value - whole.value,
        pending=pending,
    )
