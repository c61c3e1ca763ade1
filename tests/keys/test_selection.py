"""The counter of a key and the thresholds of its tests, from their matrices and from what the code does."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.keys.methods import first_listed
from engines.core.accounting.lattice import dominating
from engines.core.noise import DiscreteGaussian, discrete_gaussian, seeded
from engines.keys.selection import RESOLUTION, KeySelection, NormalisedCounter, first_column
from schemas.errors import EngineInputError

TESTS = (1, 2, 3, 7, 10, 30, 100)


def selection(**changes: Any) -> KeySelection:
    options: dict[str, Any] = {
        "epsilon": Fraction(1),
        "delta": 1e-6,
        "share": Fraction(2, 5),
        "contributions": 8,
        "tests": 10,
    }
    return KeySelection(**{**options, **changes})


@pytest.mark.parametrize("tests", TESTS)
def test_no_person_costs_more_than_claimed_and_the_dearest_costs_that(tests: int) -> None:
    counter = NormalisedCounter(mu_squared=Fraction(1, 40), horizon=tests)
    noise = [dominating(each) for each in counter.node_noise(tests)]
    strategy = counter.strategy(tests)
    costs = [sum(int(e) ** 2 / s for e, s in zip(column, noise, strict=True) if e) for column in strategy.T]
    assert 0.9999 * counter.mu_squared <= max(costs) <= counter.mu_squared
    # Normalised: whenever somebody comes, it costs the same.
    assert min(costs) >= 0.99 * max(costs)


@pytest.mark.parametrize("tests", TESTS)
def test_it_is_the_normalised_root(tests: int) -> None:
    """Against the plain formula: sums of normal noise of deviation 1 on the root with columns of norm 1."""
    column = first_column(tests)
    lags = np.subtract.outer(np.arange(tests), np.arange(tests))
    root = np.where(lags >= 0, column[lags], 0.0)
    decoder = np.tri(tests) @ np.linalg.inv(root / np.sqrt((root**2).sum(axis=0)))
    counter = NormalisedCounter(mu_squared=Fraction(1), horizon=tests)
    found = [counter.variance(t) for t in range(1, tests + 1)]
    assert found == pytest.approx((decoder**2).sum(axis=1), rel=2e-3)


@pytest.mark.parametrize("tests", [1, 3, 10, 40])
def test_a_person_moves_what_was_drawn_by_the_strategy_exactly(tests: int) -> None:
    """The same sums with a person more at test u: whatever was rounded, nodes move by column u and nothing else."""
    counter = NormalisedCounter(mu_squared=Fraction(1, 9), horizon=tests)
    noise = seeded(tests).words(5 * tests).astype(np.int64).reshape(5, tests) >> 40
    drawn = counter.nodes(noise)
    for u in range(tests):
        moved = noise.copy()
        moved[:, u] -= RESOLUTION
        assert np.array_equal(drawn - counter.nodes(moved), np.tile(counter.strategy(tests)[:, u], (5, 1)))


@pytest.mark.parametrize("tests", [1, 4, 12])
def test_nodes_are_found_from_increments(tests: int) -> None:
    counter = NormalisedCounter(mu_squared=Fraction(1, 9), horizon=tests)
    drawn = np.stack([discrete_gaussian(3, each, seeded(at)) for at, each in enumerate(counter.node_noise(tests))]).T
    noise = np.zeros_like(drawn)
    for test in range(tests):
        noise[:, test] = counter.increment(drawn[:, test], noise[:, :test])
    assert np.array_equal(counter.nodes(noise), drawn)
    decoder = RESOLUTION * counter.decoder(tests)
    # Beside the linear counter: half a lattice step of rounding at each test.
    assert (np.abs(drawn @ decoder.T - np.cumsum(noise, axis=1)) <= np.abs(decoder).sum(axis=1) / 2).all()


@pytest.mark.parametrize(
    "changes",
    [{}, {"tests": 1}, {"tests": 3, "contributions": 1, "delta": 0.02}, {"together": 3, "value_share": Fraction(1, 3)}],
)
def test_noise_passes_a_threshold_as_seldom_as_promised(changes: dict[str, Any]) -> None:
    """And not much more seldom: the exact probability of normal noise, which the law is, is within 3 % below. Others
    have one less than the least count there, and the user all that a user may have.
    """
    chosen = selection(**changes)
    each = chosen.listing_delta / (chosen.contributions * chosen.tests)
    for test, tau in enumerate(chosen.thresholds, start=1):
        most = chosen.least_count - 1 + chosen.together
        found = norm.sf((tau / RESOLUTION - most) / chosen.deviation(test))
        assert 0.97 * each <= found <= each


def test_the_tail_of_one_discrete_draw_is_below_the_share_of_delta() -> None:
    """Where a sum is a single draw its law is known exactly."""
    chosen = selection(tests=1, contributions=1, delta=1e-4)
    [sigma_squared] = chosen.counter.node_noise(1)
    tail = DiscreteGaussian(sigma_squared).tail(chosen.thresholds[0] - RESOLUTION * chosen.least_count)
    assert 0.97 * chosen.listing_delta <= tail <= chosen.listing_delta


def test_thresholds_are_those_of_the_design() -> None:
    """Users at the end of a period at (1, 1e-6), beyond the least count: 37, 77, 111 and 229 for m = 1, 4, 8, 32."""
    found = [selection(contributions=m, least_count=1).threshold(10) for m in (1, 4, 8, 32)]
    assert found == pytest.approx([37, 77, 111, 229], abs=1)


def test_keys_of_fewer_people_draw_nothing_and_are_never_listed() -> None:
    chosen = selection(contributions=1)
    people = np.array([[4] * 10, [0, 5, *([6] * 8)], [500] * 10, [0] * 9 + [5]])
    first, sums = first_listed(chosen, people, seeded(3))
    assert first.tolist() == [0, 0, 1, 0]
    assert not sums[[0, 1, 3]].any()
    assert abs(sums[2] / RESOLUTION - 500) < 6 * chosen.deviation(10)


@pytest.mark.parametrize(
    "changes",
    [{"tests": 0}, {"tests": 1001}, {"least_count": 0}, {"contributions": 0}, {"share": Fraction(1)}, {"delta": 0.0}],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(EngineInputError):
        selection(**changes)
