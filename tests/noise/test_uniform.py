"""Uniform integers: each test's false-positive rate is at most 1e-6, and the seeds are fixed."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.noise import random_bits, seeded, uniform_below
from schemas.errors import EngineInputError
from tests.noise.goodness import Scripted, misfit

DRAWS = 200_000
# 3 * 2**61: two thirds of the words below 2**64 are one whole cycle, so a missing rejection doubles the small values.
BOUNDS = [2, 3, 7, 64, 1000, 2**32 + 1, 2**62, 3 * 2**61, 2**63 - 1]


def eighths(values: np.ndarray, bound: int) -> tuple[list[int], list[float]]:
    edges = [bound * i // 8 for i in range(9)]
    hits = [int(np.sum((values >= low) & (values < high))) for low, high in pairwise(edges)]
    return hits, [(high - low) / bound for low, high in pairwise(edges)]


@pytest.mark.parametrize("bound", BOUNDS)
def test_uniform(bound: int) -> None:
    values = uniform_below(bound, DRAWS, seeded(21))
    assert values.dtype == np.int64
    assert misfit(*eighths(values, bound), DRAWS) == ""


def test_modulo_bias_is_caught() -> None:
    bound = 3 * 2**61
    values = (seeded(22).words(DRAWS) % np.uint64(bound)).view(np.int64)
    assert misfit(*eighths(values, bound), DRAWS) != ""


@given(st.integers(1, 2**63 - 1), st.integers(0, 99))
def test_every_value_is_below_the_bound(bound: int, seed: int) -> None:
    values = uniform_below(bound, 20, seeded(seed))
    assert np.all((values >= 0) & (values < bound))
    one = uniform_below(bound, 1, Scripted(int(values[0])))
    assert one[0] == values[0], "a word below the bound is its own value"


@pytest.mark.parametrize("bound", [3, 10, 3 * 2**61, 2**63 - 1])
def test_the_first_refused_word_is_the_first_of_an_incomplete_cycle(bound: int) -> None:
    last = 2**64 - 2**64 % bound - 1
    assert uniform_below(bound, 1, Scripted(last)).tolist() == [bound - 1]
    assert uniform_below(bound, 1, Scripted(last + 1, 5)).tolist() != [0]


@pytest.mark.parametrize("bound", [0, -1, 2**63])
def test_bounds_outside_the_contract(bound: int) -> None:
    with pytest.raises(EngineInputError, match="bound"):
        uniform_below(bound, 2, seeded(1))


def test_count_outside_the_contract() -> None:
    for draw in (lambda: uniform_below(2, -1, seeded(1)), lambda: random_bits(-1, seeded(1))):
        with pytest.raises(EngineInputError, match="count"):
            draw()
    assert uniform_below(5, 0, seeded(1)).shape == (0,)


def test_bits_are_fair_and_neighbours_independent() -> None:
    bits = random_bits(DRAWS, seeded(23))
    assert bits.dtype == np.bool_
    assert misfit([int(bits.sum())], [0.5], DRAWS) == ""
    for lag in (1, 2, 63, 64, 65):
        assert misfit([int((bits[lag:] == bits[:-lag]).sum())], [0.5], DRAWS - lag) == ""


@given(st.integers(0, 200))
def test_bits_are_the_digits_of_the_words_lowest_first(count: int) -> None:
    words = seeded(4).words(-(-count // 64)).tolist()
    assert random_bits(count, seeded(4)).tolist() == [bool(words[i // 64] >> i % 64 & 1) for i in range(count)]
