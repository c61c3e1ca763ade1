"""Several changes together: an upper bound for every mechanism, and no smaller than the exact delta of one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.accounting import gaussian
from engines.core.accounting.user_level import group_delta
from schemas.errors import EngineInputError


@given(epsilon=st.floats(0.05, 3), delta=st.floats(1e-9, 1e-3), members=st.integers(1, 12))
def test_it_covers_gaussian_noise_whose_mean_moves_by_all_of_them(epsilon: float, delta: float, members: int) -> None:
    exact = gaussian.delta(members * epsilon, members * gaussian.mu_for(epsilon, delta))
    assert exact <= group_delta(epsilon, delta, members) * (1 + 1e-6)


def test_it_is_more_than_so_many_times_delta() -> None:
    assert group_delta(1.0, 1e-6, 1) == pytest.approx(1e-6)
    assert group_delta(1.0, 1e-6, 2) == pytest.approx(1e-6 * (1 + 2.718281828))
    assert group_delta(1.0, 1e-6, 10) > gaussian.delta(10.0, 10 * gaussian.mu_for(1.0, 1e-6)) > 4e-4  # not 10^-5
    assert group_delta(10.0, 1e-6, 100) == 1.0


@pytest.mark.parametrize(("epsilon", "members"), [(0.0, 1), (float("nan"), 1), (1.0, 0), (1.0, -1)])
def test_what_is_no_group_is_refused(epsilon: float, members: int) -> None:
    with pytest.raises(EngineInputError):
        group_delta(epsilon, 1e-6, members)
