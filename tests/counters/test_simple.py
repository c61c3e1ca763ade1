"""The simple counter: its noise is discrete Laplace of scale 1/epsilon, afresh each time. False-positive rate 1e-6."""

import math
from fractions import Fraction

import numpy as np
import pytest

from engines.core.counters.simple import SimpleCounter
from engines.core.noise import DiscreteLaplace, seeded
from tests.noise.goodness import laplace_hits, misfit

WIDTH = 500_000


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(1, 10), Fraction(7, 3)], ids=str)
def test_each_increment_has_the_exact_law(epsilon: Fraction) -> None:
    counter = SimpleCounter(epsilon=epsilon)
    values = np.arange(WIDTH) - 1000
    state = counter.initial(WIDTH)
    for t in range(2):
        increment, state = counter.step(values, state, seeded(81).child(t))
        hits, probabilities = laplace_hits(increment - values, 1 / epsilon)
        assert misfit(hits, probabilities, WIDTH) == ""


def test_half_the_noise_is_caught() -> None:
    counter = SimpleCounter(epsilon=Fraction(2))
    noise, _ = counter.step(np.zeros(WIDTH, dtype=np.int64), counter.initial(WIDTH), seeded(82))
    assert misfit(*laplace_hits(noise, Fraction(1)), WIDTH) != ""


def test_variance_is_that_of_the_sum() -> None:
    counter = SimpleCounter(epsilon=Fraction(1))
    assert counter.variance(100) == 100 * DiscreteLaplace(Fraction(1)).variance
    state = counter.initial(WIDTH)
    for t in range(4):
        _, state = counter.step(np.zeros(WIDTH, dtype=np.int64), state, seeded(83).child(t))
    # Four draws: the fourth moment of the sum puts the sample variance within 0.35 % (one sigma) of this.
    assert math.isclose(np.var(counter.running_sum(state)), counter.variance(4), rel_tol=0.02)


def test_mean_variance_over_a_hundred_activations() -> None:
    """101 with continuous noise (design, section 2); discrete noise of the same scale is a little less."""
    counter = SimpleCounter(epsilon=Fraction(1))
    assert 92 < np.mean([counter.variance(t) for t in range(1, 101)]) < 101


def test_it_may_go_on_for_ever() -> None:
    counter = SimpleCounter(epsilon=Fraction(1))
    assert counter.horizon is None
    assert counter.variance(10**9) > 0


def test_sums_beyond_int64_wrap_without_an_error() -> None:
    """An error, or a saturated sum, would tell of the values; the wrapped sum is a function of the noisy one."""
    counter = SimpleCounter(epsilon=Fraction(1, 1000))
    largest = np.full(100, 2**63 - 1)
    increment, state = counter.step(largest, counter.initial(100), seeded(84))
    assert (increment < 0).any()
    counter.step(largest, state, seeded(85))
