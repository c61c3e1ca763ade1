"""Theorem K on lattices so coarse that every outcome of the code that lists keys can be counted, and by an audit.

Exact laws: no false alarms. The audit: below 10^-6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import exp
from typing import Any, TypeVar

import numpy as np
import pytest

from benchmarks.keys.methods import first_listed
from engines.core.noise import DiscreteGaussian, NoiseSource, listing, seeded
from engines.core.noise.listing import listing_mechanism
from engines.core.noise.witness import Drawn, Law, ListedLaw, WitnessedSource
from engines.keys import selection as module
from engines.keys.hashes import KeyHash
from engines.keys.selection import KeySelection, NormalisedCounter
from engines.keys.table import LEVELS, PeriodTable
from schemas.arrays import FloatArray, IntArray, WordArray
from schemas.blocks import Folded
from tests.couple.plants import edited

T = TypeVar("T")
Outcomes = dict[tuple[float, ...], float]
"""What is seen, and its probability."""
People = tuple[int, ...]
"""Of one key, those who came to it before each test."""

RESOLUTION, LEAST = 2, 2
SIGMA_SQUARED = (Fraction(3), Fraction(5, 2), Fraction(2))
FAR = 8
"""Noise beyond has a probability below 10^-5, and is left out on both sides."""
UNSEEN = 1e9


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two lattice steps to a person, and hardly more noise."""
    monkeypatch.setattr(module, "RESOLUTION", RESOLUTION)
    monkeypatch.setattr(NormalisedCounter, "node_noise", lambda self, t: SIGMA_SQUARED[:t])
    module._factor.cache_clear()
    yield
    module._factor.cache_clear()


@dataclass(frozen=True, slots=True)
class Given:
    """A witness that gives noise, in place of a sampler."""

    nodes: IntArray

    def released(self, source: WitnessedSource, law: Law, private: Any, mechanism: Callable[[Any], T]) -> T:
        return mechanism(private)

    def drawn(self, source: WitnessedSource, law: Drawn, sample: Callable[[NoiseSource], T]) -> Any:
        return self.nodes

    def gave(self, source: WitnessedSource, words: WordArray) -> None:
        raise AssertionError("all noise is given")


def noises(tests: int) -> tuple[IntArray, FloatArray]:
    """All noise of the nodes of a key, `(outcomes, tests)`, and its probabilities."""
    values = np.arange(-FAR, FAR + 1)
    grid = np.array(list(product(values, repeat=tests)), np.int64)
    each = [np.array([DiscreteGaussian(s).pmf(int(v)) for v in values]) for s in SIGMA_SQUARED[:tests]]
    return grid, np.prod([pmf[grid[:, test] + FAR] for test, pmf in enumerate(each)], axis=0)


@dataclass(frozen=True, slots=True)
class Period:
    """The tests of a period. Args: thresholds: in lattice steps. least: people that a key must truly have."""

    thresholds: tuple[int, ...]
    least: int = LEAST

    @property
    def number(self) -> int:
        return len(self.thresholds)

    @property
    def counter(self) -> NormalisedCounter:
        return NormalisedCounter(mu_squared=Fraction(1), horizon=self.number)

    def seen(self, people: People) -> Outcomes:
        """Return what is listed of one key: its sum at each test from the one on at which it is listed.

        Each outcome of its noise is a key of its own in one table.
        """
        grid, probabilities = noises(self.number)
        table = PeriodTable.empty(KeyHash.drawn(1, seeded(0)))
        rows = np.arange(1, len(grid) + 1, dtype=np.uint64)[:, np.newaxis]
        sums = np.full(grid.shape, UNSEEN)
        drawn = 0
        for test, came in enumerate(people, start=1):
            if came:
                table = table.added(Folded(rows, np.full(len(grid), came)), least=self.least, most=len(grid))
            order = table.keys[:, 0].astype(np.int64) - 1
            nodes = grid[order, drawn:test].T.ravel()
            drawn = test if order.size else drawn
            law = ListedLaw(self.counter, test, self.thresholds[test - 1], self.least)
            listed, table = listing_mechanism(table, law, WitnessedSource(Given(nodes), bytes(32), "s", test))
            sums[listed.keys[:, 0].astype(np.int64) - 1, test - 1] = listed.counts
        found, places = np.unique(sums, axis=0, return_inverse=True)
        return dict(zip(map(tuple, found.tolist()), np.bincount(places.ravel(), probabilities).tolist(), strict=True))

    def measured(self, people: People) -> Outcomes:
        """Return all nodes of a key, as if it were always listed: what its noise alone lets be told."""
        grid, probabilities = noises(self.number)
        nodes = self.counter.strategy(self.number) @ np.array(people) + grid
        return dict(zip(map(tuple, nodes.tolist()), probabilities.tolist(), strict=True))

    def failing(self, others: People, at: int) -> float:
        """Return the probability at most that a key is listed while the user alone brings its people to `least`."""
        grid, probabilities = noises(self.number)
        noise = np.zeros_like(grid)
        for test in range(self.number):
            noise[:, test] = self.counter.increment(grid[:, test], noise[:, :test])
        sums, decided = RESOLUTION * self.least + np.cumsum(noise, axis=1), np.cumsum(others) == self.least - 1
        return sum(
            float(probabilities[sums[:, test] >= threshold].sum())
            for test, threshold in enumerate(self.thresholds)
            if test >= at and decided[test]
        )

    def seen_with_values(self, *came: tuple[int, int]) -> Outcomes:
        """Return what is listed of one key at one test, count and sum. Args: came: people, and what each brings."""
        assert self.number == 1
        (grid, probabilities), table = noises(1), PeriodTable.empty(KeyHash.drawn(1, seeded(0)), 1)
        every = np.array(list(product(range(len(grid)), repeat=2)))
        keys = np.arange(1, len(every) + 1, dtype=np.uint64)
        for people, value in came:
            if people:
                rows = np.column_stack((keys, np.full(len(every), LEVELS + value, np.uint64)))
                events = Folded(rows, np.full(len(every), people))
                table = table.added(events, least=self.least, most=len(every))
        rows = every[table.keys[:, 0].astype(np.int64) - 1]
        law = ListedLaw(self.counter, 1, self.thresholds[0], self.least, sums=(self.counter,))
        nodes = np.concatenate([grid[rows[:, 0], 0], grid[rows[:, 1], 0]])
        listed, _ = listing_mechanism(table, law, WitnessedSource(Given(nodes), bytes(32), "s", 1))
        shown = np.full((len(every), 2), UNSEEN)
        shown[listed.keys[:, 0].astype(np.int64) - 1] = listed.totals.T
        found, places = np.unique(shown, axis=0, return_inverse=True)
        weights = np.bincount(places.ravel(), probabilities[every].prod(axis=1))
        return dict(zip(map(tuple, found.tolist()), weights.tolist(), strict=True))


