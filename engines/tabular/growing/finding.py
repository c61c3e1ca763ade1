"""Values that nobody listed, found by the tests of engine `keys`: what is public of them, and the finder of a stream.

Inserts of each value are counted in a private table and tested at J public times of a period, with one noisy counter a
value (`engines.keys.selection`). A value whose noisy count comes to the threshold of its test is found: from that step
on its events are counted under a code of its own. Then a period begins anew, with an empty table: where the bound on
users renews, with each of its periods, and else after J tests, which are twice as far apart in the next period, as
blocks grow with the table, up to a period as long as a ttl. No events of different periods are in one draw, so periods
cost nothing beside each other.
Guarantee: theorem D of docs/guarantee.md. A unit of m events may have all of them in one value: a counter has
    mu^2/m^2 for each, and a threshold stands as far above `least_count` as m events of one unit can take a value, or
    one event in each of m values, whichever is further: what lies between is below, since both are convex.
Units: counts are events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from engines.core.contract import State
from engines.core.noise import NoiseSource, aggregate
from engines.core.noise.listing import Listed, listing_mechanism
from engines.core.noise.witness import ListedLaw
from engines.core.state import reading
from engines.keys.hashes import KeyHash
from engines.keys.selection import RESOLUTION, SURE, NormalisedCounter, exceeded, short, shown
from engines.keys.table import PeriodTable
from engines.tabular.domain import OTHER, Discovered, TableDomain
from schemas.arrays import IntArray, KeyArray
from schemas.blocks import Folded
from schemas.errors import EngineInputError


@dataclass(frozen=True, kw_only=True)
class FindingRule:
    """Public constants of the tests. Attributes:

    mu_squared: of one event. delta: of values that are found though one unit decides whether enough records have them.
    changes: events of a unit at most. tests: J, of a period at most.
    period: steps of a period of the bound; None: periods grow. longest: steps of a period that grows at most.
    least_count: records that a value must truly have. max_keys: distinct values of a period at most; it may be raised
        while a stream runs, or a full table could not be helped.

    >>> finding = FindingRule(mu_squared=Fraction(1, 100), delta=1e-7, changes=2, tests=10)
    >>> [finding.test_at(step) for step in (0, 9, 10, 11, 29, 30)]
    [1, 10, None, 1, 10, None]
    >>> round(finding.threshold(10)), round(sqrt(finding.counter.variance(10)), 1)
    (95, 15.6)
    """

    written_as: ClassVar[str] = "FindingRule"

    mu_squared: Fraction
    delta: float
    changes: int
    tests: int
    period: int | None = None
    longest: int | None = None
    least_count: int = 5
    max_keys: int = field(default=1_000_000, repr=False)  # no part of the identity, which is made of what repr shows

    def __post_init__(self) -> None:
        _ = self.thresholds

    @cached_property
    def counter(self) -> NormalisedCounter:
        """Counter of each value."""
        return NormalisedCounter(mu_squared=short(self.mu_squared), horizon=self.tests)

    @cached_property
    def thresholds(self) -> tuple[int, ...]:
        """Threshold of each test, in lattice steps."""
        each = self.delta * SURE / self.tests
        spread, one = exceeded(self.counter, each / self.changes), exceeded(self.counter, each)
        least = self.least_count - 1
        return tuple(
            max((least + 1) * RESOLUTION + many, (least + self.changes) * RESOLUTION + few)
            for many, few in zip(spread, one, strict=True)
        )

    def threshold(self, test: int) -> float:
        """Return the threshold of a test, from 1, in events."""
        return self.thresholds[test - 1] / RESOLUTION

    def begin(self, step: int) -> tuple[int, int]:
        """Return the first step of a step's period, and the steps from one of its tests to the next."""
        if self.period is not None:
            return step // self.period * self.period, self.period // self.tests
        first, every = 0, 1
        while step >= first + self.tests * every and 2 * every * self.tests <= (self.longest or 1 << 62):
            first, every = first + self.tests * every, 2 * every
        return first + (step - first) // (self.tests * every) * self.tests * every, every

    def test_at(self, step: int) -> int | None:
        """Return the number of a step's test in its period, from 1; None where nothing is tested. The last is at the
        period's end.
        """
        test, rest = divmod(self._since(step), self.begin(step)[1])
        return test if test > 0 and not rest else None

    def tested_by(self, step: int) -> int:
        """Return the number of tests of a step's period up to it."""
        return max(self._since(step) // self.begin(step)[1], 0)

    def _since(self, step: int) -> int:
        first, every = self.begin(step)
        longer = 0 if self.period is None else self.period - every * self.tests
        return step + 1 - first - longer

    def law(self, test: int, every: int) -> ListedLaw:
        """Return the law of a test."""
        return ListedLaw(self.counter, test, self.thresholds[test - 1], self.least_count, every)


@aggregate
def texts_of(events: Folded, domain: TableDomain) -> Folded:
    """Return the values that are not found yet of a step's events, with how many events have each. PRIVATE.

    An event is in one of them or in none: null has no text, and what stands for other values is none.
    """
    assert domain.discovered is not None
    index, attribute = domain.discovered
    texts = events.keys[:, domain.keys.words :]
    unknown = (domain.codes(events.keys)[:, index] == OTHER) & (texts != attribute.nameless).any(axis=1)
    return Folded.from_keys(texts[unknown], events.counts[unknown])


@dataclass(frozen=True, slots=True, eq=False)
class Finder:
    """What a stream knows of its values. A value: `after` returns the next one. Attributes:

    table: of the period, PRIVATE. found: `(found, words)` texts in the order of their codes, public. full: as many are
    found as may be: nothing is counted any more.
    """

    finding: FindingRule
    table: PeriodTable
    found: KeyArray
    full: bool = False

    @staticmethod
    def empty(finding: FindingRule, attribute: Discovered) -> Finder:
        """Return what is known before the first step."""
        return Finder(finding, _no_table(attribute), np.zeros((0, attribute.words), np.uint64))

    def after(self, events: Folded, domain: TableDomain, step: int, noise: NoiseSource) -> tuple[Finder, Tested | None]:
        """Count the values of a step's PRIVATE events, and test all of them where it is time.

        Args: domain: with all values that are found so far.
        Raises: EngineInputError if the table is full; it says nothing of what is in it.
        """
        assert domain.discovered is not None
        finding, (_, attribute) = self.finding, domain.discovered
        first, every = finding.begin(step)
        table = self.table
        if step == first:
            table = PeriodTable.empty(KeyHash.drawn(attribute.words, noise.child("hash")))
        try:
            table = table.added(texts_of(events, domain), least=finding.least_count, most=finding.max_keys)
        except EngineInputError:
            raise EngineInputError(
                f'the table of values of "{attribute.name}" is full: the step would need more than max_keys = '
                f"{finding.max_keys:,}. Nothing is lost, and nothing was released. Fix: raise max_keys of the attribute"
            ) from None
        test = finding.test_at(step)
        if test is None:
            return replace(self, table=table), None
        listed, table = listing_mechanism(table, finding.law(test, every), noise.child("test"))
        new = _first(listed, test, attribute.most - len(self.found))
        found = np.concatenate([self.found, listed.keys[new]])
        full = len(found) == attribute.most
        after = Finder(finding, _no_table(attribute) if full else table, found, full)
        return after, Tested(test, attribute.name, attribute.texts(listed.keys[new]), listed.counts[new])

    def arrays(self) -> State:
        return {"found/texts": self.found.copy(), **self.table.arrays()}

    def restored(self, state: State, attribute: Discovered, *, steps: int) -> Finder:
        """Return what is known after so many steps. Raises: EngineInputError if arrays are missing or do not fit."""
        with reading():
            found = state["found/texts"]
        if found.ndim != 2 or found.shape[1] != attribute.words or found.dtype != np.uint64:
            raise EngineInputError("state has found values of another width")
        full = len(found) == attribute.most
        tests = 0 if full or not steps else self.finding.tested_by(steps - 1)
        table = PeriodTable.of(state, words=attribute.words, tests=tests, least=self.finding.least_count)
        return Finder(self.finding, table, found.copy(), full)


def _no_table(attribute: Discovered) -> PeriodTable:
    return PeriodTable.empty(KeyHash.none(attribute.words))


def _first(listed: Listed, test: int, room: int) -> IntArray:
    """Return the rows of values that are found at this test, the largest noisy counts first, as many as there is room
    for. Those that were found before are in `listed`, too.
    """
    new = np.flatnonzero(listed.found == test)
    return new[np.argsort(-listed.counts[new], kind="stable")[:room]]


@dataclass(frozen=True, slots=True, eq=False)
class Tested:
    """What a test found. Public. Attributes: values: found now, in the order of their codes. sums: noisy, of each."""

    test: int
    attribute: str
    values: Sequence[str]
    sums: IntArray

    def json(self, finding: FindingRule) -> dict[str, Any]:
        """Return the test as a measurement."""
        counts = (self.sums + RESOLUTION // 2) // RESOLUTION
        return {
            "attribute": self.attribute,
            "test": self.test,
            "threshold": shown(finding.threshold(self.test)),
            "error": shown(sqrt(finding.counter.variance(self.test))),
            "found": [{"value": v, "count": c} for v, c in zip(self.values, counts.tolist(), strict=True)],
        }
