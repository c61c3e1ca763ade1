"""zCDP, held to dp-accounting and to the exact Gaussian loss, which it may never be below."""

import math
from fractions import Fraction
from typing import Any

import pytest
from dp_accounting import NeighboringRelation, ZCDpEvent
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.accounting import Contributions, DiscreteGaussianEvent, PureEvent, Sequential, fold, gaussian, zcdp
from schemas.errors import EngineInputError

RHOS = st.floats(-6.0, 1.0).map(lambda e: 10.0**e)
DELTAS = st.floats(-30.0, -0.3).map(lambda e: 10.0**e)


@settings(max_examples=30)
@given(st.floats(-3.0, 0.7).map(lambda e: 10.0**e), st.floats(-10.0, -2.0).map(lambda e: 10.0**e))
def test_conversion_is_that_of_dp_accounting_with_the_best_order(rho: float, delta: float) -> None:
    """Same formula; they try the orders they are given, so a grid around the best one makes both meet."""
    ours = zcdp.epsilon(delta, rho)
    best = 1 + math.sqrt(math.log(1 / delta) / rho)
    oracle = RdpAccountant([1 + (best - 1) * 1.01**i for i in range(-80, 40)], NeighboringRelation.ADD_OR_REMOVE_ONE)
    oracle.compose(ZCDpEvent(rho))
    theirs = oracle.get_epsilon(delta)
    assert ours <= theirs * (1 + 1e-9)
    if theirs > rho:
        assert math.isclose(ours, theirs, rel_tol=2e-3)


@given(RHOS, DELTAS)
def test_never_below_the_exact_gaussian_loss(rho: float, delta: float) -> None:
    assert zcdp.epsilon(delta, rho) >= gaussian.epsilon(delta, math.sqrt(2 * rho))


@given(RHOS, DELTAS)
def test_never_above_the_simple_conversion(rho: float, delta: float) -> None:
    """[bun2016], proposition 1.3: rho + 2 sqrt(rho ln(1/delta))."""
    assert zcdp.epsilon(delta, rho) <= (rho + 2 * math.sqrt(rho * math.log(1 / delta))) * (1 + 1e-9)


@given(st.floats(-3.0, 1.5).map(lambda e: 10.0**e), DELTAS)
def test_there_and_back(epsilon: float, delta: float) -> None:
    rho = zcdp.rho_for(epsilon, delta)
    assert zcdp.log_delta(epsilon, rho) <= math.log(delta)
    assert zcdp.log_delta(epsilon, rho * (1 + 1e-6)) > math.log(delta)


@given(st.floats(0.01, 5.0), RHOS, RHOS)
def test_delta_rises_with_rho(epsilon: float, a: float, b: float) -> None:
    assert zcdp.log_delta(epsilon, min(a, b)) <= zcdp.log_delta(epsilon, max(a, b)) + 1e-6


def test_of_a_tree() -> None:
    step = Sequential((DiscreteGaussianEvent(sigma_squared=Fraction(10), count=5), PureEvent(Fraction(1, 2))))
    assert zcdp.rho(step) == Fraction(1, 4) + Fraction(1, 8)
    assert zcdp.rho(Contributions(step, 3)) == 9 * Fraction(3, 8)


def test_pure_mechanisms_beside_noise_cost_the_smaller_of_two_bounds() -> None:
    many = fold(Sequential((PureEvent(Fraction(1, 100)),) * 200))
    assert zcdp.of_cost(many, 2.0) == 0.0
    assert 0 < zcdp.of_cost(many, 1.0) < 1e-10
    noise = DiscreteGaussianEvent(sigma_squared=Fraction(100))
    one = fold(Sequential((noise, PureEvent(Fraction(1)))))
    assert zcdp.of_cost(one, 2.0) == zcdp.delta(1.0, Fraction(1, 200))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "1", None])
@pytest.mark.parametrize("call", [zcdp.delta, zcdp.log_delta, zcdp.epsilon, zcdp.rho_for])
def test_outside_the_contract(call: Any, bad: Any) -> None:
    for arguments in ((bad, 0.5), (0.5, bad)):
        with pytest.raises(EngineInputError):
            call(*arguments)
