"""Counts of users in states from the noisy counts of every step. Records are counted: a user once in each step.

Privacy: post-processing of measurements.
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
from engines.core.answers.where import holds
from schemas.config import Stream
from schemas.config.engines.markov import StatesDomainSection


def answers(stream: Stream, measured: Measured, latest: int) -> Answerer:
    """Return what answers questions about a stream: both modes publish the same counts."""
    section = StatesDomainSection.from_stream(stream)
    return MarkovAnswers(section.field, section.values, measured, latest)


class MarkovAnswers:
    """Implements `engines.core.answers.contract.Answerer`. The noise of different states and steps is independent."""

    series = ()
    regions = False

    def __init__(self, field: str, values: tuple[str, ...], measured: Measured, latest: int) -> None:
        self._field = field
        self.fields: Mapping[str, Asked] = {field: Asked(frozenset(("text",)), values)}
        self._steps: dict[int, list[tuple[str, float, float]]] = {}
        for step, told in measured:
            self._steps.setdefault(step, []).append((told["state"], told["count"], told["variance"]))
        self.settled = next((step for step in range(latest + 1) if step not in self._steps), latest + 1) - 1

    def answer(self, question: CountQuestion) -> CountAnswer:
        if question.region is not None:
            raise QueryError(f"this stream has no places. Fix: a condition on {self._field}.")
        steps = [step for step in range(question.first, question.last + 1) if step in self._steps]
        chosen = [
            (value, variance)
            for step in steps
            for state, value, variance in self._steps[step]
            if question.where is None or holds(question.where, {self._field: state})
        ]
        noise = [variance for _, variance in chosen]
        total = Sum(sum(value for value, _ in chosen), sum(noise), sum(each * each for each in noise))
        pending = 1 - len(steps) / (question.last - question.first + 1)
        return answered(total, total, total, pending=pending, bounded=not pending)
