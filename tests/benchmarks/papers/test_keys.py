"""What engine `keys` is compared with: DP-SQLP's tree, noise and slips; and the batch."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, norm

from benchmarks.papers.counters import honaker
from benchmarks.papers.keys import SqlpNoise, dp_sqlp, laplace_batch, prefixes, rho_for
from engines.core.accounting.gaussian import mu_for
from engines.core.noise import DiscreteLaplace

FALSE_ALARM = 1e-6
DRAWS = 20_000


@pytest.mark.parametrize("tests", [1, 7, 8, 100])
def test_a_sum_is_read_off_the_tree_without_bias_and_with_the_variance_from_below(tests: int) -> None:
    tree, values = prefixes(tests), np.arange(1.0, tests + 1)
    nodes = [
        values[: tests >> height << height].reshape(-1, 1 << height).sum(axis=1) for height in range(tests.bit_length())
    ]
    assert tree @ np.concatenate(nodes) == pytest.approx(np.cumsum(values))
    one = DiscreteLaplace(Fraction(tests.bit_length())).variance
    assert (tree**2).sum(axis=1) == pytest.approx(honaker(tests, Fraction(1)) / one)


def test_noise_is_what_an_open_copy_has_for_the_same_budget() -> None:
    """Which has 177.17 for counts and, without the charge for every test, a threshold of 6.85."""
    noise = SqlpNoise.within(6, 1e-9, 32, 100)
    assert noise.counts == pytest.approx(177.17, abs=0.01)
    assert noise.selection == pytest.approx(31.32, abs=0.01)
    assert norm.isf(100 * norm.sf(noise.threshold)) == pytest.approx(6.85, abs=0.01)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (3, 1e-9)])
def test_rho_is_a_little_below_what_gaussian_noise_may_lose(epsilon: float, delta: float) -> None:
    exact = mu_for(epsilon, delta) ** 2 / 2
    assert 0.7 * exact < rho_for(epsilon, delta) < exact


def test_a_key_of_one_person_slips_no_oftener_than_charged() -> None:
    """The plant: a threshold that holds at one test only, as an open copy of DP-SQLP has it."""
    increments = np.zeros((DRAWS, 20), np.int64)
    increments[:, 0] = 1
    slip = 0.05

    def slips(threshold: float) -> int:
        found = dp_sqlp(increments, SqlpNoise(3.0, 1.0, threshold), np.random.default_rng(1))
        return int((found.tests < 20).sum())

    most = binom.isf(FALSE_ALARM, DRAWS, slip)
    assert slips(norm.isf(slip / 20)) <= most
    assert slips(norm.isf(slip)) > most


def test_a_count_stands_until_its_key_is_selected_again() -> None:
    increments = np.array([[1000, 0, 1000, 0], [0, 0, 0, 0], [0, 500, 20, 0]])
    found = dp_sqlp(increments, SqlpNoise(1.0, 0.0, 50.0), np.random.default_rng(1))
    assert found.tests.tolist() == [0, 4, 1]
    assert found.counts.tolist() == [2000, 0, 500]


def test_the_keys_of_one_person_slip_from_a_batch_no_oftener_than_delta() -> None:
    """The plant: a threshold for one key, where a user has four."""
    ones, delta = np.ones(4 * DRAWS, np.int64), 0.05

    def slips(each: float) -> int:
        found = laplace_batch(ones, 1.0, each, 4, np.random.default_rng(1))
        return int((found.tests.reshape(-1, 4) == 0).any(axis=1).sum())

    most = binom.isf(FALSE_ALARM, DRAWS, delta)
    assert 0.8 * delta * DRAWS < slips(delta) <= most
    assert slips(4 * delta) > most
