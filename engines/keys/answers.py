"""How many people have a key, or the keys that meet a condition, and what they bring, from the records that list keys.

A record is itself a measurement: the count of a key in its period so far, whose noise is public. Keys have noise of
their own each, so variances add up. Keys that are cells of a grid are compared by their middles. What is not known is
said:

| key                                             | what is known of its people                                       |
|-------------------------------------------------|-------------------------------------------------------------------|
| listed, or of a public list                     | the noisy count; below 0 it is said as 0                          |
| asked for by name, and not listed               | its noisy count is below the threshold, or too few people have it |
| not listed, of a condition that names no keys   | nothing: there is no upper end                                    |

Sums over keys that nobody named are too large for these keys: noise is on the side of those that are just listed, and
negative noise is said as 0. Such sums have no standard error. Their lower end is one all the same. It is of all people
whom the condition means: at a threshold of several standard errors those of keys that were not lucky outweigh what the
others have too much, E[(x + N) 1{listed}] <= x. What is said as 0 is taken off: of x people a count is too large by
s phi(x / s) - x Phi(-x / s) on average, for a standard error s, which is less for more people.
Privacy: post-processing of what is published.
Units: people, each once for each key of a period.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import pi, sqrt
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from engines.core.answers.contract import (
    RECORDS,
    Asked,
    CountAnswer,
    CountQuestion,
    LargestKey,
    Measured,
    QueryError,
)
from engines.core.answers.where import Atom, Both, Either, Not, Where, holds
from engines.core.contract import Columns, ScalarKind
from engines.core.intervals import NORMAL_95
from engines.keys.build import domain, selection
from engines.keys.domain import KeysDomain, Name, Scalar, name_of, read, written
from schemas.config import Stream
from schemas.config.engines.keys import KeysDomainSection
from schemas.events import Reason

_ROUNDED = 1 / 12
"""Variance of what is rounded to whole people."""
COUNT, SUM, MEAN = "count", "sum", "mean"
"""Numbers of a key, as its records have them; the last two where people bring a value."""
_CLEAR = 2.0
"""Standard errors above the threshold from which on noise had little part in what is listed."""
_SLIGHT = 0.05
_UNSURE = 1e-3
"""Probability that one of several counts is further from the truth than is taken for granted."""


def answers(stream: Stream, measured: Measured, latest: int) -> KeyAnswers:
    return KeyAnswers(stream, measured, latest)


@dataclass(frozen=True, slots=True)
class _Listed:
    """A key, with its record."""

    values: tuple[Scalar, ...]
    record: Mapping[str, Any]

    @property
    def count(self) -> int:
        return int(self.record["count"])

    def answer(self, series: str | None) -> CountAnswer:
        """Return one of its numbers, by its own error."""
        name = series or COUNT
        value, error = float(self.record[name]), float(self.record["error" if name == COUNT else f"{name}_error"])
        deviation = sqrt(error**2 + _ROUNDED) if name == COUNT else error
        low, high = value - NORMAL_95 * deviation, value + NORMAL_95 * deviation
        return CountAnswer(value, deviation, max(0.0, low) if name == COUNT else low, high)


class KeyAnswers:
    """Implements `engines.core.answers.contract.KeysAnswerer`. An answer is of the period of the question's last step,
    from its begin on: how many of the people of two periods are the same, nobody knows.
    """

    regions = False

    def __init__(self, stream: Stream, measured: Measured, latest: int) -> None:
        section = KeysDomainSection.from_stream(stream)
        self._domain: KeysDomain = domain(stream)
        self._selection, self._renews = selection(stream), stream.period_steps is not None
        self._counted = "events" if stream.pair_events > 1 else "people"
        self.series = () if self._domain.value is None else (COUNT, SUM, MEAN)
        public = () if self._domain.grid is not None else section.public_keys
        kinds: dict[str, frozenset[ScalarKind]] = dict.fromkeys(self._domain.fields, frozenset({"number"}))
        self.fields: Mapping[str, Asked] = {
            name: Asked(each, tuple(dict.fromkeys(values[at] for values in public)) if public else None)
            for at, (name, each) in enumerate({**kinds, **self._domain.value_fields}.items())
            if name in kinds
        }
        self.settled = latest
        self._steps: dict[int, Mapping[Name, _Listed]] = {
            step: self._of_records(told[RECORDS]) for step, told in measured if RECORDS in told
        }

    def answer(self, question: CountQuestion) -> CountAnswer:
        if question.region is not None:
            raise QueryError("keys have no places. Fix: a condition on their fields.")
        begin, last = self._period(question.last)
        where = None if question.where is None else _composed(question.where)
        named = None if where is None else self._named(where)
        listed = self._steps.get(last, {})
        met = [
            each for key, each in listed.items() if self._meets(each, where, None if named is None else key in named)
        ]
        if question.series == MEAN and (named is None or len(named) > 1):
            raise QueryError("the mean is of one key. Fix: name it, as in \"page = 'a'\", or ask --series sum.")
        if question.series in (SUM, MEAN):
            return replace(self._values(question.series, met, named, listed), since=begin)
        return replace(self._summed(last, met, named, listed), since=begin)

    def largest(self, last: int, most: int, where: Where | None, series: str | None) -> Sequence[LargestKey]:
        begin, last = self._period(last)
        where = None if where is None else _composed(where)
        met = [each for each in self._steps.get(last, {}).values() if self._meets(each, where, None)]
        met.sort(key=lambda each: -each.record[series or COUNT])
        return [
            LargestKey(
                dict(zip(self._domain.fields, each.values, strict=True)),
                int(each.record["found"]),
                replace(each.answer(series), since=begin),
            )
            for each in met[:most]
        ]

    def note(self, last: int) -> str:
        begin, last = self._period(last)
        once = "" if self._counted == "events" else ", each counted once for each key"
        told = f"{self._counted} of steps {begin} to {last}{once}. {len(self._steps.get(last, {})):,}"
        tests = self._selection
        if tests.public:
            return f"{told} keys are public, and each has its count"
        return (
            f"{told} keys are listed: at step {last} a key needs {tests.threshold(last - begin + 1):,.0f} "
            f"{self._counted} for even odds, and {tests.least_count:,} in any case"
        )

    def _period(self, last: int) -> tuple[int, int]:
        """Return the first step of a step's period, and the last step whose list holds there."""
        tests = self._selection.tests
        if not self._renews:
            return 0, min(last, tests - 1)
        return last // tests * tests, last

    def _of_records(self, records: Sequence[Mapping[str, Any]]) -> Mapping[Name, _Listed]:
        found = {}
        for record in records:
            values = tuple(record[name] for name in self._domain.fields)
            found[name_of(values)] = _Listed(values, record)
        return found

    def _meets(self, each: _Listed, where: Where | None, named: bool | None) -> bool:
        if named is not None or where is None:
            return named is not False
        return holds(where, dict(zip(self._domain.fields, each.values, strict=True)))

    def _values(
        self,
        series: str,
        met: Sequence[_Listed],
        named: Mapping[Name, Reason | None] | None,
        listed: Mapping[Name, _Listed],
    ) -> CountAnswer:
        """Return what people bring to keys, or the mean of one key; nothing bounds what they bring to others."""
        missing = 0 if named is None else sum(key not in listed for key in named)
        if not met and (missing or named is None):
            return CountAnswer(None, None, None, None, pending=1.0)
        answers = [each.answer(series) for each in met]
        total = float(sum(each.estimate or 0.0 for each in answers))
        # Those that are listed by luck bring too much, too.
        known = self._selection.public or (named is not None and not missing)
        deviation = sqrt(sum((each.standard_error or 0.0) ** 2 for each in answers))
        return CountAnswer(
            estimate=total,
            standard_error=deviation if known else None,
            low=total - NORMAL_95 * deviation if known else None,
            high=total + NORMAL_95 * deviation if known else None,
            pending=missing / len(named) if named else 0.0,
        )

    def _summed(
        self,
        last: int,
        met: Sequence[_Listed],
        named: Mapping[Name, Reason | None] | None,
        listed: Mapping[Name, _Listed],
    ) -> CountAnswer:
        tests, test = self._selection, last % self._selection.tests + 1
        deviation = sqrt(tests.counter.variance(test) + _ROUNDED)
        missing = [] if named is None else [reason for key, reason in named.items() if key not in listed]
        if len(met) == 1 and not missing and (named is not None or tests.public):
            return met[0].answer(COUNT)
        threshold = 0.0 if tests.public else tests.threshold(test)
        total, reach = float(sum(each.count for each in met)), NORMAL_95 * deviation * sqrt(len(met))
        too_large = _of_zeros([each.count for each in met], deviation) if tests.public else 0.0
        near = not tests.public and named is None and any(each.count < threshold + _CLEAR * deviation for each in met)
        high: float | None = total + len(missing) * threshold + NORMAL_95 * deviation * sqrt(len(met) + len(missing))
        if not tests.public and (named is None or any(reason is not None for reason in missing)):
            high = None
        known = bool(met) or not missing
        return CountAnswer(
            estimate=total if known else None,
            standard_error=None if not known or near or too_large > _SLIGHT * reach else deviation * sqrt(len(met)),
            low=max(0.0, total - too_large - reach),
            high=high,
            pending=len(missing) / len(named) if named else 0.0,
        )

    def _named(self, where: Where) -> Mapping[Name, Reason | None] | None:
        """Return the keys that a condition names, with why one is not counted; None where it names none.

        Raises: QueryError for a key that no record can have.
        """
        atoms = where.parts if isinstance(where, Both) else (where,)
        asked: dict[str, set[Scalar]] = {}
        for atom in atoms:
            if not isinstance(atom, Atom) or atom.op not in ("=", "in"):
                return None
            given = set(atom.values)
            asked[atom.field] = asked[atom.field] & given if atom.field in asked else given
        if asked.keys() != set(self._domain.fields) or self._domain.grid is not None:
            return None
        keys: dict[Name, Reason | None] = {}
        for values in product(*(asked[name] for name in self._domain.fields)):
            columns = {name: [value] for name, value in zip(self._domain.fields, values, strict=True)}
            numbers = dict.fromkeys(self._domain.number_fields, np.zeros(1))
            _, reasons = self._domain.encode(Columns(numbers, {}, np.ones(1, np.int8), columns))
            reason = Reason(int(reasons[0])) if reasons[0] else None
            if reason not in (None, Reason.DROPPED):
                shown = ", ".join(map(repr, values))
                raise QueryError(
                    f"no record can have the key {shown} in this stream, so its count would always be 0. Fix: another "
                    "value: of a public list one of it, else no longer than max_key_bytes."
                )
            keys[name_of(values)] = reason
        return keys


def _composed(where: Where) -> Where:
    """Return a condition with its texts as keys have them."""
    if isinstance(where, Atom):
        parts = ((each, written(each)) for each in where.values)
        return replace(where, values=tuple(read(part) if isinstance(part, bytes) else each for each, part in parts))
    if isinstance(where, Not):
        return Not(_composed(where.part))
    inner = tuple(map(_composed, where.parts))
    return Either(inner) if isinstance(where, Either) else Both(inner)


def _of_zeros(counts: Sequence[int], deviation: float) -> float:
    """Return by how much a sum of several counts is too large at most, since those below 0 are said as 0."""
    if len(counts) < 2:
        return 0.0
    least = np.maximum(np.array(counts) / deviation + ndtri(_UNSURE / len(counts)), 0.0)
    return deviation * float((np.exp(-(least**2) / 2) / sqrt(2 * pi) - least * ndtr(-least)).sum())
