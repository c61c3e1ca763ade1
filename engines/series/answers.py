"""Sums, counts and mean readings over steps from the noisy totals of each; percentiles from sums of noisy histograms.

Privacy: post-processing of measurements.
Units: those of the raw field. Of readings the answer is their mean over the steps that had one. Noise of different
steps is independent, so a histogram over n steps has n times the variance of one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import numpy as np

from engines.core.answers.contract import (
    NORMAL_95,
    Answerer,
    Asked,
    CountAnswer,
    CountQuestion,
    Measured,
    QueryError,
    Sum,
    answered,
)
from engines.series.build import domain
from engines.series.fields import SeriesDomain
from engines.series.histograms import NoisyHistogram
from schemas.config import Stream
from schemas.config.series import OF_HISTOGRAM


def answers(stream: Stream, measured: Measured, latest: int) -> Answerer:
    made = domain(stream)
    return (HistogramAnswers if made.histograms else SeriesAnswers)(made, measured, latest)


class _Answers:
    """What both have in common: which numbers there are, and which steps are measured."""

    fields: Mapping[str, Asked] = {}
    regions = False
    series: Sequence[str]

    def _asked(self, question: CountQuestion) -> str:
        """Return which number is asked for. Raises: QueryError."""
        if question.where is not None or question.region is not None:
            raise QueryError(
                "a series has one number for each step: nothing to choose by. Fix: leave the condition out."
            )
        if question.series is None and len(self.series) > 1:
            raise QueryError(f"this stream has several series. Fix: add --series, one of {', '.join(self.series)}.")
        return question.series or self.series[0]


class HistogramAnswers(_Answers):
    """Implements `engines.core.answers.contract.Answerer`: numbers of histograms that are added up over steps."""

    def __init__(self, made: SeriesDomain, measured: Measured, latest: int) -> None:
        self._fields = {f"{field.name}_{what}": (field, what) for field in made.fields for what in OF_HISTOGRAM}
        self.series = tuple(self._fields)
        self._counts: dict[str, dict[int, tuple[list[float], float]]] = {field.name: {} for field in made.fields}
        for _, told in measured:
            self._counts[told["field"]][told["of_step"]] = (told["counts"], told["variance"])
        self.settled = _settled(self._counts.values(), latest)

    def answer(self, question: CountQuestion) -> CountAnswer:
        """See `Answerer`."""
        field, what = self._fields[self._asked(question)]
        counts = self._counts[field.name]
        steps = [step for step in range(question.first, question.last + 1) if step in counts]
        pending = 1 - len(steps) / (question.last - question.first + 1)
        if not steps:
            return CountAnswer(None, None, None, None, pending=pending)
        assert field.edges is not None
        total = np.array([counts[step][0] for step in steps], np.float64).sum(axis=0)
        one = NoisyHistogram(field.edges, total, sum(counts[step][1] for step in steps)).number(what, NORMAL_95)
        # What waits for its measurement may move a mean or a percentile anywhere, and only adds to a count.
        low = one.low if what == "count" or not pending else None
        return CountAnswer(one.value, one.error, low, None if pending else one.high, pending=pending)


class SeriesAnswers(_Answers):
    """Implements `engines.core.answers.contract.Answerer`. The noise of different steps is independent."""

    def __init__(self, made: SeriesDomain, measured: Measured, latest: int) -> None:
        self.series = tuple(field.name for field in made.fields)
        self._readings = made.readings
        self._signed = {field.name: field.limits is not None and field.limits[0] < 0 for field in made.fields}
        self._totals: dict[str, dict[int, tuple[float, float]]] = {name: {} for name in self.series}
        for _, told in measured:
            self._totals[told["field"]][told["of_step"]] = (told["value"], told["variance"])
        self.settled = self._measured_to(latest)

    def answer(self, question: CountQuestion) -> CountAnswer:
        """See `Answerer`."""
        name = self._asked(question)
        totals = self._totals[name]
        steps = [step for step in range(question.first, question.last + 1) if step in totals]
        weight = 1 / max(len(steps), 1) if self._readings else 1.0
        noise = [weight * weight * totals[step][1] for step in steps]
        found = Sum(sum(weight * totals[step][0] for step in steps), sum(noise), sum(each * each for each in noise))
        pending = 1 - len(steps) / (question.last - question.first + 1)
        # A mean is that of the steps with a reading, whatever the others would have had; of no step there is none.
        bounded = bool(steps) if self._readings else not pending
        signed = self._readings or self._signed[name]
        return answered(found, found, found, pending=pending, bounded=bounded, signed=signed)

    def _measured_to(self, latest: int) -> int:
        """See `Answerer.settled`. Steps without a reading have no total and miss none, but for those at the end."""
        if self._readings:
            return min(latest, *(max(totals, default=-1) for totals in self._totals.values()))
        return _settled(self._totals.values(), latest)


def _settled(measured: Iterable[Container[int]], latest: int) -> int:
    """Return the last step up to which every number is measured."""
    every = list(measured)
    return next((step for step in range(latest + 1) if not all(step in one for one in every)), latest + 1) - 1
