"""Coins of exponential probability. False-positive rate of each law test: 1e-6 at most, seeds fixed."""

import importlib
import math
from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.noise import bernoulli_exp, bernoulli_exp_multiples, seeded
from schemas.errors import EngineInputError
from tests.noise.goodness import Choose, Scripted, exact_law, misfit

DRAWS = 200_000
MODULE = importlib.import_module("engines.core.noise.bernoulli")
BIG = 2**31 - 1
EXPONENTS = [
    Fraction(0),
    Fraction(1, BIG),
    Fraction(1, 3),
    Fraction(BIG - 1, BIG),
    Fraction(1),
    Fraction(7, 3),
    Fraction(BIG, 2**30),
    Fraction(9),
    Fraction(2**63 - 1, 2**62),  # the numerator fills an int64
    Fraction(2**63 - 1, 2**61 + 1),
]
HUGE = [Fraction(2**90 + 1, 2**90), Fraction(3**60, 2**95), Fraction(10**40, 3 * 10**40 + 1)]


@pytest.mark.parametrize("exponent", EXPONENTS, ids=str)
def test_bernoulli_exp(exponent: Fraction) -> None:
    hits = bernoulli_exp(np.full(DRAWS, exponent.numerator), exponent.denominator, seeded(41))
    assert misfit([int(hits.sum())], [math.exp(-exponent)], DRAWS) == ""


@pytest.mark.parametrize("exponent", HUGE, ids=["1", "1.07", "0.33"])
def test_numbers_beyond_int64(exponent: Fraction) -> None:
    """Power at 4,000 draws: a probability that is off by 0.05 is found."""
    hits = bernoulli_exp_multiples(np.ones(4_000, dtype=np.int64), exponent, seeded(42))
    assert misfit([int(hits.sum())], [math.exp(-exponent)], 4_000) == ""


def test_large_exponents_beyond_int64_are_products_too() -> None:
    """exp(-70): three factors, of which the second or third may fail; the rest of 2**-70 is as good as certain."""
    exponent = Fraction(70 * 2**70 + 1, 2**70)
    for words, coin in (((0, 0, 0), True), ((0, 2**64 - 1), False), ((0, 0, 2**64 - 1), False)):
        assert bernoulli_exp_multiples(np.array([1]), exponent, Scripted(*words)).tolist() == [coin]


@pytest.mark.parametrize("bound", [1, 2, 5, 8, 3 * 2**70])
def test_integers_below_any_bound(bound: int) -> None:
    source = seeded(48)
    values = [MODULE._uniform_below_any(bound, source) for _ in range(5_000)]
    assert all(0 <= value < bound for value in values)
    cells = bound if bound <= 8 else 6  # both divide their bound, so the cells are equal
    hits = [sum(cell * bound <= value * cells < (cell + 1) * bound for value in values) for cell in range(cells)]
    assert misfit(hits, [1 / cells] * cells, 5_000) == ""


def test_products_beyond_int64_with_a_small_denominator() -> None:
    multiples = np.array([2**40, 2**40 + 2**39])
    unit = Fraction(2**31 - 1, 2**71)
    for multiple in multiples:
        hits = bernoulli_exp_multiples(np.full(DRAWS, multiple), unit * 3, seeded(43))
        assert misfit([int(hits.sum())], [math.exp(-int(multiple) * unit * 3)], DRAWS) == ""
    # And with a denominator that fits, so that only the product does not.
    unit = Fraction(2**31 - 1, 2**62 - 57)
    hits = bernoulli_exp_multiples(np.full(DRAWS, 2**32), unit, seeded(44))
    assert misfit([int(hits.sum())], [math.exp(-(2**32) * unit)], DRAWS) == ""


@pytest.mark.parametrize(("numerator", "denominator"), [(3, 4), (1, 2), (5, 6), (7, 4)])
def test_algorithm_1_step_by_step(monkeypatch: pytest.MonkeyPatch, numerator: int, denominator: int) -> None:
    """No statistics: all runs of the sampler that need less than a few coins, and their exact probability."""
    whole = numerator // denominator

    def run(choose: Choose) -> bool:
        def uniform_below(bound: int, size: int, source: Any) -> np.ndarray:
            return np.array([choose([1 / bound] * bound) for _ in range(size)], dtype=np.int64)

        def below_exp(v: np.ndarray, source: Any) -> np.ndarray:
            return np.array([choose([1 - math.exp(-x), math.exp(-x)]) == 1 for x in v], dtype=np.bool_)

        monkeypatch.setattr(MODULE, "uniform_below", uniform_below)
        monkeypatch.setattr(MODULE, "below_exp", below_exp)
        return bool(bernoulli_exp([numerator], denominator, seeded(0))[0])

    law, cut_off = exact_law(run, floor=1e-7)
    truth = math.exp(-numerator / denominator)
    assert whole in (0, 1)
    assert cut_off < 2e-3
    assert law[True] <= truth + 1e-12
    assert law[True] + cut_off >= truth - 1e-12
    assert abs(law[True] - truth) < 2e-3


@pytest.mark.parametrize("exponent", [10**6, 10**17])
def test_far_tails_take_a_word_each_and_are_not_impossible(exponent: int) -> None:
    honest = seeded(45)
    assert not bernoulli_exp(np.full(100_000, exponent), 1, honest).any()
    assert "draws=1)" in repr(honest), "all coins are decided by their first word"
    if exponent == 10**6:
        assert bernoulli_exp([exponent], 1, Scripted(forever=0)).tolist() == [True]


def test_certain_coins() -> None:
    assert bernoulli_exp(np.zeros(100, dtype=np.int64), 7, seeded(1)).all()
    assert bernoulli_exp_multiples(np.array([2**63], dtype=np.uint64), Fraction(0), seeded(1)).all()
    assert bernoulli_exp_multiples(np.array([], dtype=np.int64), Fraction(2), seeded(1)).shape == (0,)


@given(
    st.lists(st.integers(0, 2**63 - 1), max_size=6),
    st.fractions(min_value=0, max_value=2**70, max_denominator=2**80),
    st.integers(0, 9),
)
def test_any_fraction_gives_the_same_coins_again(multiples: list[int], unit: Fraction, seed: int) -> None:
    array = np.array(multiples, dtype=np.int64)
    before = array.copy()
    coins = bernoulli_exp_multiples(array, unit, seeded(seed))
    assert coins.dtype == np.bool_
    assert coins.tolist() == bernoulli_exp_multiples(array, unit, seeded(seed)).tolist()
    assert np.all(coins[array * (unit > 0) == 0])
    assert array.tolist() == before.tolist()


def test_wrong_coins_are_caught() -> None:
    """Power: a probability that is off by one percent is found at this size."""
    hits = int(bernoulli_exp(np.full(DRAWS, 101), 100, seeded(47)).sum())
    assert misfit([hits], [math.exp(-0.99)], DRAWS) != ""


@pytest.mark.parametrize(
    "call",
    [
        lambda: bernoulli_exp([-1], 2, seeded(1)),
        lambda: bernoulli_exp([1], 0, seeded(1)),
        lambda: bernoulli_exp([1.5], 1, seeded(1)),
        lambda: bernoulli_exp([[1]], 1, seeded(1)),
        lambda: bernoulli_exp(np.array([2**63], dtype=np.uint64), 1, seeded(1)),
    ],
    ids=count(),
)
def test_outside_the_contract(call: Any) -> None:
    with pytest.raises(EngineInputError):
        call()
