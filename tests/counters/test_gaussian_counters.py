"""Gaussian counters: their noise, their error beside the square root's, and what they refuse."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from benchmarks.papers.counters import square_root
from engines.core.counters import Recipe
from engines.core.counters.blt import BltCounter
from engines.core.counters.by_name import COUNTERS
from engines.core.counters.linear import gaussian_node
from engines.core.noise import discrete_gaussian, seeded
from schemas.errors import EngineInputError
from tests.counters.doctored import drawing

HALF = Fraction(1, 2)


def test_noise_of_the_counters_is_no_smaller_than_claimed() -> None:
    for rho in (Fraction(1, 1000), Fraction(1, 3), Fraction(7)):
        counter = BltCounter.fitted_to(50, rho)
        exact = counter.l2_sensitivity_squared / (2 * rho)
        assert exact <= counter.sigma_squared <= exact * (1 + Fraction(1, 2**22))


def test_blt_is_close_to_the_square_root_at_every_horizon() -> None:
    for horizon in (1, 2, 10, 100, 1024, 4096):
        blt = BltCounter.fitted_to(horizon, HALF)
        mean = np.mean([blt.variance(t) for t in range(1, horizon + 1)])
        assert mean < 1.005 * np.mean(square_root(horizon, HALF))
        assert len(blt.buffers.shifts) <= np.log2(horizon) / 2 + 3


def test_memory_of_blt_stays_small() -> None:
    """Four thousand activations remembered in 8 numbers."""
    assert sum(array.nbytes for array in BltCounter.fitted_to(4096, HALF).initial(1).values()) <= 11 * 8


def test_noise_that_no_uniform_source_gives_is_refused() -> None:
    with drawing(lambda count: np.full(count, 10**9, dtype=np.int64)), pytest.raises(EngineInputError, match="uniform"):
        gaussian_node(1, Fraction(100), seeded(1))
    counter = BltCounter.fitted_to(10, HALF)
    state = counter.initial(1)
    state["buffers"][:] = 2**60
    with pytest.raises(EngineInputError, match="uniform"):
        counter.step(np.array([1]), state, seeded(1))


def test_the_draw_is_the_discrete_gaussian_of_the_noise_package() -> None:
    drawn = gaussian_node(5, Fraction(10**8), seeded(3))
    assert drawn.tolist() == discrete_gaussian(5, Fraction(10**8), seeded(3)).tolist()


@pytest.mark.parametrize(
    ("recipe", "rho", "message"),
    [
        (partial(BltCounter.fitted_to, 0), HALF, "horizon"),
        (partial(BltCounter.fitted_to, 2**21), HALF, "epochs"),
        (partial(BltCounter.fitted_to, 100), Fraction(1, 10**20), "too small"),
        (partial(COUNTERS["unbounded-blt"], 1), Fraction(1, 10**20), "too small"),
    ],
    ids=["no horizon", "long horizon", "small rho", "small rho in epochs"],
)
def test_refused_parameters(recipe: Recipe, rho: Fraction, message: str) -> None:
    with pytest.raises(EngineInputError, match=message):
        recipe(rho)
