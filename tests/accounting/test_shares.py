"""What a share of a budget buys, pure or with a delta, beside exact accounting of what is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.accounting import gaussian
from engines.core.accounting.lattice import dominating
from engines.core.accounting.user_level import event_mu_squared, times_mu_squared
from engines.core.counters import spent
from engines.core.noise import seeded
from engines.core.shares import COUNTERS, LARGEST, GaussianCells, GaussianShares, PureShares, _rounded
from schemas.errors import EngineInputError
from tests.accounting.test_lattice import discrete_delta
from tests.examples import examples


@settings(max_examples=examples(1.2))
@given(
    epsilon=st.fractions(Fraction(1, 100), 30, max_denominator=1000),
    delta=st.sampled_from([1e-12, 1e-6, 1e-3]),
    events=st.integers(1, 500),
)
def test_all_events_of_a_user_together_are_promised_delta(epsilon: Fraction, delta: float, events: int) -> None:
    each = event_mu_squared(epsilon, delta, events)
    assert gaussian.delta(epsilon, events * float(each) ** 0.5) <= delta
    assert gaussian.delta(epsilon, events * float(each) ** 0.5) > delta * (1 - 1e-6)
    assert each.denominator.bit_length() < 100


@settings(max_examples=examples(1.2))
@given(cost=st.fractions(Fraction(1, 10**9), LARGEST, max_denominator=10**9), unit=st.sampled_from([1, 2**20]))
def test_cells_cost_what_is_asked(cost: Fraction, unit: int) -> None:
    cells = GaussianCells(cost, unit)
    drawn = Fraction(4**cells.refined * unit**2) / dominating(cells.sigma_squared)
    # In units, the root of the noise is rounded up to a whole number.
    rounding = Fraction(1, 10**5) + (Fraction(2, isqrt(int(cells.sigma_squared))) if unit > 1 else 0)
    assert cost * (1 - rounding) < drawn <= cost


@pytest.mark.parametrize("cost", [Fraction(1, 50), Fraction(2), Fraction(100)])
def test_exact_privacy_loss_agrees_with_what_cells_are_charged(cost: Fraction) -> None:
    cells = GaussianCells(cost)
    epsilon = 3 * float(cost) ** 0.5 + float(cost) / 2
    exact = discrete_delta(cells.sigma_squared, epsilon, shift=2**cells.refined)
    assert exact <= gaussian.delta(epsilon, float(cost) ** 0.5)


@pytest.mark.parametrize("share", [Fraction(LARGEST), *(least or Fraction(1, 10**10) for least, _ in COUNTERS)])
@pytest.mark.parametrize("t", [1, 70, 200])
def test_counters_cost_what_is_asked(share: Fraction, t: int) -> None:
    counter = GaussianShares(Fraction(1), 1e-6).counter(share)
    assert counter.horizon is None
    lattice = min(counter.node_noise(t))
    drawn = 2 * spent(counter, t) * lattice / dominating(lattice)
    assert drawn <= share
    assert t < 64 or drawn > share * Fraction(9, 10)


def test_variances_are_those_of_the_noise() -> None:
    # 20,000 draws each: a standard error of 1 % of the variance, six of them: below 1e-8 each.
    for cost in (Fraction(1, 300), Fraction(1), Fraction(30)):
        cells = GaussianCells(cost)
        counts = np.arange(20_000)
        noise = (cells.added(counts, seeded(1)) - counts).astype(np.float64)
        assert abs(noise.mean()) < 6 * (cells.variance / len(noise)) ** 0.5
        assert abs((noise**2).mean() / cells.variance - 1) < 0.06 + (cost > 4)
        assert (noise**2).mean() < 1.06 * cells.variance


@given(value=st.integers(-(2**50), 2**50), bits=st.integers(0, 11))
def test_rounding_is_to_the_nearest_and_even(value: int, bits: int) -> None:
    assert _rounded(np.array([value]), bits).tolist() == [round(Fraction(value, 2**bits))]


@given(events=st.integers(1, 9), most=st.integers(1, 10))
def test_no_way_to_put_events_into_measurements_costs_more(events: int, most: int) -> None:
    def splits(left: int, largest: int) -> Iterator[list[int]]:
        if not left:
            yield []
        for first in range(1, min(left, largest) + 1):
            yield from ([first, *rest] for rest in splits(left - first, first))

    dearest = max(sum(part * part for part in parts) for parts in splits(events, most))
    assert times_mu_squared(events, most) == dearest
    assert GaussianShares(Fraction(1), 1e-6, events, most).mu_squared_of(Fraction(1, 7)) == Fraction(dearest, 7)


def test_variances_are_of_events_whatever_the_unit() -> None:
    """A unit of 2**20 to an event leaves the noise of an event as it is, but for roundings of the lattice."""
    for shares in (PureShares(Fraction(1, 100)), GaussianShares(Fraction(1, 2), 1e-6)):
        coarse, fine = (shares.cells(shares.whole, unit) for unit in (1, 2**20))
        assert fine.variance == pytest.approx(coarse.variance, rel=2e-3)
        noise = fine.added(np.zeros(20_000, np.int64), seeded(3)) / 2**20
        # Six standard errors, and more, of the variance: below 1e-8.
        assert (noise**2).mean() == pytest.approx(fine.variance, rel=0.1)


def test_pure_shares_are_epsilon() -> None:
    shares = PureShares(Fraction(1, 3))
    assert shares.whole == Fraction(1, 3)
    assert shares.cells(Fraction(1, 9)).scale == 9
    assert shares.counter(Fraction(1, 9)).cost == Fraction(1, 9)
    assert shares.epsilon_of(Fraction(1, 9)) == Fraction(1, 9)
    assert shares.mu_squared_of(Fraction(1, 9)) is None


@pytest.mark.parametrize("delta", [0.0, 1.0, 1e-50])
def test_a_delta_that_says_nothing_is_refused(delta: float) -> None:
    with pytest.raises(EngineInputError, match="delta"):
        GaussianShares(Fraction(1), delta)
