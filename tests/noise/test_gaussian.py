"""Discrete Gaussian noise: its law step by step and by samples. Law tests: false-positive rate 1e-6."""

import importlib
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.noise import (
    DiscreteGaussian,
    NoiseSource,
    bernoulli_exp_multiples,
    discrete_gaussian,
    discrete_laplace,
    seeded,
    sigma_squared_for,
)
from engines.core.noise.gaussian import MAX_SIGMA_SQUARED
from schemas.errors import EngineInputError
from tests.noise.goodness import Choose, Scripted, exact_law, misfit

DRAWS = 500_000
MODULE = importlib.import_module("engines.core.noise.gaussian")
SIGMA_SQUARED = [
    Fraction(1, 30),
    Fraction(1, 4),
    Fraction(1),
    Fraction(7, 3),
    Fraction(25, 2),
    sigma_squared_for(37.3),
    Fraction(10**6),
    Fraction(10**10 + 1, 3),
    Fraction(2**76),
]
Draw = Callable[[int, Fraction, NoiseSource], np.ndarray]


def hits_of(values: np.ndarray, sigma_squared: Fraction) -> tuple[list[int], list[float]]:
    """Events X = k near zero, and the tails from k on each side, out to 4.5 sigma; with their exact probabilities."""
    law = DiscreteGaussian(sigma_squared)
    sigma = math.sqrt(sigma_squared)
    hits, probabilities = [], []
    for k in {int(c * sigma / 4) for c in (*range(1, 13), 15, 18)} | {1, 2, 3}:
        if k:
            hits += [int(np.sum(values == k)), int(np.sum(values >= k)), int(np.sum(values <= -k))]
            probabilities += [law.pmf(k), law.tail(k), law.tail(k)]
    return [*hits, int(np.sum(values == 0))], [*probabilities, law.pmf(0)]


