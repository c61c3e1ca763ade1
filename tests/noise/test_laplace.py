"""Discrete Laplace noise: its law by samples, false-positive rate 1e-6 each; step by step it is in `test_sampcert`."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.noise import DiscreteLaplace, NoiseSource, discrete_laplace, geometric, random_bits, scale_for, seeded
from engines.core.noise.laplace import MAX_TERM
from schemas.errors import EngineInputError
from tests.noise.goodness import Scripted, laplace_hits, misfit

DRAWS = 1_000_000
SCALES = [
    Fraction(1, 100),
    Fraction(1, 3),
    Fraction(1),
    Fraction(5, 2),
    Fraction(37, 3),
    Fraction(1000),
    Fraction(2**31 - 1, 7),
    Fraction(2**31 - 1, 2**31 - 3),
    Fraction(2**42, 2**42 - 1),
    Fraction(2**42),
]
Draw = Callable[[int, Fraction, NoiseSource], np.ndarray]


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_law(scale: Fraction) -> None:
    values = discrete_laplace(DRAWS, scale, seeded(51))
    assert values.dtype == np.int64
    assert misfit(*laplace_hits(values, scale), DRAWS) == ""


def half_scale(count: int, scale: Fraction, source: NoiseSource) -> np.ndarray:
    return discrete_laplace(count, scale / 2, source)


def rounded_float(count: int, scale: Fraction, source: NoiseSource) -> np.ndarray:
    uniform = source.words(count) / 2**64
    return np.rint(-float(scale) * np.sign(uniform - 0.5) * np.log1p(-2 * np.abs(uniform - 0.5)))


def zero_twice(count: int, scale: Fraction, source: NoiseSource) -> np.ndarray:
    magnitude = scale.numerator * geometric(count, source) // scale.denominator
    return np.where(random_bits(count, source), -magnitude, magnitude)


def cut_tail(count: int, scale: Fraction, source: NoiseSource) -> np.ndarray:
    return np.clip(discrete_laplace(count, scale, source), -int(9 * scale), int(9 * scale))


def shifted_by_one_in_fifty(count: int, scale: Fraction, source: NoiseSource) -> np.ndarray:
    return discrete_laplace(count, scale, source) + (np.arange(count) % 50 == 0)


@pytest.mark.parametrize("planted", [half_scale, rounded_float, zero_twice, cut_tail, shifted_by_one_in_fifty])
def test_wrong_samplers_are_caught(planted: Draw) -> None:
    """Power: the test that the honest sampler passes at the same size refuses each of these."""
    scale = Fraction(2)
    assert misfit(*laplace_hits(planted(DRAWS, scale, seeded(52)), scale), DRAWS) != ""


def test_neighbouring_draws_are_independent() -> None:
    signs = discrete_laplace(DRAWS, Fraction(3), seeded(55)) > 0
    chance = DiscreteLaplace(Fraction(3)).tail(1)
    for lag in (1, 2, 7):
        pairs = signs[: -lag or None] & signs[lag:]
        # Every second block of lag + 1, so that the pairs tested share no draw and the binomial law is exact.
        pairs = pairs[:: lag + 1]
        assert misfit([int(pairs.sum())], [chance**2], pairs.size) == ""


@given(
    st.integers(0, 300),
    st.builds(Fraction, st.integers(1, 2**31), st.integers(1, 2**31)),
    st.integers(0, 99),
)
def test_any_rational_scale(size: int, scale: Fraction, seed: int) -> None:
    values = discrete_laplace(size, scale, seeded(seed))
    assert values.shape == (size,)
    assert values.dtype == np.int64
    assert values.tolist() == discrete_laplace(size, scale, seeded(seed)).tolist()
    # 60 scales: exp(-60) each.
    assert np.all(np.abs(values) <= 60 * scale + 1)


@pytest.mark.parametrize("size", [2**16 - 1, 2**16, 2**16 + 1, 3 * 2**16])
def test_sizes_around_a_chunk(size: int) -> None:
    assert discrete_laplace(size, Fraction(3), seeded(1)).shape == (size,)


def test_a_source_of_zeros_is_refused() -> None:
    with pytest.raises(EngineInputError, match="uniform"):
        discrete_laplace(1, Fraction(3), Scripted(forever=0))


@pytest.mark.parametrize("scale", SCALES[:8], ids=str)
def test_the_stated_law_is_a_law_and_its_variance_right(scale: Fraction) -> None:
    law = DiscreteLaplace(scale)
    if scale < 2000:
        reach = range(1, int(60 * scale) + 3)
        assert math.isclose(law.pmf(0) + 2 * sum(map(law.pmf, reach)), 1, rel_tol=1e-12)
        assert math.isclose(law.variance, 2 * sum(k * k * law.pmf(k) for k in reach), rel_tol=1e-9)
    assert law.variance <= 2 * float(scale) ** 2
    for k in (-5, -1, 0, 1, 2, 9):
        assert math.isclose(law.tail(k) - law.tail(k + 1), law.pmf(k), rel_tol=1e-6, abs_tol=1e-15)
        assert math.isclose(law.tail(k) + law.tail(1 - k), 1)
    # The privacy guarantee itself: neighbouring counts differ by exp(1/scale) at most.
    assert all(law.pmf(k) <= law.pmf(k + 1) * math.exp(1 / scale) * (1 + 1e-12) for k in range(5) if law.pmf(k + 1))


def test_a_tiny_scale_has_a_tiny_variance() -> None:
    assert DiscreteLaplace(Fraction(1, 2000)).variance == 0.0


@given(st.integers(1, 2**20), st.fractions(min_value=Fraction(1, 2**20), max_value=2**70, max_denominator=2**90))
def test_scales_are_rounded_up_and_hardly(sensitivity: int, epsilon: Fraction) -> None:
    exact = sensitivity / epsilon
    scale = scale_for(sensitivity, epsilon)
    assert scale >= exact
    assert scale <= max(exact * (1 + Fraction(1, 2**39)), exact + Fraction(1, 2**41))
    assert max(scale.numerator, scale.denominator) <= MAX_TERM
    if max(exact.numerator, exact.denominator) <= 2**41:
        assert scale == exact


def test_a_float_epsilon_turned_into_a_fraction() -> None:
    scale = scale_for(1, Fraction(0.1))
    assert 0 <= scale - 1 / Fraction(0.1) < Fraction(1, 2**37)
    assert discrete_laplace(1, scale, seeded(1)).shape == (1,)


@pytest.mark.parametrize(
    "call",
    [
        lambda: discrete_laplace(-1, Fraction(1), seeded(1)),
        lambda: discrete_laplace(1, Fraction(0), seeded(1)),
        lambda: discrete_laplace(1, Fraction(-1), seeded(1)),
        lambda: discrete_laplace(1, 1.0, seeded(1)),  # type: ignore[arg-type]
        lambda: discrete_laplace(1, Fraction(MAX_TERM + 1), seeded(1)),
        lambda: discrete_laplace(1, Fraction(1, MAX_TERM + 1), seeded(1)),
        lambda: DiscreteLaplace(0.5),  # type: ignore[arg-type]
        lambda: scale_for(0, Fraction(1)),
        lambda: scale_for(1, Fraction(0)),
        lambda: scale_for(1, 0.1),  # type: ignore[arg-type]
        lambda: scale_for(1, Fraction(1, 2**41 + 1)),
    ],
    ids=count(),
)
def test_outside_the_contract(call: Any) -> None:
    with pytest.raises(EngineInputError):
        call()
