"""Every mechanism of `engines.core.noise`, from outside: sampled beside its claim, and its law worked out exactly.

Null hypothesis: the claim holds. False alarms: 1e-6 a mechanism; seeds are fixed. The planted fault is half the noise.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from math import comb
from pkgutil import iter_modules

import numpy as np
import pytest

import engines.core.noise
from engines.core.accounting import gaussian
from engines.core.accounting.lattice import dominating
from engines.core.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseSource,
    gaussian_mechanism,
    laplace_mechanism,
    scale_for,
    seeded,
)
from engines.core.noise.binomial import binomial_mechanism
from engines.core.noise.exponential import exponential_mechanism
from engines.core.noise.listing import listing_mechanism
from engines.core.noise.split import laplace_exceeds
from engines.core.noise.witness import ListedLaw
from schemas.arrays import BoolArray, FloatArray, IntArray, KeyArray
from tests.sampling import ceiling, coins, sampled

pytestmark = pytest.mark.seconds(1)

ONE = Fraction(1)
RUNS, CHOICES = 20_000, 8_000
"""Of what is drawn for all runs at once, and of choices, which are made one by one."""
DELTA = 1e-2
"""Larger than any claim worth making, so that runs can show what there is beside it."""


@dataclass(frozen=True)
class Mechanism:
    """Attributes:

    release: from the coins, how many times less noise there is than it should be, and a source, to a score of each run.
    law: from that factor to the probabilities of all outcomes, without the unit and with it.
    epsilon: claimed at `delta`; None: what the law gives. runs: that it takes to find half the noise.
    """

    release: Callable[[BoolArray, int, NoiseSource], np.ndarray]
    law: Callable[[int], tuple[FloatArray, ...]]
    epsilon: float | None = 1.0
    delta: float = 0.0
    runs: int = RUNS

    @property
    def claim(self) -> float:
        if self.epsilon is not None:
            return self.epsilon
        low, high = 0.0, 20.0
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (middle, high) if hockey_stick(self.law(1), middle) > self.delta else (low, middle)
        return high


def hockey_stick(law: tuple[FloatArray, ...], epsilon: float) -> float:
    """The least delta for which two laws are (epsilon, delta)-close, either way."""
    without, there = law
    return max(np.maximum(p - np.exp(epsilon) * q, 0).sum() for p, q in ((without, there), (there, without)))


def moved(pmf: Callable[[int], float], reach: int, shift: int) -> tuple[FloatArray, FloatArray]:
    """Of noise on an integer that the unit moves by `shift`."""
    law = np.array([pmf(k) for k in range(-reach - shift, reach + 1)])
    return law[shift:], law[: law.size - shift]


def laplace(there: BoolArray, less: int, source: NoiseSource) -> np.ndarray:
    return laplace_mechanism(1000 + there.astype(np.int64), scale_for(1, ONE * less), source)


SHIFT, SIGMA_SQUARED = 16, Fraction(1024)
"""Of Gaussian noise: on a lattice no coarser than the accountants take."""


def gauss(there: BoolArray, less: int, source: NoiseSource) -> np.ndarray:
    return gaussian_mechanism(SHIFT * there.astype(np.int64), SIGMA_SQUARED / less**2, source)


HALF, COINS_SHIFT = 200, 5
"""Pairs of coins, and by how much the unit moves an integer. A quarter of the coins is half the noise."""


def coin_pairs(there: BoolArray, less: int, source: NoiseSource) -> np.ndarray:
    # All runs at once: what it says of one integer, its door does for each of many.
    shifted = COINS_SHIFT * there.astype(np.int64)
    return binomial_mechanism(shifted, HALF // less**2, source)  # type: ignore[arg-type, return-value]


def coin_law(half: int) -> Callable[[int], float]:
    return lambda k: comb(2 * half, half + k) / 4**half if abs(k) <= half else 0.0


def exceeds(there: BoolArray, less: int, source: NoiseSource) -> np.ndarray:
    return laplace_exceeds(1 - there.astype(np.int64), unit=ONE, scale=ONE / less, source=source)


UTILITIES = ((0, 2, 2), (1, 1, 1))
"""One candidate that the unit is for, and two that it is against."""


def choice(there: BoolArray, less: int, source: NoiseSource) -> np.ndarray:
    def chosen(run: int, bit: bool) -> int:
        options = {"quantum": ONE, "sensitivity": ONE, "epsilon": ONE * less}
        return exponential_mechanism(UTILITIES[bit], **options, source=source.child(run))

    return np.array([chosen(run, bool(bit)) for run, bit in enumerate(there)])


PEOPLE = 5
"""Who have a key without the unit; its noisy sum passes the threshold half the time."""


@dataclass(frozen=True)
class OneTest:
    """A counter of one node on the lattice of `gauss`, with `less` times less noise."""

    less: int
    resolution = SHIFT

    def node_noise(self, t: int) -> tuple[Fraction, ...]:
        return (SIGMA_SQUARED / self.less**2,) * t

    def increment(self, drawn: IntArray, before: IntArray) -> IntArray:
        return drawn


@dataclass(frozen=True)
class KeyOfEachRun:
    """See `engines.core.noise.listing.KeyTable`, before its first test."""

    keys: KeyArray
    totals: IntArray
    noise: IntArray
    found: IntArray

    def tested(self, noise: IntArray, found: IntArray) -> KeyOfEachRun:
        return KeyOfEachRun(self.keys, self.totals, noise, found)


def listing(there: BoolArray, less: int, source: NoiseSource) -> np.ndarray:
    keys = np.arange(there.size, dtype=np.uint64)[:, np.newaxis]
    none = np.zeros(0, np.int64)
    table = KeyOfEachRun(keys, PEOPLE + there[np.newaxis].astype(np.int64), none.reshape(1, 0, 0), none)
    listed, _ = listing_mechanism(table, ListedLaw(OneTest(less), 1, PEOPLE * SHIFT, 1), source)
    scores = np.full(there.size, PEOPLE * SHIFT - 1)
    scores[listed.keys[:, 0].astype(np.int64)] = listed.counts
    return scores


def listing_law(less: int) -> tuple[FloatArray, ...]:
    reach = 400
    sides = moved(DiscreteGaussian(SIGMA_SQUARED / less**2).pmf, reach, SHIFT)
    return tuple(np.concatenate([[side[:reach].sum()], side[reach:]]) for side in sides)


def softmax(utilities: tuple[int, ...], rate: float) -> FloatArray:
    weights = np.exp(rate * np.array(utilities))
    return weights / weights.sum()


MECHANISMS: Mapping[str, Mechanism] = {
    "laplace_mechanism": Mechanism(laplace, lambda less: moved(DiscreteLaplace(ONE / less).pmf, 60, 1)),
    "gaussian_mechanism": Mechanism(
        gauss,
        lambda less: moved(DiscreteGaussian(SIGMA_SQUARED / less**2).pmf, 400, SHIFT),
        epsilon=gaussian.epsilon(DELTA, SHIFT / float(dominating(SIGMA_SQUARED)) ** 0.5),
        delta=DELTA,
    ),
    "listing_mechanism": Mechanism(
        listing,
        listing_law,
        epsilon=gaussian.epsilon(DELTA, SHIFT / float(dominating(SIGMA_SQUARED)) ** 0.5),
        delta=DELTA,
    ),
    "binomial_mechanism": Mechanism(
        coin_pairs,
        lambda less: moved(coin_law(HALF // less**2), HALF, COINS_SHIFT),
        epsilon=None,
        delta=DELTA,
    ),
    "laplace_exceeds": Mechanism(
        exceeds,
        lambda less: tuple(np.array([p, 1 - p]) for p in (np.exp(-less) / 2, 0.5)),
    ),
    "exponential_mechanism": Mechanism(
        choice,
        lambda less: tuple(softmax(each, less / 2) for each in UTILITIES),
        runs=CHOICES,
    ),
}

PARTS: Mapping[str, str] = {
    "discrete_laplace": "what laplace_mechanism adds",
    "discrete_gaussian": "what gaussian_mechanism adds",
    "bernoulli_exp": "a coin of public probability",
    "coin_exp": "one coin of bernoulli_exp, of any size",
    "bernoulli_exp_multiples": "a coin; its multiples are private, and what is done with it is laplace_exceeds",
    "private_coins": "coins whose multiples are private, as bernoulli_exp_multiples",
    "centred_binomials": "what binomial_mechanism adds",
    "laplace_values": "what discrete_laplace gives",
    "below_exp": "a part of geometric",
    "released": "the door: it adds what it is given",
    "opened": "the door: it draws nothing",
    "drawn": "shows a draw to the witness of the source",
    "geometric": "noise of public law",
    "random_bits": "noise of public law",
    "uniform_below": "noise of public law",
}
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


@each_mechanism
def test_runs_show_no_more_than_is_claimed_and_half_the_noise_does(mechanism: Mechanism) -> None:
    there = coins(mechanism.runs, seeded(1).child("coins"))
    claim, delta = mechanism.claim, mechanism.delta
    honest, planted = (sampled(mechanism.release(there, less, seeded(2)), there, delta=delta) for less in (1, 2))
    assert ceiling(mechanism.runs // 2, delta=delta) > claim
    assert 0.25 * claim < honest.epsilon <= claim
    assert planted.epsilon > claim


@each_mechanism
def test_the_law_keeps_the_claim_and_with_half_the_noise_it_does_not(mechanism: Mechanism) -> None:
    """Exact: the hockey-stick divergence, summed over all outcomes, but for those of probability below 1e-20."""
    for less, law in ((less, mechanism.law(less)) for less in (1, 2)):
        assert all(abs(side.sum() - 1) < 1e-9 for side in law)
        assert (hockey_stick(law, mechanism.claim) <= mechanism.delta + 1e-12) == (less == 1)


def test_everything_in_the_noise_package_is_sampled_or_said_to_be_a_part() -> None:
    modules = [
        import_module(f"{engines.core.noise.__name__}.{each.name}")
        for each in iter_modules(engines.core.noise.__path__)
    ]
    drawing = {
        name
        for module in modules
        for name, made in inspect.getmembers(module, inspect.isfunction)
        if made.__module__ == module.__name__
        and not name.startswith("_")
        and "source" in inspect.signature(made).parameters
    }
    assert drawing == MECHANISMS.keys() | PARTS.keys()
    assert not MECHANISMS.keys() & PARTS.keys()
