"""The worst arrangement of a user's events, held to every arrangement there is."""

import itertools
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.accounting.user_level import l2_squared, worst
from schemas.errors import EngineInputError

WEIGHTS = st.lists(st.integers(-5, 5) | st.fractions(-5, 5, max_denominator=7), min_size=1, max_size=5)


def arrangements(steps: int, total: int, per_step: int) -> Any:
    return (n for n in itertools.product(range(per_step + 1), repeat=steps) if sum(n) <= total)


@given(WEIGHTS, st.integers(1, 7), st.integers(1, 4))
def test_brute_force(weights: list[Fraction], total: int, per_step: int) -> None:
    every = list(arrangements(len(weights), total, per_step))
    squares = max(sum((n * w) ** 2 for n, w in zip(each, weights, strict=True)) for each in every)
    assert l2_squared(weights, total=total, per_step=per_step) == squares


def test_one_event_a_step_is_not_the_worst_case() -> None:
    """The mistake this module is against: ten events, shift 1 in each of ten steps, where all ten may fall into one."""
    assert l2_squared([1] * 100, total=10, per_step=1) == 10
    assert l2_squared([1] * 100, total=10, per_step=10) == 100
    assert worst([1] * 100, total=10, per_step=4) == [(4, 1), (4, 1), (2, 1)]


@given(WEIGHTS, st.integers(1, 9), st.integers(1, 9))
def test_more_events_move_more(weights: list[Fraction], total: int, per_step: int) -> None:
    base = l2_squared(weights, total=total, per_step=per_step)
    assert base <= l2_squared(weights, total=total + 1, per_step=per_step)
    assert base <= l2_squared(weights, total=total, per_step=per_step + 1)
    assert base == l2_squared([-w for w in reversed(weights)], total=total, per_step=per_step)


@pytest.mark.parametrize(
    ("weights", "total", "per_step"),
    [([1], 0, 1), ([1], 1, 0), ([1], -1, 1), ([1], 1.5, 1), ([math.nan], 1, 1), ([math.inf], 1, 1)],
)
@pytest.mark.parametrize("call", [l2_squared, worst])
def test_outside_the_contract(call: Any, weights: Any, total: Any, per_step: Any) -> None:
    with pytest.raises(EngineInputError):
        call(weights, total=total, per_step=per_step)
