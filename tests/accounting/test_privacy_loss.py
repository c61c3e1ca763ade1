"""Discrete Gaussian loss, held to sums over every outcome, and all compositions to dp-accounting's own accountant."""

import math
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.accounting import (
    Contributions,
    DiscreteGaussianEvent,
    GaussianEvent,
    PureEvent,
    Sequential,
    fold,
    gaussian,
    privacy_loss,
    zcdp,
)
from engines.core.noise import DiscreteGaussian
from schemas.errors import EngineInputError

pytestmark = pytest.mark.seconds(0.5)


def losses(sigma_squared: Fraction, shifts: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Every outcome of noise on integers that move by these shifts: its loss times 2 sigma**2, and its mass."""
    law, reach = DiscreteGaussian(sigma_squared), math.ceil(13 * math.sqrt(sigma_squared)) + 1
    total = {0: 1.0}
    for shift in shifts:
        longer: dict[int, float] = {}
        for k in range(-reach, reach + 1):
            mass = law.pmf(k)
            for loss, before in total.items():
                at = loss + shift * (2 * k + shift)
                longer[at] = longer.get(at, 0.0) + before * mass
        total = longer
    return np.array(list(total)), np.array(list(total.values()))


def exact_delta(sigma_squared: Fraction, shifts: tuple[int, ...], epsilon: float) -> float:
    units, masses = losses(sigma_squared, shifts)
    loss = units / (2 * float(sigma_squared))
    over = loss > epsilon
    return math.fsum(masses[over] * -np.expm1(epsilon - loss[over]))


@pytest.mark.parametrize(
    ("sigma_squared", "shift", "count"),
    [(1, 1, 1), (4, 1, 1), (4, 3, 1), (Fraction(1, 4), 1, 2), (Fraction(7, 3), 2, 3), (100, 1, 5), (1369, 1, 2)],
)
def test_every_outcome_added_up(sigma_squared: Any, shift: int, count: int) -> None:
    s2 = Fraction(sigma_squared)
    event = DiscreteGaussianEvent(sigma_squared=s2, l2_sensitivity=shift, count=count)
    mu = shift * math.sqrt(count / s2)
    for epsilon in (0.1 * mu, mu, mu * (mu / 2 + 2), mu * (mu / 2 + 4)):
        exact = exact_delta(s2, (shift,) * count, epsilon)
        ours = privacy_loss.delta(event, epsilon)
        assert exact * (1 - 1e-9) <= ours <= exact * (1 + 1e-6) + 2e-15 * count, epsilon


@pytest.mark.parametrize(("sigma", "factor"), [(1, 2.14), (2, 1.35), (37, 1.0009)])
def test_discrete_noise_is_not_continuous_noise(sigma: int, factor: float) -> None:
    """Largest delta over the Gaussian formula's, over all epsilon at which that formula says at least 1e-9."""
    event = DiscreteGaussianEvent(sigma_squared=Fraction(sigma**2))
    # The ratio peaks where losses lie, (2 k + 1) / (2 sigma**2), and close below.
    peaks = [(2 * k + 1) / (2 * sigma**2) for k in range(8 * sigma)]
    ratios = [
        privacy_loss.delta(event, e) / gaussian.delta(e, 1 / sigma)
        for peak in peaks
        for e in peak * np.linspace(0.9, 1.0, 41)
        if gaussian.delta(e, 1 / sigma) >= 1e-9
    ]
    print(f"sigma {sigma}: factor {max(ratios):.5f}")
    assert math.isclose(max(ratios), factor, rel_tol=0.005 if sigma < 37 else 5e-5)


def test_the_grid_on_the_lattice_rounds_nothing_where_the_default_one_does() -> None:
    event = DiscreteGaussianEvent(sigma_squared=Fraction(37**2), count=100)
    default = (
        privacy_loss_distribution.from_discrete_gaussian_mechanism(37.0).self_compose(100).get_delta_for_epsilon(1.0)
    )
    continuous = gaussian.delta(1.0, 10 / 37)
    assert default > 1.07 * continuous
    assert 0.9999 * continuous < privacy_loss.delta(event, 1.0) < 1.0001 * continuous


SMALL = st.builds(Fraction, st.integers(1, 12), st.integers(1, 3))
DISCRETE = st.builds(
    lambda s, k, n: DiscreteGaussianEvent(sigma_squared=s, l2_sensitivity=k, count=n),
    SMALL,
    st.integers(1, 2),
    st.integers(1, 3),
)
CONTINUOUS = st.builds(lambda s, n: GaussianEvent(sigma_squared=s, count=n), SMALL, st.integers(1, 3))
PURE = st.builds(PureEvent, st.fractions(Fraction(1, 10), 1, max_denominator=10))
EVENTS = st.lists(DISCRETE | CONTINUOUS | PURE, min_size=1, max_size=4)
EPSILONS = st.floats(0.2, 8.0)


@settings(max_examples=15)
@given(EVENTS, EPSILONS, st.randoms())
def test_order_does_not_matter_and_zcdp_is_never_better(events: list[Any], epsilon: float, chance: Any) -> None:
    tree = Sequential(tuple(events))
    delta = privacy_loss.delta(tree, epsilon)
    chance.shuffle(events)
    assert privacy_loss.delta(Sequential(tuple(events)), epsilon) == delta
    assert privacy_loss.delta(Sequential((tree,)), epsilon) == delta
    assert delta <= zcdp.of_cost(fold(tree), epsilon)


@settings(max_examples=8)
@given(EVENTS, DISCRETE | CONTINUOUS | PURE, EPSILONS, EPSILONS)
def test_monotone(events: list[Any], more: Any, a: float, b: float) -> None:
    tree = Sequential(tuple(events))
    at = privacy_loss.delta(tree, min(a, b))
    slack = 1e-9 * at + 1e-13
    assert privacy_loss.delta(tree, max(a, b)) <= at + slack
    assert privacy_loss.delta(Sequential((*events, more)), min(a, b)) >= at - slack
    assert privacy_loss.delta(Contributions(tree, 2), min(a, b)) >= at - slack


@settings(max_examples=5)
@given(st.lists(CONTINUOUS, min_size=1, max_size=2), EPSILONS)
def test_gaussian_compositions_against_dp_accounting(events: list[GaussianEvent], epsilon: float) -> None:
    """Continuous noise: the oracle composes event by event and is pessimistic by its grid, so ours is not above it."""
    oracle = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    for event in events:
        oracle.compose(GaussianDpEvent(math.sqrt(event.sigma_squared)), event.count)
    ours, theirs = privacy_loss.delta(Sequential(tuple(events)), epsilon), oracle.get_delta(epsilon)
    assert ours <= theirs * (1 + 1e-6) + 1e-14
    assert ours >= theirs * 0.98 - 1e-12


@settings(max_examples=15)
@given(st.lists(DISCRETE | PURE, min_size=1, max_size=3), EPSILONS)
def test_mixed_compositions_against_dp_accounting(events: list[Any], epsilon: float) -> None:
    """The oracle on its own default grid, which is pessimistic by a little: ours is below it, and near."""
    grid = 1e-4
    oracle = privacy_loss_distribution.identity(grid)
    for event in events:
        if isinstance(event, PureEvent):
            one = privacy_loss_distribution.from_privacy_parameters(
                privacy_loss_distribution.common.DifferentialPrivacyParameters(float(event.epsilon), 0.0), grid
            )
            oracle = oracle.compose(one)
        else:
            one = privacy_loss_distribution.from_discrete_gaussian_mechanism(
                math.sqrt(event.sigma_squared),
                sensitivity=event.l2_sensitivity,
                truncation_bound=math.ceil(12 * math.sqrt(event.sigma_squared)) + 2,
                value_discretization_interval=grid,
                use_connect_dots=True,
            )
            oracle = oracle.compose(one.self_compose(event.count))
    ours, theirs = privacy_loss.delta(Sequential(tuple(events)), epsilon), oracle.get_delta_for_epsilon(epsilon)
    # Pure mechanisms are added up before they are composed with noise, which can only cost more.
    pure = sum(isinstance(event, PureEvent) for event in events)
    if pure < 2:
        assert ours <= theirs * 1.02 + 1e-12  # a pure epsilon is rounded up to the grid
    assert ours >= theirs * 0.98 - 1e-12


@pytest.mark.parametrize("sigma_squared", [Fraction(1, 3), Fraction(1), Fraction(5), Fraction(30)])
def test_events_in_one_place_are_the_worst_arrangement(sigma_squared: Fraction) -> None:
    """`Contributions` moves one integer by m. Spread over several integers, no partition of m costs more."""
    for m in (2, 3, 4):
        spread = [
            parts for n in range(2, m + 1) for parts in combinations_with_replacement(range(1, m), n) if sum(parts) == m
        ]
        for epsilon in (0.05, 0.5, 1.0, 2.0, 4.0):
            together = exact_delta(sigma_squared, (m,), epsilon)
            assert all(exact_delta(sigma_squared, parts, epsilon) <= together * (1 + 1e-9) for parts in spread)


@settings(max_examples=15)
@given(EVENTS, st.floats(-10.0, -2.0).map(lambda e: 10.0**e))
def test_epsilon_and_back(events: list[Any], delta: float) -> None:
    tree = Sequential(tuple(events))
    epsilon = privacy_loss.epsilon(tree, delta)
    assert privacy_loss.delta(tree, epsilon) <= delta
    if epsilon > 1e-3:
        assert privacy_loss.delta(tree, epsilon * 0.999) > delta * (1 - 1e-9)


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_sigma_that_is_just_enough(count: int, epsilon: float) -> None:
    s2 = privacy_loss.sigma_squared_for(epsilon=epsilon, delta=1e-5, count=count)
    assert privacy_loss.delta(DiscreteGaussianEvent(sigma_squared=s2, count=count), epsilon) <= 1e-5
    continuous = gaussian.sigma_for(epsilon=epsilon, delta=1e-5, l2_sensitivity=math.sqrt(count)) ** 2
    by_zcdp = count / (2 * zcdp.rho_for(epsilon, 1e-5))
    print(
        f"eps {epsilon}, T = {count}: variance discrete {float(s2) / count:.4f}, continuous {continuous / count:.4f}",
        end="",
    )
    print(f", zCDP {by_zcdp / count:.4f} a use")
    assert 0.8 * continuous < s2 < by_zcdp


def test_noise_too_large_for_arrays_falls_back_to_zcdp() -> None:
    event = DiscreteGaussianEvent(sigma_squared=Fraction(10**12))
    assert privacy_loss.delta(event, 1e-5) == zcdp.delta(1e-5, Fraction(1, 2 * 10**12))


def test_no_delta_for_pure_events() -> None:
    tree = Sequential((PureEvent(Fraction(1, 3)),) * 3)
    assert privacy_loss.delta(tree, 1.0) == 0.0
    assert privacy_loss.delta(tree, 0.9) > 0
    assert privacy_loss.delta(Sequential(()), 1.0) == 0.0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_outside_the_contract(bad: float) -> None:
    event = DiscreteGaussianEvent(sigma_squared=Fraction(1))
    for call in (
        lambda: privacy_loss.delta(event, bad),
        lambda: privacy_loss.epsilon(event, bad),
        lambda: privacy_loss.sigma_squared_for(epsilon=bad, delta=1e-5),
        lambda: privacy_loss.sigma_squared_for(epsilon=1, delta=bad),
    ):
        with pytest.raises(EngineInputError):
            call()
