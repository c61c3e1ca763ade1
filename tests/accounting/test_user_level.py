"""From users to events: what divides and what does not."""

import math
from fractions import Fraction
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st

from engines.core.accounting import event_epsilon, gaussian
from engines.core.accounting.user_level import group_promise
from schemas.errors import EngineInputError

EPSILONS = st.floats(0.05, 8.0)
DELTAS = st.floats(-12.0, -3.0).map(lambda e: 10.0**e)
BOUNDS = st.integers(1, 20)


@pytest.mark.parametrize(("contributions", "factor"), [(2, 1.25), (5, 1.45), (10, 1.5), (100, 1.6)])
def test_epsilon_and_delta_do_not_divide(contributions: int, factor: float) -> None:
    """The mistake: calibrate events to (epsilon / m, delta / m), and claim (epsilon, delta) for a user of m of them."""
    epsilon, delta = 1.0, 1e-5
    cheat = gaussian.mu_for(epsilon / contributions, delta / contributions)
    promised = gaussian.delta(epsilon, contributions * cheat)
    honest = gaussian.delta(epsilon, contributions * (gaussian.mu_for(epsilon, delta) / contributions))
    print(f"m = {contributions}: delta {promised:.3g} where {delta} was promised; honest {honest:.3g}")
    assert promised > factor * delta
    assert honest <= delta


def test_the_counter_example_by_dp_accounting() -> None:
    """Not a matter of our formula or of rounding."""
    epsilon, delta, contributions = 8.0, 1e-3, 2
    cheat = gaussian.mu_for(epsilon / contributions, delta / contributions)
    ours = gaussian.delta(epsilon, contributions * cheat)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(1 / (contributions * cheat)).get_delta_for_epsilon(
        epsilon
    )
    assert math.isclose(ours, theirs, rel_tol=1e-2)
    assert ours > 2 * delta


@given(EPSILONS, DELTAS, BOUNDS)
def test_a_user_of_m_events_has_what_was_promised(epsilon: float, delta: float, contributions: int) -> None:
    user = contributions * (gaussian.mu_for(epsilon, delta) / contributions)
    assert gaussian.delta(epsilon, user) <= delta
    assert math.isclose(gaussian.epsilon(delta, user), epsilon, rel_tol=1e-6)


@given(EPSILONS, DELTAS, BOUNDS)
def test_group_privacy_is_a_bound_on_gaussian_noise(epsilon: float, delta: float, size: int) -> None:
    mu = gaussian.mu_for(epsilon, delta)
    group = group_promise(epsilon, delta, size)
    assert group[0] == size * epsilon
    assert gaussian.delta(group[0], size * mu) <= group[1]


@given(st.fractions(Fraction(1, 1000), 100), BOUNDS)
def test_pure_privacy_divides_exactly(epsilon: Fraction, contributions: int) -> None:
    assert event_epsilon(epsilon, contributions) * contributions == epsilon


def test_group_of_one_and_a_group_beyond_all_floats() -> None:
    assert group_promise(1.0, 1e-6, 1) == (1.0, pytest.approx(1e-6))
    assert group_promise(1000.0, 1e-6, 10)[1] == 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: event_epsilon(Fraction(0), 1),
        lambda: event_epsilon(Fraction(-1), 1),
        lambda: event_epsilon(1.0, 1),  # type: ignore[arg-type]
        lambda: event_epsilon(Fraction(1), 0),
        lambda: group_promise(0.0, 1e-5, 2),
        lambda: group_promise(1.0, 1.0, 2),
        lambda: group_promise(1.0, 1e-5, 0),
    ],
)
def test_outside_the_contract(call: Any) -> None:
    with pytest.raises(EngineInputError):
        call()
