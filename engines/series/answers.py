"""Sums, counts and mean readings over steps from the noisy totals of each.

Privacy: post-processing of measurements.
Units: those of the raw field. Of readings the answer is their mean over the steps that had one.
"""

from __future__ import annotations

from collections.abc import Mapping

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
from engines.series.build import domain
from engines.series.fields import SeriesDomain
from schemas.config import Stream


def answers(stream: Stream, measured: Measured, latest: int) -> Answerer:
    return SeriesAnswers(domain(stream), measured, latest)


class SeriesAnswers:
    """Implements `engines.core.answers.contract.Answerer`. The noise of different steps is independent."""

    fields: Mapping[str, Asked] = {}
    regions = False

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
        if question.where is not None or question.region is not None:
            raise QueryError(
                "a series has one number for each step: nothing to choose by. Fix: leave the condition out."
            )
        if question.series is None and len(self.series) > 1:
            raise QueryError(f"this stream has several series. Fix: add --series, one of {', '.join(self.series)}.")
        name = question.series or self.series[0]
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
        every = set(range(latest + 1)).intersection(*self._totals.values())
        return next((step for step in range(latest + 1) if step not in every), latest + 1) - 1
