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


def expected_listing(law: ListedLaw, table: Any, nodes: Sequence[int]) -> tuple[Listed, Any] | None:
    """Return what a test lets out, key by key in Python's integers; None where another number of nodes was drawn, or
    where other keys were tested than those of enough people.

    Args: nodes: what was drawn, test by test.
    """
    counter, given = law.counter, iter(nodes)
    strategy, one = counter.strategy(law.test).tolist(), counter.resolution
    people = people_of(table)
    ids, counts, had = table.ids(), table.counts.tolist(), len(table.found)
    if dict(zip(ids, counts, strict=True)) != {key: n for key, n in people.items() if n >= law.least_count}:
        return None
    rows = range(len(counts))
    noise: list[list[int]] = [*table.noise.T.tolist(), *([] for _ in rows[had:])]
    if sum(law.test - len(each) for each in noise) != len(nodes):
        return None
    for test in range(law.test):
        for row in rows:
            if len(noise[row]) == test:
                moved = sum(s * w for s, w in zip(strategy[test], noise[row], strict=False))
                noise[row].append(next(given) - (moved + one // 2) // one)
    sums = [one * counts[row] + sum(noise[row]) for row in rows]
    before = [*table.found.tolist(), *(0 for _ in rows[had:])]
    found = [before[row] or (law.test if law.threshold is None or sums[row] >= law.threshold else 0) for row in rows]
    out = sorted((row for row in rows if found[row]), key=lambda row: table.keys[row].tolist())
    shown = (np.array([each[row] for row in out], np.int64) for each in (sums, found))
    made = np.array(noise, np.int64).reshape(len(rows), law.test).T
    return Listed(table.keys[out], *shown), table.tested(made, np.array(found, np.int64))


def same_listing(one: tuple[Listed, Any], other: tuple[Listed, Any] | None) -> bool:
    """Whether two tests let out the same, and remember the same."""
    return other is not None and one[0] == other[0] and same_tables(one[1], other[1])


def same_tables(one: Any, other: Any) -> bool:
    """Whether two tables are equal."""
    names = ("keys", "ends", "noise", "found")
    return people_of(one) == people_of(other) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in names
    )


def listing_probes(law: ListedLaw, table: Any, numbers: Iterable[int]) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    """Yield tables of a few keys that were never tested, and noise, by number: keys of too few people beside all noise
    that a sampler can give are among them.
    """
    every = list(product(PEOPLE, NOISES))
    for number in numbers:
        people, noises = np.array([every[(number + at) % len(every)] for at in range(4)], np.int64).T
        keys = np.zeros((4, table.keys.shape[1]), np.uint64)
        keys[:, 0] = np.arange(1, 5)
        counts = people + law.least_count
        come = counts > 0
        events = Folded(keys[come], counts[come])
        fresh = table.empty(table.hash).added(events, least=law.least_count, most=len(keys))
        none = np.zeros((law.test - 1, 0), np.int64)
        fresh = replace(fresh, ends=np.zeros(law.test - 1, np.int64), noise=none)
        nodes = np.tile(noises[come & (counts >= law.least_count)], law.test)
        yield fresh, partial(_giving, nodes)


def _giving(nodes: IntArray, _: Any) -> IntArray:
    return nodes


@dataclass(slots=True)
class CoupledKeys:
    """The recorded tests of a run, period by period, and the tables that its neighbour has shown so far.

    Args: recorded: (step, law, table before the noise, table after) of each test.
    """

    recorded: Sequence[tuple[int, ListedLaw, Any, Any]]
    _people: dict[tuple[int, int], Mapping[bytes, int]] = field(default_factory=dict)
    _theirs: dict[tuple[int, int], Mapping[bytes, int]] = field(default_factory=dict)
    _noise: dict[int, dict[bytes, IntArray]] = field(default_factory=lambda: defaultdict(dict))

    def __post_init__(self) -> None:
        for step, law, before, after in self.recorded:
            begin = law.begin(step)
            self._theirs[begin, law.test] = people_of(before)
            self._noise[begin] |= dict(zip(after.ids(), after.noise.T, strict=True))

    def nodes(self, step: int, law: ListedLaw, table: Any) -> IntArray:
        """Return the noise that gives each key the sums of the recorded run: none where that never drew any."""
        begin, counter = law.begin(step), law.counter
        self._people[begin, law.test] = people_of(table)
        told = dict(enumerate(table.noise.T))
        drawn: dict[tuple[int, int], int] = {}
        for row, key in enumerate(table.ids()):
            had = told.get(row, np.zeros(0, np.int64))
            noise = self._shifted(begin, law, key)
            noise = np.concatenate([had, np.zeros(law.test - had.size, np.int64)]) if noise is None else noise
            nodes = counter.nodes(noise[np.newaxis])[0]
            drawn |= {(test, row): int(nodes[test]) for test in range(had.size, law.test)}
        return np.array([drawn[each] for each in sorted(drawn)], np.int64)

    def _shifted(self, begin: int, law: ListedLaw, key: bytes) -> IntArray | None:
        """Return the noise of a key's increments beside the people of this run; None: the recorded run has none."""
        noise = self._noise[begin].get(key)
        if noise is None or noise.size < law.test:
            return None
        tests = range(1, law.test + 1)
        moved = [self._theirs[begin, t].get(key, 0) - self._people[begin, t].get(key, 0) for t in tests]
        shifted: IntArray = noise[: law.test] + law.counter.resolution * np.diff([0, *moved])
        return shifted


def people_of(table: Any) -> dict[bytes, int]:
    """Return the counts of a table by the hash of each key: of two runs of the same seeds it is the same one."""
    people: dict[bytes, int] = table.people()
    return people


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
    deviation = math.sqrt(decoder**2 @ np.array([float(each) for each in law.nodes]))
    above = law.threshold / law.counter.resolution - (law.least_count - 1 + alone)
    return math.erfc(above / deviation / math.sqrt(2)) / 2


@dataclass(slots=True)
class MovedKeys:
    """By how much the people of each key differ in two runs, test by test."""

    _moved: dict[tuple[Any, int, bytes], dict[int, int]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, step: int, law: ListedLaw, first: Any, second: Any) -> None:
        """Take in a test of both."""
        one, other = people_of(first), people_of(second)
        for key in one.keys() | other.keys():
            moved = one.get(key, 0) - other.get(key, 0)
            if moved:
                self._moved[law.counter, law.begin(step), key][law.test] = moved

    @property
    def mu_squared(self) -> Fraction:
        """Of all keys together: shifts of a key's tests add up, those of different keys are at right angles."""
        return sum((_mu_squared(counter, moved) for (counter, _, _), moved in self._moved.items()), Fraction(0))


def _mu_squared(counter: Any, moved: Mapping[int, int]) -> Fraction:
    horizon = counter.horizon
    strategy, noise = counter.strategy(horizon), counter.node_noise(horizon)
    increments = np.zeros(horizon, np.int64)
    sums = [moved.get(test, 0) for test in range(1, max(moved) + 1)]
    increments[: len(sums)] = np.diff([0, *sums])
    shifts = (strategy @ increments).tolist()
    return sum((shift**2 / dominating(each) for shift, each in zip(shifts, noise, strict=True) if shift), Fraction(0))