def joined(laws: list[Outcomes]) -> Outcomes:
    """The law of independent keys together."""
    whole: Outcomes = {(): 1.0}
    for law in laws:
        whole = {(*a, *b): p * q for a, p in whole.items() for b, q in law.items()}
    return whole


def delta(first: Outcomes, second: Outcomes, epsilon: float) -> float:
    """The delta that two laws need at this epsilon, in the worse direction."""
    return max(
        sum(max(0.0, p - exp(epsilon) * right.get(outcome, 0.0)) for outcome, p in left.items())
        for left, right in ((first, second), (second, first))
    )


def excess(tests: Period, keys: Sequence[tuple[People, int]], epsilon: float) -> float:
    """By how much the delta of all that is seen is above that of noise, with a user who comes to each key before a
    test. Args: keys: who else comes, and before which test the user does.
    """
    without = [others for others, _ in keys]
    beside = [tuple(n + (test == at) for test, n in enumerate(others)) for others, at in keys]
    seen = delta(joined([tests.seen(each) for each in beside]), joined([tests.seen(each) for each in without]), epsilon)
    noise = delta(
        joined([tests.measured(each) for each in beside]),
        joined([tests.measured(each) for each in without]),
        epsilon,
    )
    return seen - noise


ORDERS = {
    number: [
        (others, at)
        for others in product((0, 1, 2), repeat=number)
        if sum(others) in ((1, 2) if number < 3 else (1,))
        for at in range(number)
    ]
    for number in (1, 2, 3)
}
"""Tests -> every order in which one other person, or two (of three tests: one), and the user come to a key."""
HIGH = {1: (7,), 2: (8, 8), 3: (9, 9, 8)}
EPSILON = 3.0


@pytest.mark.parametrize("number", [1, 2, 3])
def test_delta_is_that_of_noise_and_of_thresholds_that_fail(coarse: None, number: int) -> None:
    tests, low = Period(HIGH[number]), Period((RESOLUTION * LEAST,) * number)
    for others, at in ORDERS[number]:
        for each in (tests, low):
            assert excess(each, [(others, at)], EPSILON) <= each.failing(others, at) + 1e-9
    # It is reached: thresholds that a user's own keys reach cost what they fail with, and no less than half of it.
    alone = ((1, *[0] * (number - 1)), 0)
    assert excess(low, [alone], EPSILON) > low.failing(*alone) / (2 * number)


def test_three_tests_fail_more_often_than_one(coarse: None) -> None:
    """So thresholds for one test are not enough: what is planted here is that the others are not counted."""
    alone, tests = ((1, 0, 0), 0), Period((8, 8, 8))
    seen = tests.seen((2, 0, 0))
    shown = 1 - seen[(UNSEEN,) * 3]
    assert shown <= tests.failing(*alone)
    assert shown > 1.2 * max(Period((8,)).failing((1,), 0), tests.failing((1, 1, 0), 0))
    assert excess(tests, [alone], EPSILON) <= tests.failing(*alone) + 1e-9


