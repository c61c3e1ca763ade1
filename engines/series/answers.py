"""Sums, counts and mean readings over steps from the noisy totals of each; percentiles from sums of noisy histograms.

Privacy: post-processing of measurements.
Units: those of the raw field. Of readings the answer is their mean over the steps that had one. Noise of different
steps is independent, so a histogram over n steps has n times the variance of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engines.core.answers.contract import (
    Answerer,
    Asked,
    CountAnswer,
    CountQuestion,
    Measured,
    QueryError,
    Sum,
    answered,
)
from engines.core.answers.where import holds
from engines.core.intervals import NORMAL_95
from engines.series.build import domain
from engines.series.fields import SeriesDomain
from engines.series.histograms import NoisyHistogram
from schemas.config import Stream
from schemas.config.engines.series import OF_HISTOGRAM


def answers(stream: Stream, measured: Measured, latest: int) -> Answerer:
    made = domain(stream)
    return (HistogramAnswers if made.histograms else SeriesAnswers)(made, measured, latest)


Told = tuple[Any, float]
"""What was measured of a group in a step, and the variance of its noise."""


class _Answers:
    """What both have in common: which numbers and groups there are, and what is measured of them."""

    regions = False
    series: Sequence[str]

    def __init__(self, made: SeriesDomain, measured: Measured, latest: int, key: str) -> None:
        """Args: key: of what was measured, in a measurement."""
        self._by = made.by
        self.fields: Mapping[str, Asked] = {}
        if self._by is not None:
            self.fields = {self._by.field: Asked(frozenset(("text",)), self._by.values)}
        self._told: dict[tuple[str, str | None], dict[int, Told]] = {
            (field.name, group): {} for field, group in made.parts
        }
        for _, told in measured:
            self._told[told["field"], told.get("group")][told["of_step"]] = (told[key], told["variance"])
        every = list(self._told.values())
        first = (step for step in range(latest + 1) if not all(step in one for one in every))
        self.settled = next(first, latest + 1) - 1

    def _asked(self, question: CountQuestion) -> str:
        """Return which number is asked for. Raises: QueryError."""
        if question.region is not None or (question.where is not None and self._by is None):
            raise QueryError(
                "a series has one number for each step: nothing to choose by. Fix: leave the condition out."
            )
        if question.series is None and len(self.series) > 1:
            raise QueryError(f"this stream has several series. Fix: add --series, one of {', '.join(self.series)}.")
        return question.series or self.series[0]

    def _chosen(self, field: str, question: CountQuestion) -> tuple[list[Told], float]:
        """Return what was measured in the steps and groups asked for, and the part of the steps that is pending."""
        groups = [
            told
            for (name, group), told in self._told.items()
            if name == field and (question.where is None or holds(question.where, self._record(group)))
        ]
        steps = range(question.first, question.last + 1)
        there = [step for step in steps if all(step in told for told in groups)]
        return [told[step] for told in groups for step in there], 1 - len(there) / len(steps)

    def _record(self, group: str | None) -> Mapping[str, Any]:
        return {} if self._by is None else {self._by.field: group}


class HistogramAnswers(_Answers):
    """Implements `engines.core.answers.contract.Answerer`: numbers of histograms, added up over steps and groups."""

    def __init__(self, made: SeriesDomain, measured: Measured, latest: int) -> None:
        super().__init__(made, measured, latest, "counts")
        self._numbers = {f"{field.name}_{what}": (field, what) for field in made.fields for what in OF_HISTOGRAM}
        self.series = tuple(self._numbers)

    def answer(self, question: CountQuestion) -> CountAnswer:
        field, what = self._numbers[self._asked(question)]
        told, pending = self._chosen(field.name, question)
        if pending == 1:
            return CountAnswer(None, None, None, None, pending=pending)
        assert field.edges is not None
        counts = np.array([each for each, _ in told], np.float64).reshape(-1, len(field.edges) + 1).sum(axis=0)
        one = NoisyHistogram(field.edges, counts, sum(variance for _, variance in told)).number(what, NORMAL_95)
        # What waits for its measurement may move a mean or a percentile anywhere, and only adds to a count.
        low = one.low if what == "count" or not pending else None
        return CountAnswer(one.value, one.error, low, None if pending else one.high, pending=pending)


class SeriesAnswers(_Answers):
    """Implements `engines.core.answers.contract.Answerer`. The noise of different steps and groups is independent."""

    def __init__(self, made: SeriesDomain, measured: Measured, latest: int) -> None:
        super().__init__(made, measured, latest, "value")
        self.series = tuple(field.name for field in made.fields)
        self._readings = made.readings
        self._signed = {field.name: field.limits is not None and field.limits[0] < 0 for field in made.fields}
        if self._readings:
            # Steps without a reading have no total and miss none, but for those at the end.
            self.settled = min(latest, *(max(told, default=-1) for told in self._told.values()))

    def answer(self, question: CountQuestion) -> CountAnswer:
        name = self._asked(question)
        told, pending = self._chosen(name, question)
        weight = 1 / max(len(told), 1) if self._readings else 1.0
        noise = [weight * weight * variance for _, variance in told]
        found = Sum(sum(weight * value for value, _ in told), sum(noise), sum(each * each for each in noise))
        # A mean is that of the steps with a reading, whatever the others would have had; of no step there is none.
        bounded = bool(told) if self._readings else not pending
        signed = self._readings or self._signed[name]
        return answered(found, found, found, pending=pending, bounded=bounded, signed=signed)
