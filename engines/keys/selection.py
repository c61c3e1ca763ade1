"""Counts of people by key that are tested at J public times of a period, and listed once they pass a threshold.

Each key has one continual counter from the period's start on, whose noisy sums Y_1, ..., Y_J both select the key and
say how many people have it. A key is listed at the first test j where at least `least_count` people have it truly and
Y_j is at least tau_j, and remains so to the period's end. `NormalisedCounter` is the counter, `KeySelection` the
thresholds.

The counter. S is the square root of the lower triangle of ones, c_0 = 1, c_k = c_(k-1) (2k - 1) / (2k), with columns
divided by their norms n_u, so that a person costs the same at every test ([henzinger2025]). It is brought to a diagonal
of ones: row t is multiplied by n_t, and so is the deviation of its noise. All is in whole multiples of 1/R people, and
entries of S in units of 1/R as well. A test draws z_t and takes the noise of its increment
    w_t = z_t - round((S_t1 w_1 + ... + S_t(t-1) w_(t-1)) / R).
So z is a function of w. A person at test u explains the same sums by a w_u that is smaller by R; then what is rounded
moves by the whole number S_tu, so that z_t moves by S_tu exactly: sums are a function of S x + z, and rounding costs
nothing.
Values. What people bring to a key is a whole number from -L to L each, L = `LEVELS`; its sum has a counter of its own,
with noise for a person who brings L. It leaves for listed keys, and decides nothing.
Guarantee: theorem K of docs/guarantee.md. For one person in one key mu^2 is at most the largest sum over a column of
    S_tu^2 / (sigma_t^2 - 9) (`accounting.lattice`), for sums chosen adaptively too; one who brings q costs q^2 times
    as much of the counter of values.
Source: [henzinger2025] (the factor); ours: its form in integers, tests at public times, and one budget for both uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, sqrt
from typing import ClassVar

import numpy as np

from engines.core.accounting.arguments import check_delta, check_epsilon, check_positive
from engines.core.accounting.gaussian import mu_squared_for
from engines.core.accounting.lattice import ROUNDING, sigma_squared_of
from engines.core.counters.linear import check_activation, check_whole, largest_gaussian
from engines.core.noise.arguments import shortened
from engines.core.noise.witness import ListedLaw
from engines.keys.table import LEVELS
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError

RESOLUTION = 2**12
"""Lattice steps to a person, and to a one of S."""
MOST_TESTS = 1000
_WEIGHTS = 2**20
_LARGEST = 2**62
_SMOOTHED = 5
"""Deviations by which the smoothing of `KeySelection.thresholds` may be below zero: a normal one is with 2.9e-7."""
SURE = 1 - 1e-6


def first_column(tests: int) -> FloatArray:
    """Return c_0, ..., c_(tests-1)."""
    return np.cumprod(np.concatenate([[1.0], 1 - 0.5 / np.arange(1, tests)]))


@lru_cache(maxsize=64)
def _factor(tests: int) -> tuple[IntArray, tuple[Fraction, ...]]:
    """Return S `(tests, tests)` in units of 1/R, and the squares of its rows' multipliers n_t."""
    column = first_column(tests)
    squares = np.cumsum(column**2)[::-1]
    lags = np.subtract.outer(np.arange(tests), np.arange(tests))
    root = np.where(lags >= 0, column[lags], 0.0) * np.sqrt(squares[:, np.newaxis] / squares)
    entries = np.rint(RESOLUTION * root).astype(np.int64)
    entries.setflags(write=False)
    return entries, tuple(Fraction(int(square), _WEIGHTS) for square in np.rint(squares * _WEIGHTS))


