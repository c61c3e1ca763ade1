"""Comparisons with exp(-v): the digits against decimal arithmetic, ties forced by a scripted source, and the law."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from engines.core.noise import geometric, seeded
from engines.core.noise.digits import TOP, below_exp, exp_digits
from schemas.errors import EngineInputError
from tests.noise.goodness import Scripted, misfit

DRAWS = 500_000


@pytest.mark.parametrize("v", [0, 1, 2, 5, 31, 32, 217])
@pytest.mark.parametrize("words", [1, 2, 3, 8])
def test_digits_agree_with_decimal_arithmetic(v: int, words: int) -> None:
    with localcontext(prec=400):
        assert exp_digits(v, words) == int(Decimal(-v).exp() * 2 ** (64 * words))


@pytest.mark.parametrize("v", [1, 2, 17, TOP])
def test_the_first_word_decides_and_ties_look_further(v: int) -> None:
    first, second = divmod(exp_digits(v, 2), 2**64)
    third = exp_digits(v, 3) % 2**64
    decisions = {
        (first - 1,): True,
        (first + 1,): False,
        (first, second - 1): True,
        (first, second + 1): False,
        (first, second, third - 1): True,
        (first, second, third + 1): False,
    }
    for script, below in decisions.items():
        assert below_exp(np.array([v]), Scripted(*script)).tolist() == [below], script
        # The same uniform number as a geometric value: v is reached if it is below exp(-v).
        if v < TOP:
            assert geometric(1, Scripted(*script)).tolist() == [v if below else v - 1], script


def test_a_tie_does_not_touch_its_neighbours() -> None:
    tie = exp_digits(3, 1)
    # Words of the three coins, then the second word of the tie: as large as can be, so it is decided against.
    assert below_exp(np.array([3, 3, 3]), Scripted(0, tie, 0, 2**64 - 1)).tolist() == [True, False, True]
    assert geometric(3, Scripted(2**64 - 1, tie, 2**64 - 1, 2**64 - 1)).tolist() == [0, 2, 0]


def test_far_values_are_reached() -> None:
    assert geometric(2, Scripted(2**64 - 1, 0, 0, 2**64 - 1)).tolist() == [0, 2 * TOP]
    edge = exp_digits(TOP, 1)
    assert geometric(1, Scripted(edge, 0, 2**64 - 1)).tolist() == [TOP]
    assert geometric(1, Scripted(edge, 2**64 - 1)).tolist() == [TOP - 1]


def test_a_source_of_zeros_is_refused_and_not_believed() -> None:
    with pytest.raises(EngineInputError, match="uniform"):
        geometric(1, Scripted(forever=0))


def test_law() -> None:
    """False-positive rate 1e-6."""
    values = geometric(DRAWS, seeded(31))
    hits = [int(np.sum(values >= v)) for v in range(1, 13)]
    assert misfit(hits, [math.exp(-v) for v in range(1, 13)], DRAWS) == ""
    for v in (1, 2, 6):
        hit = int(below_exp(np.full(DRAWS, v), seeded(32)).sum())
        assert misfit([hit], [math.exp(-v)], DRAWS) == ""
