"""Costs as data: composition rules as algebra, exact."""

import math
from dataclasses import FrozenInstanceError
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.accounting import (
    Contributions,
    Cost,
    DiscreteGaussianEvent,
    Event,
    GaussianEvent,
    Parallel,
    PureEvent,
    Sequential,
    fold,
)
from schemas.errors import EngineInputError

FRACTIONS = st.builds(Fraction, st.integers(1, 9), st.integers(1, 9))
LEAVES: st.SearchStrategy[Event] = (
    st.builds(PureEvent, FRACTIONS)
    | st.builds(GaussianEvent, sigma_squared=FRACTIONS, l2_squared=FRACTIONS, count=st.integers(1, 5))
    | st.builds(
        DiscreteGaussianEvent, sigma_squared=FRACTIONS, l2_sensitivity=st.integers(1, 3), count=st.integers(1, 5)
    )
)
TREES: st.SearchStrategy[Event] = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(Sequential, st.lists(inner, max_size=3).map(tuple))
        | st.builds(Parallel, st.lists(inner, max_size=3).map(tuple))
        | st.builds(Contributions, inner, st.integers(1, 3))
    ),
    max_leaves=6,
)


def within(small: Cost, large: Cost) -> bool:
    """No part of the one is above the other's."""
    return (
        small.pure <= large.pure
        and small.pure_rho <= large.pure_rho
        and small.mu_squared <= large.mu_squared
        and all(count <= dict(large.discrete).get(shift, 0) for shift, count in small.discrete)
    )


@given(TREES, TREES, TREES)
def test_order_and_grouping_do_not_matter(a: Event, b: Event, c: Event) -> None:
    for compose in (Sequential, Parallel):
        assert fold(compose((a, b, c))) == fold(compose((c, compose((b, a)))))
        assert fold(compose((a,))) == fold(a)
    assert fold(Parallel((a, a))) == fold(a)


@given(TREES, TREES, st.integers(1, 4), st.integers(1, 4))
def test_nothing_comes_free(a: Event, b: Event, m: int, n: int) -> None:
    assert within(fold(a), fold(Sequential((a, b))))
    assert within(fold(a), fold(Parallel((a, b))))
    assert within(fold(Parallel((a, b))), fold(Sequential((a, b))))
    assert fold(Contributions(Contributions(a, m), n)) == fold(Contributions(a, m * n))
    assert fold(a).rho <= fold(Contributions(a, m)).rho == m * m * fold(a).rho


@given(TREES, TREES, st.integers(1, 4))
def test_a_user_of_both_pays_for_both(a: Event, b: Event, m: int) -> None:
    one = fold(Contributions(Sequential((a, b)), m))
    assert one == fold(Sequential((Contributions(a, m), Contributions(b, m))))


def test_rules_by_hand() -> None:
    pure = Sequential((PureEvent(Fraction(1, 2)), PureEvent(Fraction(1, 3))))
    assert fold(pure).pure == Fraction(5, 6)
    assert fold(pure).pure_rho == Fraction(1, 8) + Fraction(1, 18)
    noise = GaussianEvent(sigma_squared=Fraction(9), l2_squared=Fraction(4), count=3)
    assert fold(noise).mu_squared == Fraction(4, 3)
    assert fold(Contributions(noise, 2)).mu_squared == Fraction(16, 3)
    discrete = DiscreteGaussianEvent(sigma_squared=Fraction(9), count=3)
    assert fold(Sequential((discrete, discrete))) == fold(DiscreteGaussianEvent(sigma_squared=Fraction(9), count=6))
    assert fold(Parallel((discrete, discrete))) == fold(discrete)
    assert fold(discrete).rho == Fraction(1, 6)
    assert fold(Sequential(())) == fold(Parallel(())) == Cost()


def test_events_are_values() -> None:
    assert PureEvent(Fraction(1)) == PureEvent(Fraction(1))
    with pytest.raises(FrozenInstanceError):
        PureEvent(Fraction(1)).epsilon = Fraction(2)  # type: ignore[misc]


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(EngineInputError, match="str is not an event"):
        fold(Sequential((PureEvent(Fraction(1)), "free")))  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [0, -1, 1.0, math.nan, math.inf, Fraction(0), Fraction(-1), "1", None])
def test_outside_the_contract(bad: Any) -> None:
    one = Fraction(1)
    for call in (
        lambda: PureEvent(bad),
        lambda: GaussianEvent(sigma_squared=bad),
        lambda: GaussianEvent(sigma_squared=one, l2_squared=bad),
        lambda: GaussianEvent(sigma_squared=one, count=bad),
        lambda: DiscreteGaussianEvent(sigma_squared=bad),
        lambda: DiscreteGaussianEvent(sigma_squared=one, l2_sensitivity=bad),
        lambda: DiscreteGaussianEvent(sigma_squared=one, count=bad),
        lambda: Contributions(PureEvent(one), bad),
    ):
        with pytest.raises(EngineInputError):
            call()