@pytest.mark.parametrize("sigma_squared", [Fraction(12_345_677 * 2**33), Fraction(10**18 + 9, 10**6 + 3)], ids=str)
def test_where_terms_are_long_coins_are_those_of_fractions(
    sigma_squared: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Word by word: what was drawn is drawn again after a crash, whatever computes it."""
    tossed = []

    def coin(gap: int, unit: Fraction, source: NoiseSource) -> bool:
        tossed.append(gap)
        return bool(bernoulli_exp_multiples(np.array([1]), gap**2 * unit, source)[0])

    source, again = seeded(62), seeded(62)
    values = discrete_gaussian(300, sigma_squared, source)
    monkeypatch.setattr(MODULE, "_coin", coin)
    assert np.array_equal(values, discrete_gaussian(300, sigma_squared, again))
    assert len(tossed) > 300
    assert source.words(1) == again.words(1)


@pytest.mark.parametrize("sigma_squared", SIGMA_SQUARED, ids=str)
def test_law(sigma_squared: Fraction) -> None:
    values = discrete_gaussian(DRAWS, sigma_squared, seeded(61))
    assert values.dtype == np.int64
    assert misfit(*hits_of(values, sigma_squared), DRAWS) == ""


@pytest.mark.parametrize(
    "sigma_squared",
    [Fraction(37.3) ** 2, Fraction(1, 3**40), Fraction(10**30 + 1, 10**29), Fraction(2**83, 3)],
    ids=str,
)
def test_long_fractions_are_as_exact(sigma_squared: Fraction) -> None:
    values = discrete_gaussian(10_000, sigma_squared, seeded(62))
    assert misfit(*hits_of(values, sigma_squared), 10_000) == ""


@pytest.mark.parametrize("slow", [False, True], ids=["arrays", "one by one"])
@pytest.mark.parametrize("half_word", [2**31, 3], ids=["one part", "three parts"])
@pytest.mark.parametrize("sigma_squared", [Fraction(1, 9), Fraction(2, 3), Fraction(1), Fraction(30, 7)], ids=str)
def test_algorithm_3_step_by_step(
    monkeypatch: pytest.MonkeyPatch, sigma_squared: Fraction, half_word: int, slow: bool
) -> None:
    """No statistics: every run of one attempt, with each of its parts replaced by that part's exact law."""
    scale = MODULE._proposal_scale(sigma_squared)
    reach = 12

    def run(choose: Choose) -> int | None:
        def laplace(size: int, scale: Fraction, source: Any) -> np.ndarray:
            weights = [math.tanh(1 / (2 * scale)) * math.exp(-abs(k) / scale) for k in range(-reach, reach + 1)]
            return np.array([choose(weights) - reach for _ in range(size)], dtype=np.int64)

        def coins(multiples: np.ndarray, unit: Fraction, source: Any) -> np.ndarray:
            chances = [math.exp(-int(m) * unit) for m in multiples]
            return np.array([choose([1 - p, p]) == 1 for p in chances], dtype=np.bool_)

        monkeypatch.setattr(MODULE, "laplace_values", laplace)
        monkeypatch.setattr(MODULE, "bernoulli_exp_multiples", coins)
        monkeypatch.setattr(MODULE, "_HALF_WORD", half_word)
        monkeypatch.setattr(MODULE, "_MAX_CENTRE_TERM", 0 if slow else 2**40)
        values = MODULE._attempt(1, sigma_squared, scale, seeded(0))
        return int(values[0]) if values.size else None

    law, _ = exact_law(run, floor=0.0)
    succeeded = sum(mass for value, mass in law.items() if value is not None)
    claimed = DiscreteGaussian(sigma_squared)
    assert succeeded > 0.4
    for k in range(-reach, reach + 1):
        if claimed.pmf(k) > 1e-14:
            assert math.isclose(law[k] / succeeded, claimed.pmf(k), rel_tol=1e-5), k


def half_sigma(size: int, sigma_squared: Fraction, source: NoiseSource) -> np.ndarray:
    return discrete_gaussian(size, sigma_squared / 4, source)


def sigma_for_its_square(size: int, sigma_squared: Fraction, source: NoiseSource) -> np.ndarray:
    return discrete_gaussian(size, sigma_squared**2, source)


def rounded_float(size: int, sigma_squared: Fraction, source: NoiseSource) -> np.ndarray:
    radius = np.sqrt(-2 * np.log1p(source.words(size) / -(2.0**64)))
    angle = 2 * math.pi * (source.words(size) / 2**64)
    return np.rint(math.sqrt(sigma_squared) * radius * np.cos(angle)).astype(np.int64)


def proposals_that_are_all_kept(size: int, sigma_squared: Fraction, source: NoiseSource) -> np.ndarray:
    return discrete_laplace(size, Fraction(math.isqrt(math.floor(sigma_squared))), source)


def cut_tail(size: int, sigma_squared: Fraction, source: NoiseSource) -> np.ndarray:
    edge = 3 * math.isqrt(math.floor(sigma_squared))
    return np.clip(discrete_gaussian(size, sigma_squared, source), -edge, edge)


def shifted_by_one_in_fifty(size: int, sigma_squared: Fraction, source: NoiseSource) -> np.ndarray:
    return discrete_gaussian(size, sigma_squared, source) + (np.arange(size) % 50 == 0)


@pytest.mark.parametrize(
    "planted",
    [half_sigma, sigma_for_its_square, rounded_float, proposals_that_are_all_kept, cut_tail, shifted_by_one_in_fifty],
)
def test_wrong_samplers_are_caught(planted: Draw) -> None:
    """Power: the test that the honest sampler passes at the same size refuses each of these."""
    sigma_squared = Fraction(4)
    assert misfit(*hits_of(planted(DRAWS, sigma_squared, seeded(63)), sigma_squared), DRAWS) != ""


def test_neighbouring_draws_are_independent() -> None:
    signs = discrete_gaussian(DRAWS, Fraction(9), seeded(66)) > 0
    chance = DiscreteGaussian(Fraction(9)).tail(1)
    for lag in (1, 2, 7):
        # Every second block of lag + 1, so that the pairs tested share no draw and the binomial law is exact.
        pairs = (signs[:-lag] & signs[lag:])[:: lag + 1]
        assert misfit([int(pairs.sum())], [chance**2], pairs.size) == ""


@given(
    st.integers(0, 100),
    st.builds(Fraction, st.integers(1, 2**40), st.integers(1, 2**40)),
    st.integers(0, 99),
)
def test_any_rational_sigma_squared(size: int, sigma_squared: Fraction, seed: int) -> None:
    values = discrete_gaussian(size, sigma_squared, seeded(seed))
    assert values.shape == (size,)
    assert values.dtype == np.int64
    assert values.tolist() == discrete_gaussian(size, sigma_squared, seeded(seed)).tolist()
    # 12 sigma: 1e-32 each.
    assert np.all(np.abs(values) <= 12 * math.sqrt(sigma_squared) + 1)


@given(st.builds(Fraction, st.integers(1, 2**90), st.integers(1, 2**90)).filter(lambda s: s <= MAX_SIGMA_SQUARED))
def test_a_proposal_is_near_sigma_and_fits(sigma_squared: Fraction) -> None:
    scale = MODULE._proposal_scale(sigma_squared)
    assert max(scale.numerator, scale.denominator) <= 2**42
    assert scale**2 <= max(4 * sigma_squared, Fraction(1))
    assert discrete_gaussian(3, sigma_squared, seeded(1)).shape == (3,)


@pytest.mark.parametrize("size", [2**16 - 1, 2**16, 2**16 + 1, 3 * 2**16])
def test_sizes_around_a_chunk(size: int) -> None:
    assert discrete_gaussian(size, Fraction(9), seeded(1)).shape == (size,)


def test_a_source_of_zeros_is_refused() -> None:
    with pytest.raises(EngineInputError, match="uniform"):
        discrete_gaussian(1, Fraction(3), Scripted(forever=0))


@pytest.mark.parametrize("sigma_squared", [*SIGMA_SQUARED[:7], Fraction(1, 10**400), Fraction(99, 100)], ids=str)
def test_the_stated_law_is_a_law_and_its_variance_right(sigma_squared: Fraction) -> None:
    law = DiscreteGaussian(sigma_squared)
    reach = np.arange(1, math.ceil(12 * math.sqrt(sigma_squared)) + 3)
    masses = np.array([law.pmf(int(k)) for k in reach])
    assert math.isclose(law.pmf(0) + 2 * math.fsum(masses), 1, rel_tol=1e-12)
    assert math.isclose(law.variance, 2 * math.fsum(reach**2 * masses), rel_tol=1e-9)
    assert law.variance <= float(sigma_squared)
    for k in (-5, -1, 0, 1, 2, 9):
        assert math.isclose(law.tail(k) - law.tail(k + 1), law.pmf(k), rel_tol=1e-6, abs_tol=1e-15)
        assert math.isclose(law.tail(k) + law.tail(1 - k), 1)
        assert law.pmf(k) == law.pmf(-k)


@pytest.mark.parametrize("multiple", [0.01, 1, 5, 20, 35])
def test_both_ways_to_a_tail_agree(monkeypatch: pytest.MonkeyPatch, multiple: float) -> None:
    law = DiscreteGaussian(Fraction(4000**2))
    summed = law.tail(int(multiple * 4000))
    monkeypatch.setattr(MODULE, "_SUMMED", 0)
    assert math.isclose(law.tail(int(multiple * 4000)), summed, rel_tol=1e-9)


@given(st.floats(1e-150, 4e12))
def test_sigma_is_rounded_up_and_hardly(sigma: float) -> None:
    exact, rounded = Fraction(sigma) ** 2, sigma_squared_for(sigma)
    assert exact <= rounded <= exact * (1 + Fraction(1, 2**23))
    assert min(rounded.numerator, rounded.denominator) == 1 or rounded.numerator < 2**26


@pytest.mark.parametrize(
    "call",
    [
        lambda: discrete_gaussian(-1, Fraction(1), seeded(1)),
        lambda: discrete_gaussian(1, Fraction(0), seeded(1)),
        lambda: discrete_gaussian(1, Fraction(-1), seeded(1)),
        lambda: discrete_gaussian(1, 1.0, seeded(1)),  # type: ignore[arg-type]
        lambda: discrete_gaussian(1, MAX_SIGMA_SQUARED + 1, seeded(1)),
        lambda: DiscreteGaussian(0.5),  # type: ignore[arg-type]
        lambda: sigma_squared_for(0.0),
        lambda: sigma_squared_for(-1.0),
        lambda: sigma_squared_for(math.inf),
        lambda: sigma_squared_for(math.nan),
        lambda: sigma_squared_for(1e13),
    ],
    ids=count(),
)
def test_outside_the_contract(call: Any) -> None:
    with pytest.raises(EngineInputError):
        call()
