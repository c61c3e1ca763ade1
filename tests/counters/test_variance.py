"""Empirical variances of running sums against the exact ones.

Null hypothesis: the variance of the running sum is `variance(t)`. Statistic: the sample second moment of WIDTH
independent coordinates, minus that, in its own standard deviations. That deviation follows from the kurtosis of a sum
of independent nodes with the decoder's weights, so nothing is estimated. Threshold: 6 of them, 2e-9 under the normal
law; the skewness of a squared Laplace sum, over 100,000 coordinates, makes that three times as much at most. With 60
comparisons the false-positive rate of this file is below 1e-6. Power: a noise scale wrong by 3 % is found at the same
threshold, as the last test shows.
"""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest

from engines.core.counters import Counter, Measure
from engines.core.counters.by_name import COUNTERS
from engines.core.noise import DiscreteLaplace, seeded

WIDTH = 100_000
TIMES = (1, 4, 7, 11)
HORIZON = 11


def deviations(counter: Counter, measured: np.ndarray, t: int) -> float:
    """How many standard deviations the sample second moment lies from variance(t)."""
    weights = counter.decoder(t)[-1] ** 2
    fourth = [_excess(counter.measure, noise) for noise in counter.node_noise(t)]
    variance = counter.variance(t)
    excess = float(np.sum(weights**2 * np.array(fourth))) / variance**2
    return float((np.mean(measured**2) - variance) / (variance * np.sqrt((2 + excess) / measured.size)))


@lru_cache
def _excess(measure: Measure, noise: Fraction) -> float:
    """Fourth cumulant of one node's noise: that of a discrete Laplace law, or zero."""
    if measure == "rho":
        return 0.0
    law = DiscreteLaplace(noise)
    k = np.arange(1, 60 * math.ceil(noise) + 60)
    fourth = 2 * float(np.sum(k**4.0 * np.array([law.pmf(int(x)) for x in k])))
    return fourth - 3 * law.variance**2


@pytest.mark.parametrize("name", sorted(COUNTERS))
def test_empirical_variances_are_the_exact_ones(name: str) -> None:
    counter = COUNTERS[name](HORIZON, Fraction(1))
    state, values = counter.initial(WIDTH), np.full(WIDTH, 3)
    for t in range(1, HORIZON + 1):
        _, state = counter.step(values, state, seeded(95).child(name, t))
        if t in TIMES:
            error = counter.running_sum(state) / counter.resolution - 3.0 * t
            assert abs(deviations(counter, error, t)) < 6


def test_noise_wrong_by_three_percent_is_found() -> None:
    # Scales fall as 1/epsilon, and as the root of 1/rho.
    for name, cost in (("simple", Fraction(103, 100)), ("blt", Fraction(106, 100))):
        counter, claimed = (COUNTERS[name](HORIZON, each) for each in (cost, Fraction(1)))
        state = counter.initial(WIDTH)
        _, state = counter.step(np.zeros(WIDTH, dtype=np.int64), state, seeded(96))
        assert abs(deviations(claimed, counter.running_sum(state) / counter.resolution, 1)) > 6