@pytest.mark.parametrize("others", [(0, 0), (1, 0), (1, 3), (2, -2), (9, 1)])
def test_sums_of_values_cost_their_noise_and_nothing_of_thresholds(coarse: None, others: tuple[int, int]) -> None:
    """A user comes to a key of so many others who bring so much each, and brings one, minus one or nothing."""
    for tests in (Period(HIGH[1]), Period((RESOLUTION * LEAST,))):
        for brought in (0, 1, -1):
            people, whole = others[0], others[0] * others[1]
            seen = delta(tests.seen_with_values(others, (1, brought)), tests.seen_with_values(others), EPSILON)
            noise = delta(
                joined([tests.measured((people + 1,)), tests.measured((whole + brought,))]),
                joined([tests.measured((people,)), tests.measured((whole,))]),
                EPSILON,
            )
            assert seen <= noise + tests.failing((people,), 0) + 1e-9
            if people > LEAST:
                assert seen > noise / 2, "it is reached where enough people have the key"


def test_two_keys_of_a_user_fail_together(coarse: None) -> None:
    tests = Period((6,))
    alone = ((1,), 0)
    for keys in ([alone, alone], [alone, ((2,), 0)], [((0,), 0), alone]):
        assert excess(tests, keys, EPSILON) <= sum(tests.failing(*key) for key in keys) + 1e-9
    assert excess(tests, [alone, alone], EPSILON) > tests.failing(*alone), "the share of one key is not enough for two"


def test_two_keys_with_two_tests_fail_together(coarse: None) -> None:
    tests = Period((8, 8))
    one, late, crowd = ((1, 0), 0), ((0, 1), 1), ((1, 9), 0)
    for keys in ([one, one], [one, late], [one, crowd]):
        assert excess(tests, keys, EPSILON) <= sum(tests.failing(*key) for key in keys) + 1e-9


CROWDED = [(others, at) for others in ((9, 0, 0), (9, 0, 9), (1, 0, 9), (0, 1, 9), (0, 0, 9)) for at in range(3)]


def test_keys_of_many_are_listed_at_the_cost_of_their_noise(coarse: None) -> None:
    tests = Period(HIGH[3])
    for others, at in CROWDED:
        assert excess(tests, [(others, at)], EPSILON) <= tests.failing(others, at) + 1e-9


@pytest.mark.parametrize(
    ("old", "new", "others"),
    [
        ("totals[0] >= law.threshold", "totals[0] >= law.threshold - law.counter.resolution", (1, 0, 0)),
        ("noise.sum(axis=1)", "noise[:, -1]", (9, 0, 0)),
    ],
    ids=["a lower threshold", "the noise of the last test alone"],
)
def test_planted_faults_cost_more(coarse: None, old: str, new: str, others: People) -> None:
    tests = Period(HIGH[3])
    with edited(listing, "_tested", old, new):
        assert excess(tests, [(others, 0)], EPSILON) > tests.failing(others, 0) + 1e-4


@pytest.mark.parametrize("at", [1, 2])
def test_the_noise_of_a_sum_does_not_tell_when_people_came(coarse: None, at: int) -> None:
    """A key that comes late has drawn its past: noise from its first event on would vary less."""
    at_last = Period((10**6, 10**6, -(10**6)))
    early, late = at_last.seen((2, 0, 0)), at_last.seen(tuple(2 * (test == at) for test in range(3)))
    assert early.keys() == late.keys()
    assert [late[sums] for sums in early] == pytest.approx(list(early.values()), abs=1e-12)
    assert variance(early) > 1.3 * float(SIGMA_SQUARED[-1]), "of the last draw alone"


def variance(law: Outcomes) -> float:
    """Of the last sum."""
    mean = sum(p * sums[-1] for sums, p in law.items())
    return sum(p * (sums[-1] - mean) ** 2 for sums, p in law.items())


def test_a_key_of_too_few_is_never_listed(coarse: None) -> None:
    assert Period((-(10**6), -(10**6))).seen((1, 0)).keys() == {(UNSEEN, UNSEEN)}


# --- by sampling ------------------------------------------------------------------------------------------------------

USERS, MOST = 5000, 77
"""Of 5000 users 0.008 each are 40 at most; more than 77 have a probability below 10^-6."""


def shown_alone(selection: KeySelection) -> int:
    """Of how many users a key is listed that is one by them alone; each has as many as are allowed."""
    people = np.full((USERS * selection.contributions, selection.tests), selection.least_count)
    first, _ = first_listed(selection, people, seeded(11))
    return int((first.reshape(USERS, -1) > 0).any(axis=1).sum())


def test_keys_of_one_user_are_listed_as_seldom_as_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    selection = KeySelection(epsilon=Fraction(1), delta=0.02, share=Fraction(2, 5), contributions=4, tests=10)
    assert 0 < shown_alone(selection) <= MOST
    of_one = KeySelection(epsilon=Fraction(1), delta=0.02, share=Fraction(2, 5), contributions=4, tests=1)
    scale = (of_one.threshold(1) - of_one.least_count) / of_one.deviation(1)
    naive = [selection.least_count + scale * selection.deviation(test) for test in range(1, 11)]
    monkeypatch.setattr(KeySelection, "thresholds", tuple(int(each * module.RESOLUTION) for each in naive))
    assert shown_alone(selection) > MOST, "a threshold for one test, used at ten"
