"""Counters that the product's are compared with: their variances are those of least squares over their nodes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.papers.counters import honaker, mean_variance, optimal, optimised
from engines.core.counters.kary import KaryCounter
from engines.core.counters.tree import TreeCounter
from engines.core.noise import DiscreteLaplace

ONE = Fraction(1)


def test_estimates_from_below_are_least_squares_over_the_intervals_of_a_sum() -> None:
    """At 8 and at 4 a single interval is estimated, by all nodes in it."""
    found = honaker(8, ONE) / DiscreteLaplace(Fraction(4)).variance
    for t in (4, 8):
        ends = [(end, level) for end in range(1, t + 1) for level in range((end & -end).bit_length())]
        nodes = np.array([[end - 2**level < at <= end for at in range(1, t + 1)] for end, level in ends], float)
        best = np.ones(t) @ np.linalg.pinv(nodes)
        assert found[t - 1] == pytest.approx(float((best**2).sum()))
    assert found[5] == pytest.approx(found[3] + found[1])


def test_estimates_from_below_are_better_than_the_tree() -> None:
    tree = TreeCounter(epsilon=ONE, horizon=100)
    ratios = honaker(100, ONE) / [tree.variance(t) for t in range(1, 101)]
    assert ratios.max() == 1
    assert ratios.mean() < 0.75


@pytest.mark.parametrize(("horizon", "mean"), [(100, 195), (1024, 702), (4096, 1150)])
def test_mean_variances_of_estimates_from_below(horizon: int, mean: int) -> None:
    """At epsilon 1, of continuous noise: epsilon is small here, and the variance scaled."""
    assert abs(honaker(horizon, Fraction(1, 100)).mean() / 100**2 - mean) <= 0.6


def test_the_gradient_of_the_mean_variance_is_its_gradient() -> None:
    theta = np.random.default_rng(1).random(3 * 7)
    _, gradient = mean_variance(theta, 7)
    for at, step in enumerate(1e-6 * np.eye(len(theta))):
        slope = (mean_variance(theta + step, 7)[0] - mean_variance(theta - step, 7)[0]) / 2e-6
        assert gradient[at] == pytest.approx(slope, rel=1e-5, abs=1e-5)


def test_variances_of_the_optimised_counter_are_those_of_its_strategy() -> None:
    """By numpy's pseudo-inverse; and an event costs epsilon: its column adds up to one, entries being positive."""
    theta = optimised(30)
    strategy = np.concatenate([np.eye(30), theta]) / (1 + theta.sum(axis=0))
    assert strategy.min() >= 0
    assert np.allclose(strategy.sum(axis=0), 1)
    best = np.tri(30) @ np.linalg.pinv(strategy)
    assert np.allclose(optimal(30, Fraction(1, 2)), 8 * (best**2).sum(axis=1))
    assert optimal(30, ONE).mean() == pytest.approx(mean_variance(theta.ravel(), 30)[0])


@pytest.mark.parametrize(("horizon", "mean", "most"), [(30, 18.988, 0.67), (100, 35.37, 0.64)])
def test_the_optimised_counter_has_less_variance_than_kary(horizon: int, mean: float, most: float) -> None:
    """`mean` is the least that many starts found, at epsilon 1."""
    found = optimal(horizon, ONE).mean()
    kary = KaryCounter.with_best_arity(ONE, horizon)
    assert mean * 0.999 < found < mean * 1.01
    assert found < most * np.mean([kary.variance(t) for t in range(1, horizon + 1)])
