"""From users to events: what divides, what does not, and what several changes together are promised."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.accounting import gaussian
from engines.core.accounting.user_level import group_delta
from schemas.errors import EngineInputError


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
    from dp_accounting.pld import privacy_loss_distribution

    epsilon, delta, contributions = 8.0, 1e-3, 2
    cheat = gaussian.mu_for(epsilon / contributions, delta / contributions)
    ours = gaussian.delta(epsilon, contributions * cheat)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(1 / (contributions * cheat)).get_delta_for_epsilon(
        epsilon
    )
    assert math.isclose(ours, theirs, rel_tol=1e-2)
    assert ours > 2 * delta


@given(epsilon=st.floats(0.05, 3), delta=st.floats(1e-9, 1e-3), members=st.integers(1, 12))
def test_a_group_covers_gaussian_noise_whose_mean_moves_by_all(epsilon: float, delta: float, members: int) -> None:
    exact = gaussian.delta(members * epsilon, members * gaussian.mu_for(epsilon, delta))
    assert exact <= group_delta(epsilon, delta, members) * (1 + 1e-6)


def test_a_group_costs_more_than_so_many_times_delta() -> None:
    assert group_delta(1.0, 1e-6, 1) == pytest.approx(1e-6)
    assert group_delta(1.0, 1e-6, 2) == pytest.approx(1e-6 * (1 + 2.718281828))
    assert group_delta(1.0, 1e-6, 10) > gaussian.delta(10.0, 10 * gaussian.mu_for(1.0, 1e-6)) > 4e-4  # not 10^-5
    assert group_delta(10.0, 1e-6, 100) == group_delta(1000.0, 1e-6, 10) == 1.0


@pytest.mark.parametrize(("epsilon", "members"), [(0.0, 1), (float("nan"), 1), (1.0, 0), (1.0, -1)])
def test_what_is_no_group_is_refused(epsilon: float, members: int) -> None:
    with pytest.raises(EngineInputError):
        group_delta(epsilon, 1e-6, members)
