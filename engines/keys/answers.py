"""How many people have a key, or the keys that meet a condition, from the records that list keys.

A record is itself a measurement: the count of a key in its period so far, whose noise is public. Keys have noise of
their own each, so variances add up. What is not known is said:

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
    NORMAL_95,
    RECORDS,
    Asked,
    CountAnswer,
    CountQuestion,
    LargestKey,
    Measured,
    QueryError,
)
from engines.core.answers.where import Atom, Both, Either, Not, Where, holds
from engines.core.contract import Columns
from engines.keys.build import domain, selection
from engines.keys.domain import KeysDomain, Scalar, read, written
from schemas.config import Stream
from schemas.config.keys import KeysDomainSection
from schemas.events import Reason

_ROUNDED = 1 / 12
"""Variance of what is rounded to whole people."""
_CLEAR = 2.0
"""Standard errors above the threshold from which on noise had little part in what is listed."""
_SLIGHT = 0.05
_UNSURE = 1e-3
"""Probability that one of several counts is further from the truth than is taken for granted."""
Key = tuple[bytes, ...]


def answers(stream: Stream, measured: Measured, latest: int) -> KeyAnswers:
    return KeyAnswers(stream, measured, latest)


@dataclass(frozen=True, slots=True)
class _Listed:
    values: tuple[Scalar, ...]
    count: int
    found: int


class KeyAnswers:
    """Implements `engines.core.answers.contract.KeysAnswerer`. An answer is of the period of the question's last step,
    from its begin on: how many of the people of two periods are the same, nobody knows.
    """

    series = ()
    regions = False

    def __init__(self, stream: Stream, measured: Measured, latest: int) -> None:
        section = stream.domain
        assert isinstance(section, KeysDomainSection)
        self._domain: KeysDomain = domain(stream)
        self._selection, self._renews = selection(stream), stream.period_steps is not None
        public = section.public_keys
        self.fields: Mapping[str, Asked] = {
            name: Asked(kinds, tuple(dict.fromkeys(values[at] for values in public)) if public else None)
            for at, (name, kinds) in enumerate(self._domain.value_fields.items())
        }
        self.settled = latest
        self._steps: dict[int, Mapping[Key, _Listed]] = {
            step: self._of_records(told[RECORDS]) for step, told in measured if RECORDS in told
        }

    def answer(self, question: CountQuestion) -> CountAnswer:
        """See `Answerer`."""
        if question.region is not None:
            raise QueryError("keys have no places. Fix: a condition on their fields.")
        begin, last = self._period(question.last)
        where = None if question.where is None else _composed(question.where)
        named = None if where is None else self._named(where)
        listed = self._steps.get(last, {})
        met = [
            each for key, each in listed.items() if self._meets(each, where, None if named is None else key in named)
        ]
        return replace(self._summed(last, met, named, listed), since=begin)

    def largest(self, last: int, most: int, where: Where | None) -> Sequence[LargestKey]:
        """See `KeysAnswerer`."""
        begin, last = self._period(last)
        where = None if where is None else _composed(where)
        met = [each for each in self._steps.get(last, {}).values() if self._meets(each, where, None)]
        met.sort(key=lambda each: -each.count)
        return [
            LargestKey(
                dict(zip(self._domain.fields, each.values, strict=True)),
                each.found,
                replace(self._single(last, each.count), since=begin),
            )
            for each in met[:most]
        ]

    def note(self, last: int) -> str:
        """See `KeysAnswerer`."""
        begin, last = self._period(last)
        told = f"people of steps {begin} to {last}, each counted once for each key. {len(self._steps.get(last, {})):,}"
        tests = self._selection
        if tests.public:
            return f"{told} keys are public, and each has its count"
        return (
            f"{told} keys are listed: at step {last} a key needs {tests.threshold(last - begin + 1):,.0f} people for "
            f"even odds, and {tests.least_count:,} in any case"
        )

    def _period(self, last: int) -> tuple[int, int]:
        """Return the first step of a step's period, and the last step whose list holds there."""
        tests = self._selection.tests
        if not self._renews:
            return 0, min(last, tests - 1)
        return last // tests * tests, last

    def _of_records(self, records: Sequence[Mapping[str, Any]]) -> Mapping[Key, _Listed]:
        found = {}
        for record in records:
            values = tuple(record[name] for name in self._domain.fields)
            key = tuple(part for part in map(written, values) if isinstance(part, bytes))
            found[key] = _Listed(values, int(record["count"]), int(record["found"]))
        return found

    def _meets(self, each: _Listed, where: Where | None, named: bool | None) -> bool:
        if named is not None or where is None:
            return named is not False
        return holds(where, dict(zip(self._domain.fields, each.values, strict=True)))

    def _deviation(self, last: int) -> float:
        return sqrt(self._selection.counter.variance(last % self._selection.tests + 1) + _ROUNDED)

    def _single(self, last: int, count: int) -> CountAnswer:
        deviation = self._deviation(last)
        reach = NORMAL_95 * deviation
        return CountAnswer(float(count), deviation, max(0.0, count - reach), count + reach)

    def _summed(
        self,
        last: int,
        met: Sequence[_Listed],
        named: Mapping[Key, Reason | None] | None,
        listed: Mapping[Key, _Listed],
    ) -> CountAnswer:
        tests, deviation = self._selection, self._deviation(last)
        missing = [] if named is None else [reason for key, reason in named.items() if key not in listed]
        if len(met) == 1 and not missing and (named is not None or tests.public):
            return self._single(last, met[0].count)
        threshold = 0.0 if tests.public else tests.threshold(last % tests.tests + 1)
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

    def _named(self, where: Where) -> Mapping[Key, Reason | None] | None:
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
        if asked.keys() != set(self._domain.fields):
            return None
        keys: dict[Key, Reason | None] = {}
        for values in product(*(asked[name] for name in self._domain.fields)):
            parts = tuple(part for part in map(written, values) if isinstance(part, bytes))
            columns = {name: [value] for name, value in zip(self._domain.fields, values, strict=True)}
            _, reasons = self._domain.encode(Columns({}, {}, np.ones(1, np.int8), columns))
            reason = Reason(int(reasons[0])) if reasons[0] else None
            if reason not in (None, Reason.DROPPED):
                shown = ", ".join(map(repr, values))
                raise QueryError(
                    f"no record can have the key {shown} in this stream, so its count would always be 0. Fix: another "
                    "value: of a public list one of it, else no longer than max_key_bytes."
                )
            keys[parts] = reason
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
