"""Counters that the product's are compared with: their variances are those of least squares over their nodes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.papers.counters import honaker
from engines.counters import TreeConfig
from engines.noise import DiscreteLaplace

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
    tree = TreeConfig(horizon=100).calibrate(ONE)
    ratios = honaker(100, ONE) / [tree.variance(t) for t in range(1, 101)]
    assert ratios.max() == 1
    assert ratios.mean() < 0.75


@pytest.mark.parametrize(("horizon", "mean"), [(100, 195), (1024, 702), (4096, 1150)])
def test_mean_variances_of_estimates_from_below(horizon: int, mean: int) -> None:
    """At epsilon 1, of continuous noise: epsilon is small here, and the variance scaled."""
    assert abs(honaker(horizon, Fraction(1, 100)).mean() / 100**2 - mean) <= 0.6
