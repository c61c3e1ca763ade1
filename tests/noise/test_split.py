"""PrivTree's bits: the law, and that no bit is certain however deep in the tail. False-positive rate 1e-6 a test."""

import math
from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.noise import seeded
from engines.core.noise.split import laplace_exceeds
from schemas.errors import EngineInputError
from tests.noise.goodness import Scripted, misfit

DRAWS = 200_000
UNIT = Fraction(1, 2**20)
# Near 10.5, with terms that leave int64 when they meet: drawn in Python integers.
LONG = Fraction(3**40, 2**60 + 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def exceeds(x: float) -> float:
    return math.exp(-x) / 2 if x >= 0 else 1 - math.exp(x) / 2


@pytest.mark.parametrize("scale", [Fraction(6), Fraction(1, 3), Fraction(2**31 - 1, 2**20), LONG], ids=str)
@pytest.mark.parametrize("scales", [-6, -1, Fraction(-1, 9), 0, Fraction(1, 9), 1, 6, 9], ids=str)
def test_law(scale: Fraction, scales: Fraction) -> None:
    threshold = round(scales * scale / UNIT)
    draws = 4_000 if scale is LONG else DRAWS
    bits = laplace_exceeds(np.full(draws, threshold), unit=UNIT, scale=scale, source=seeded(61))
    assert bits.dtype == np.bool_
    assert misfit([int(bits.sum())], [exceeds(float(threshold * UNIT / scale))], draws) == ""


def test_half_the_scale_is_caught() -> None:
    bits = laplace_exceeds(np.full(DRAWS, 1), unit=Fraction(1), scale=Fraction(1, 2), source=seeded(62))
    assert misfit([int(bits.sum())], [exceeds(1)], DRAWS) != ""


def float_twin(thresholds: np.ndarray, word: int) -> list[bool]:
    """What a float64 probability does, for scale 1: planted, and shown to be certain where it must not be."""
    return [word / 2**64 < exceeds(float(x)) for x in thresholds]


@pytest.mark.parametrize("scales", [1, 36, 37, 38, 217, 1_000, 10_000])
def test_no_threshold_is_certain(scales: int) -> None:
    """Words small enough decide for the tail on both sides: the probabilities are neither 0 nor 1.

    How small follows from the digits of exp(-v), which test_digits holds to decimal arithmetic.
    """
    thresholds = np.array([scales, -scales])
    # First the word of the two sides, heads for both; then words that are below every probability.
    rare = laplace_exceeds(thresholds, unit=Fraction(1), scale=Fraction(1), source=Scripted(2**64 - 1, forever=0))
    assert rare.tolist() == [True, False]
    usual = laplace_exceeds(thresholds, unit=Fraction(1), scale=Fraction(1), source=Scripted(forever=2**64 - 1))
    assert usual.tolist() == [False, True]
    if scales >= 38:
        # The largest float below 1 is a word that a float64 comparison can not place above 1 - exp(-38)/2.
        assert float_twin(-thresholds[:1], 2**64 - 2**11) == [True]


def test_the_tail_is_not_cut_at_any_word() -> None:
    """exp(-37): heads, then exp(-32) * exp(-5). Each factor is decided at its own first digits."""
    from engines.core.noise.digits import exp_digits

    below = exp_digits(32, 1) - 1, exp_digits(5, 1) - 1
    above = exp_digits(32, 1) - 1, exp_digits(5, 1) + 1
    for script, bit in ((below, True), (above, False)):
        source = Scripted(1, *script)
        assert laplace_exceeds([37], unit=Fraction(1), scale=Fraction(1), source=source).tolist() == [bit]


@given(st.lists(INT64, max_size=8), st.integers(0, 99), st.fractions(min_value=Fraction(1, 2**40), max_value=2**40))
def test_the_opposite_threshold_gives_the_opposite_bit(thresholds: list[int], seed: int, scale: Fraction) -> None:
    array = np.array([x for x in thresholds if x not in (0, -(2**63))], dtype=np.int64)
    bits = laplace_exceeds(array, unit=UNIT, scale=scale, source=seeded(seed))
    assert bits.tolist() == laplace_exceeds(array, unit=UNIT, scale=scale, source=seeded(seed)).tolist()
    opposite = laplace_exceeds(-array, unit=UNIT, scale=scale, source=seeded(seed))
    assert bits.tolist() == (~opposite).tolist()


@given(st.lists(INT64, max_size=5), st.integers(2, 10**30))
def test_the_units_are_only_a_ratio(thresholds: list[int], factor: int) -> None:
    array = np.array(thresholds, dtype=np.int64)
    one = laplace_exceeds(array, unit=UNIT, scale=Fraction(5), source=seeded(3))
    same = laplace_exceeds(array, unit=UNIT * factor, scale=Fraction(5) * factor, source=seeded(3))
    assert one.tolist() == same.tolist()


def test_the_ends_of_int64() -> None:
    ends = np.array([-(2**63), 2**63 - 1])
    for unit in (UNIT, Fraction(10**30), Fraction(1, 10**30)):
        bits = laplace_exceeds(np.repeat(ends, 500), unit=unit, scale=Fraction(1), source=seeded(63))
        if unit > 1 / Fraction(10**20):
            assert bits.tolist() == [True] * 500 + [False] * 500
        else:
            assert misfit([int(bits.sum())], [0.5], 1000) == ""


@pytest.mark.parametrize(
    "call",
    [
        lambda: laplace_exceeds([0.5], unit=UNIT, scale=Fraction(1), source=seeded(1)),
        lambda: laplace_exceeds([[1]], unit=UNIT, scale=Fraction(1), source=seeded(1)),
        lambda: laplace_exceeds([1], unit=Fraction(0), scale=Fraction(1), source=seeded(1)),
        lambda: laplace_exceeds([1], unit=UNIT, scale=Fraction(-1), source=seeded(1)),
        lambda: laplace_exceeds([1], unit=UNIT, scale=1.0, source=seeded(1)),  # type: ignore[arg-type]
    ],
    ids=count(),
)
def test_outside_the_contract(call: Any) -> None:
    with pytest.raises(EngineInputError):
        call()