@dataclass(frozen=True, kw_only=True, slots=True)
class NormalisedCounter:
    """The counter of one key over a period; see the module.

    Args:
        mu_squared: what one person in one key may cost in all.
        horizon: tests of a period, at most `MOST_TESTS`.
    Raises: EngineInputError if an argument is out of range, or noise could leave int64.

    >>> counter = NormalisedCounter(mu_squared=Fraction(1), horizon=10)
    >>> [round(sqrt(counter.variance(t)), 2) for t in (1, 10)]
    [1.34, 1.56]
    """

    mu_squared: Fraction
    horizon: int

    def __post_init__(self) -> None:
        check_positive(mu_squared=self.mu_squared)
        check_whole("horizon", self.horizon)
        if self.horizon > MOST_TESTS:
            raise EngineInputError(f"a period must have at most {MOST_TESTS} steps")
        # An increment is below four of the first noise: rows of the inverse of a normalised root add up to less.
        furthest = 4 * max(map(largest_gaussian, self.node_noise(self.horizon)))
        if furthest * RESOLUTION * self.horizon >= _LARGEST:
            raise EngineInputError("epsilon is too small: noise could leave int64")

    @property
    def resolution(self) -> int:
        """Lattice steps to a person."""
        return RESOLUTION

    def strategy(self, t: int) -> IntArray:
        """Return S as far as `t` tests: entry (r, u) is by how much a person at test u moves node r, exactly."""
        return _factor(self.horizon)[0][:t, :t]

    def node_noise(self, t: int) -> tuple[Fraction, ...]:
        """Return sigma squared of each of the first t nodes."""
        return _node_noise(self.horizon, self.mu_squared)[:t]

    def decoder(self, t: int) -> FloatArray:
        """Return the matrix from nodes to running sums, of the counter without rounding."""
        return _decoder(self.horizon)[:t, :t]

    def variance(self, t: int) -> float:
        """Return the variance of the sum at test `t` without rounding, in squared people."""
        check_activation(t, self.horizon)
        noise = np.array([float(each) for each in self.node_noise(t)])
        return float(self.decoder(t)[-1] ** 2 @ noise) if t else 0.0

    def increment(self, drawn: IntArray, before: IntArray) -> IntArray:
        """Return `(width,)` noise of an increment.

        Args:
            drawn: `(width,)`, of the node. before: `(width, t - 1)`, noise of earlier increments.
        """
        if not before.shape[1]:
            return drawn
        # Of whole numbers this is two to three times as fast as a product of matrices.
        moved: IntArray = np.einsum("nt,t->n", before, self.strategy(before.shape[1] + 1)[-1, :-1])
        return drawn - ((moved + RESOLUTION // 2) // RESOLUTION)

    def nodes(self, noise: IntArray) -> IntArray:
        """Return `(width, t)` what was drawn for this noise of increments `(width, t)`: the inverse of `increment`."""
        drawn = np.empty_like(noise)
        for t in range(noise.shape[1]):
            drawn[:, t] = 2 * noise[:, t] - self.increment(noise[:, t], noise[:, :t])
        return drawn


@lru_cache(maxsize=64)
def _node_noise(tests: int, mu_squared: Fraction) -> tuple[Fraction, ...]:
    entries, squares = _factor(tests)
    columns = [
        sum((int(entry) ** 2 / square for entry, square in zip(column, squares, strict=True) if entry), Fraction(0))
        for column in _longest_columns(entries, squares)
    ]
    # Short terms, above: fractions over all squares of the rows would have thousands of digits.
    longest = Fraction(ceil(max(columns) * _WEIGHTS), _WEIGHTS)
    return tuple(sigma_squared_of(longest * square, mu_squared) for square in squares)


def _longest_columns(entries: IntArray, squares: tuple[Fraction, ...]) -> IntArray:
    """Return the columns that may be the longest: those within a part in a million, by floats."""
    lengths = (entries**2 / np.array([float(square) for square in squares])[:, np.newaxis]).sum(axis=0)
    longest: IntArray = entries.T[lengths >= lengths.max() * (1 - 1e-6)]
    return longest


@lru_cache(maxsize=64)
def _decoder(tests: int) -> FloatArray:
    from scipy.linalg import solve_triangular

    ones = solve_triangular(_factor(tests)[0].astype(np.float64).T, np.tri(tests).T, lower=False)
    decoder: FloatArray = np.ascontiguousarray(np.asarray(ones, np.float64).T)
    decoder.setflags(write=False)
    return decoder


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySelection:
    """Public constants of the tests of a period.

    Args:
        epsilon, delta: of one user over a period.
        share: of delta, for keys that are listed though a single user decides whether `least_count` people have them;
            the rest is for the noise. 0 where keys are public: there are no thresholds then.
        contributions: keys of a user in a period at most. tests: of a period.
        least_count: people that a key must truly have; 0 where keys are public.
        together: events of a user with one key in a period at most; where it is not 1, a key counts events, and all
            that is said of people here is said of events.
        value_share: of mu^2, for the sums of values; the rest is for counts. 0: there are no values.
    Raises: EngineInputError if an argument is out of range.

    >>> selection = KeySelection(epsilon=Fraction(1), delta=1e-6, share=Fraction(2, 5), contributions=8, tests=10)
    >>> round(selection.deviation(10), 1), round(selection.threshold(10), 1)
    (19.1, 114.7)
    """

    written_as: ClassVar[str] = "KeySelection"

    epsilon: Fraction
    delta: float
    share: Fraction
    contributions: int
    tests: int
    least_count: int = 5
    together: int = 1
    value_share: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not (0 <= self.share < 1 and 0 <= self.value_share < 1):
            raise EngineInputError("a share must lie between 0 and 1")
        check_whole("contributions", self.contributions)
        check_whole("together", self.together)
        if self.share:
            check_whole("least_count", self.least_count)
        elif self.least_count:
            raise EngineInputError("keys are public, or have thresholds and a least count")
        _ = self.counter, self.sums

    @property
    def public(self) -> bool:
        """Whether all keys are of a public list, each of which every test lets out."""
        return not self.share

    @property
    def noise_delta(self) -> float:
        """Part of delta for the noise, rounded down."""
        return float(self.delta * (1 - self.share)) * (1 - 1e-12)

    @property
    def listing_delta(self) -> float:
        """Part of delta for keys that one user decides, rounded down."""
        return float(self.delta * self.share) * (1 - 1e-12)

    @property
    def mu_squared(self) -> Fraction:
        """Mu squared of a user over a period."""
        return mu_squared_for(self.epsilon, self.noise_delta)

    @property
    def counter(self) -> NormalisedCounter:
        """Counter of each key: of the people who have it."""
        return self._counter((1 - self.value_share) * self.mu_squared)

    @property
    def sums(self) -> tuple[NormalisedCounter, ...]:
        """Counters of each key for sums of values, in whole numbers up to `LEVELS` a person; none without values."""
        return (self._counter(self.value_share * self.mu_squared / LEVELS**2),) if self.value_share else ()

    def _counter(self, of_user: Fraction) -> NormalisedCounter:
        """Return the counter that costs a user so much of mu^2, with all keys and events together."""
        return NormalisedCounter(mu_squared=short(of_user / self.squares), horizon=self.tests)

    @property
    def squares(self) -> int:
        """How much of a counter's mu^2 a user costs at most: events of one key add up, those of different keys are at
        right angles.
        """
        return self.contributions * self.together**2

    @property
    def thresholds(self) -> tuple[int, ...]:
        """tau_1, ..., tau_J in lattice steps: noise alone takes a key there with `listing_delta` over all tests and
        keys of a user, where others have one less than `least_count` and the user all that a user may have.

        Discrete noise plus a normal variate g of variance 9 a node has the density of normal noise of the summed
        variance, up to a factor of 1 +- 1e-70 ([micciancio2007]). g is above minus five of its deviations nearly
        surely, and independent. So P(noise >= x) <= P(normal >= x - 5 deviations of g) / (1 - 3e-7). What `increment`
        rounds is at most half a lattice step at each test.
        """
        return _thresholds(self)

    def threshold(self, test: int) -> float:
        """Return tau of a test, from 1, in people."""
        return self.thresholds[test - 1] / RESOLUTION

    def deviation(self, test: int) -> float:
        """Return the standard deviation of the counts of a test, from 1, in people."""
        return sqrt(self.counter.variance(test))

    def value_deviation(self, test: int) -> float:
        """Return the standard deviation of the sums of values of a test, from 1, in largest values."""
        [counter] = self.sums
        return sqrt(counter.variance(test)) / LEVELS

    def law(self, test: int) -> ListedLaw:
        """Return the law of a test, from 1."""
        threshold = None if self.public else self.thresholds[test - 1]
        return ListedLaw(self.counter, test, threshold, self.least_count, sums=self.sums)


def short(value: Fraction) -> Fraction:
    """Return a fraction of short terms, below it by less than 2**-39 of it."""
    return shortened(value, 40, up=False)


def shown(number: float) -> float:
    """Return a number as it is published: to six digits."""
    return float(f"{number:.6g}")


@lru_cache(maxsize=64)
def _thresholds(selection: KeySelection) -> tuple[int, ...]:
    counter, tests = selection.counter, selection.tests
    each = selection.listing_delta * SURE / (selection.contributions * tests)
    most = selection.least_count - 1 + selection.together
    return tuple(most * RESOLUTION + above for above in exceeded(counter, each))


def exceeded(counter: NormalisedCounter, probability: float) -> tuple[int, ...]:
    """Return for each test what the noise of its sum reaches with this probability at most, in lattice steps.

    A factor of `SURE` of the probability is the caller's to leave. Convex in the probability below one half.
    Raises: EngineInputError if it is not below one half.
    """
    from scipy.special import ndtri

    tests = counter.horizon
    normal = -float(ndtri(probability))
    if normal <= 0:
        raise EngineInputError("delta is too large: a key would be listed whoever has it")
    decoder = counter.decoder(tests) * RESOLUTION
    noise = np.array([float(square) for square in counter.node_noise(tests)])
    smoothed = np.sqrt(decoder**2 @ (noise + ROUNDING))
    margin = _SMOOTHED * np.sqrt(decoder**2 @ np.full(tests, float(ROUNDING))) + np.abs(decoder).sum(axis=1) / 2
    above = (smoothed * normal + margin) * (1 + 1e-9)
    return tuple(ceil(each) for each in above.tolist())
