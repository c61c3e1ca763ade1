"""Coupled tests of private tables of keys: which noise makes a neighbouring table let out the same sums, and its price.

A key that both tables test has the same noisy sums in both: where a person is in one of them alone, noise moves by the
column of the counter's strategy. A key that one table alone tests must not be listed there: that it is, is the event
that part of delta is for.
Source: the proof of theorem K (docs/guarantee.md).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from engines.core.accounting.lattice import dominating
from engines.core.noise.listing import Listed
from engines.core.noise.witness import ListedLaw
from schemas.arrays import IntArray
from schemas.blocks import Folded

NOISES = (1, -1, 1000, 2**40, -(2**40))
PEOPLE = (-1, 0, 1, 1000)
"""Beside the least count."""
Totals = tuple[int, ...]
"""Of a key: people, then sums of what they bring."""


def expected_listing(law: ListedLaw, table: Any, nodes: Sequence[int]) -> tuple[Listed, Any] | None:
    """Return what a test lets out, key by key in Python's integers; None where another number of nodes was drawn, or
    where other keys were tested than those of enough people.

    Args: nodes: what was drawn, test by test.
    """
    given = iter(nodes)
    ids, had = table.ids(), len(table.found)
    totals = dict(zip(ids, map(tuple, table.totals.T.tolist()), strict=True))
    if totals != {key: each for key, each in totals_of(table).items() if each[0] >= law.least_count}:
        return None
    rows = range(len(ids))
    new = len(law.counters) * (law.test * len(rows) - (law.test - 1) * had)
    if new != len(nodes):
        return None
    noise, sums = list[list[list[int]]](), list[list[int]]()
    for at, counter in enumerate(law.counters):
        strategy, one = counter.strategy(law.test).tolist(), counter.resolution
        its: list[list[int]] = [*table.noise[at].T.tolist(), *([] for _ in rows[had:])]
        for test in range(law.test):
            for row in rows:
                if len(its[row]) == test:
                    moved = sum(s * w for s, w in zip(strategy[test], its[row], strict=False))
                    its[row].append(next(given) - (moved + one // 2) // one)
        noise.append(its)
        sums.append([one * totals[key][at] + sum(each) for key, each in zip(ids, its, strict=True)])
    before = [*table.found.tolist(), *(0 for _ in rows[had:])]
    enough = [law.threshold is None or sums[0][row] >= law.threshold for row in rows]
    found = [before[row] or (law.test if enough[row] else 0) for row in rows]
    out = sorted((row for row in rows if found[row]), key=lambda row: table.keys[row].tolist())
    shown = np.array([[each[row] for row in out] for each in sums], np.int64).reshape(len(sums), len(out))
    made = np.array(noise, np.int64).reshape(len(sums), len(rows), law.test).transpose(0, 2, 1)
    tests = np.array(found, np.int64)
    return Listed(table.keys[out], shown, tests[out]), table.tested(made, tests)


def same_listing(one: tuple[Listed, Any], other: tuple[Listed, Any] | None) -> bool:
    """Whether two tests let out the same, and remember the same."""
    return other is not None and one[0] == other[0] and same_tables(one[1], other[1])


def same_tables(one: Any, other: Any) -> bool:
    """Whether two tables are equal."""
    names = ("keys", "ends", "noise", "found")
    return totals_of(one) == totals_of(other) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in names
    )


def listing_probes(law: ListedLaw, table: Any, numbers: Iterable[int]) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    """Yield tables of a few keys that were never tested, and noise, by number: keys of too few people beside all noise
    that a sampler can give are among them.
    """
    every = list(product(PEOPLE, NOISES))
    for number in numbers:
        people, noises = np.array([every[(number + at) % len(every)] for at in range(4)], np.int64).T
        keys = np.zeros((4, table.hash.words + len(law.sums)), np.uint64)
        keys[:, 0] = np.arange(1, 5)
        # Of nothing to as much as each may bring.
        keys[:, table.hash.words :] = 2 * table.most * np.arange(4)[:, np.newaxis] // 3
        counts = people + law.least_count
        come = counts > 0
        events = Folded(keys[come], counts[come])
        fresh = table.empty(table.hash, len(law.sums)).added(events, least=law.least_count, most=len(keys))
        none = np.zeros((len(law.counters), law.test - 1, 0), np.int64)
        fresh = replace(fresh, ends=np.zeros(law.test - 1, np.int64), noise=none)
        nodes = np.tile(noises[come & (counts >= law.least_count)], law.test * len(law.counters))
        yield fresh, partial(_giving, nodes)


def _giving(nodes: IntArray, _: Any) -> IntArray:
    return nodes


@dataclass(slots=True)
class CoupledKeys:
    """The recorded tests of a run, period by period, and the tables that its neighbour has shown so far.

    Args: recorded: (step, law, table before the noise, table after) of each test.
    """

    recorded: Sequence[tuple[int, ListedLaw, Any, Any]]
    _ours: dict[tuple[int, int], Mapping[bytes, Totals]] = field(default_factory=dict)
    _theirs: dict[tuple[int, int], Mapping[bytes, Totals]] = field(default_factory=dict)
    _noise: dict[int, dict[bytes, IntArray]] = field(default_factory=lambda: defaultdict(dict))

    def __post_init__(self) -> None:
        for step, law, before, after in self.recorded:
            begin = law.begin(step)
            self._theirs[begin, law.test] = totals_of(before)
            self._noise[begin] |= dict(zip(after.ids(), after.noise.transpose(2, 0, 1), strict=True))

    def nodes(self, step: int, law: ListedLaw, table: Any) -> IntArray:
        """Return the noise that gives each key the sums of the recorded run: none where that never drew any."""
        begin, ids = law.begin(step), table.ids()
        self._ours[begin, law.test] = totals_of(table)
        _, tests, had = table.noise.shape
        noise = np.zeros((len(ids), len(law.counters), law.test), np.int64)
        noise[:had, :, :tests] = table.noise.transpose(2, 0, 1)
        recorded = self._noise[begin]
        rows = [row for row, key in enumerate(ids) if key in recorded and recorded[key].shape[1] >= law.test]
        for row, shift in zip(rows, self._shifts(begin, law, [ids[row] for row in rows]), strict=True):
            noise[row] = recorded[ids[row]][:, : law.test] + shift
        fresh = np.ones((law.test, len(ids)), np.bool_)
        fresh[:tests, :had] = False
        return np.concatenate([counter.nodes(noise[:, at]).T[fresh] for at, counter in enumerate(law.counters)])

    def _shifts(self, begin: int, law: ListedLaw, keys: Sequence[bytes]) -> IntArray:
        """Return by how much the noise of each key's increments moves beside the totals of this run: `(keys, counters,
        tests)`.
        """
        none, tests = (0,) * len(law.counters), range(1, law.test + 1)
        totals = [
            [[side[begin, test].get(key, none) for test in tests] for key in keys]
            for side in (self._theirs, self._ours)
        ]
        theirs, ours = np.array(totals, np.int64).reshape(2, len(keys), law.test, len(law.counters))
        moved: IntArray = law.counter.resolution * np.diff(theirs - ours, axis=1, prepend=0)
        return moved.transpose(0, 2, 1)


def totals_of(table: Any) -> dict[bytes, Totals]:
    """Return the totals of a table by the hash of each key: of two runs of the same seeds it is the same one."""
    totals: dict[bytes, Totals] = table.by_hash()
    return totals


def failing(laws: Iterable[ListedLaw], alone: int = 1) -> float:
    """Return the probability that noise takes a key over a threshold at one of these tests, of which a unit has so
    many events, and without which it would have one less than `least_count`.

    At most, for one key: the noise of a sum is nearly normal, and probabilities of tests are added up. Without
    a threshold it is certain: then keys must be public.
    """
    return math.fsum(_failing(law, alone) for law in set(laws))


def _failing(law: ListedLaw, alone: int) -> float:
    if law.threshold is None:
        return 1.0
    decoder = law.counter.decoder(law.test)[-1]
    deviation = math.sqrt(decoder**2 @ np.array([float(each) for each in law.counter.node_noise(law.test)]))
    above = law.threshold / law.counter.resolution - (law.least_count - 1 + alone)
    return math.erfc(above / deviation / math.sqrt(2)) / 2


@dataclass(slots=True)
class MovedKeys:
    """By how much the totals of each key differ in two runs, test by test."""

    _moved: dict[tuple[Any, int, bytes], dict[int, int]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, step: int, law: ListedLaw, first: Any, second: Any) -> None:
        """Take in a test of both."""
        one, other = totals_of(first), totals_of(second)
        none = (0,) * len(law.counters)
        for key in one.keys() | other.keys():
            for at, (a, b) in enumerate(zip(one.get(key, none), other.get(key, none), strict=True)):
                place = law.counters[at], law.begin(step), key
                # A sum of values can be what it was again.
                if a != b or place in self._moved:
                    self._moved[place][law.test] = a - b

    @property
    def mu_squared(self) -> Fraction:
        """Mu squared of all keys: shifts of a key's tests add up, those of different keys are at right angles."""
        return sum((_mu_squared(counter, moved) for (counter, _, _), moved in self._moved.items()), Fraction(0))


def _mu_squared(counter: Any, moved: Mapping[int, int]) -> Fraction:
    horizon = counter.horizon
    strategy, noise = counter.strategy(horizon), counter.node_noise(horizon)
    increments = np.zeros(horizon, np.int64)
    sums = [moved.get(test, 0) for test in range(1, max(moved) + 1)]
    increments[: len(sums)] = np.diff([0, *sums])
    shifts = (strategy @ increments).tolist()
    return sum((shift**2 / dominating(each) for shift, each in zip(shifts, noise, strict=True) if shift), Fraction(0))
