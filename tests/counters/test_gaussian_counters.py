"""Gaussian counters: that the noise which runs is, to the last bit, post-processing of C x + z; sensitivities."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.counters import BltConfig, EpochsConfig, ToeplitzConfig
from engines.core.counters.draws import gaussian_node, rounded_up
from engines.core.counters.toeplitz import _coefficients
from engines.core.noise import discrete_gaussian, seeded
from schemas.errors import EngineInputError
from tests.counters.doctored import drawing

HALF = Fraction(1, 2)
DRAWS = st.integers(-(2**20), 2**20)


@settings(max_examples=40)
@given(
    stream=st.lists(st.tuples(st.integers(-(10**6), 10**6), DRAWS), min_size=1, max_size=20),
    horizon=st.sampled_from([20, None]),
)
def test_a_toeplitz_release_is_a_function_of_noisy_integers(stream: list[tuple[int, int]], horizon: int | None) -> None:
    """Once as it runs, and once as the proof has it: n = C x + z first, then nothing but n. In Python's integers."""
    counter = ToeplitzConfig(horizon=horizon).calibrate(HALF)
    s, c = counter.resolution, [int(entry) for entry in _coefficients(len(stream), horizon is None)]
    state, estimates = counter.initial(1), []
    for t, (value, draw) in enumerate(stream):
        with drawing(lambda count, draw=draw: np.full(count, draw, dtype=np.int64)):
            increment, state = counter.step(np.array([value]), state, seeded(0))
        noisy = sum(c[t - i] * stream[i][0] for i in range(t + 1)) + draw
        foretold = sum(c[t - i] * estimates[i] for i in range(t))
        estimates.append(noisy - (2 * foretold + s) // (2 * s))
        assert increment.tolist() == [estimates[-1]]


def test_bounded_coefficients_are_rounded_square_root_ones() -> None:
    c = _coefficients(300, False)
    exact = np.cumprod(np.concatenate([[1.0], 1 - 0.5 / np.arange(1, 300)]))
    assert c[0] == ToeplitzConfig(horizon=2).calibrate(HALF).resolution
    assert np.abs(c / c[0] - exact).max() < 1 / c[0]


def test_the_sensitivity_of_the_unbounded_counter_is_bounded() -> None:
    """The bound against exact sums of 2^8 to 2^18 coefficients: never below, and no more than the tail above."""
    counter = ToeplitzConfig().calibrate(HALF)
    c = _coefficients(2**18, True).astype(object)
    sums = [int((c[: 2**m] ** 2).sum()) for m in (8, 14, 18)]
    assert sums == sorted(sums)
    assert sums[-1] < counter.l2_sensitivity_squared
    # What is left is that of an integral that falls as 1 / (1 + kappa m); here from 2^18 on.
    q = 1 / (1 + 18 * 3 / 20)
    assert counter.l2_sensitivity_squared < sums[-1] + (np.log(2) / np.pi) * (q * q + q * 20 / 3) * c[0] ** 2 * 1.05
    assert (np.diff(c[:2000].astype(np.int64)) <= 0).all()


def test_noise_of_the_counters_is_no_smaller_than_claimed() -> None:
    for config in (ToeplitzConfig(horizon=50), ToeplitzConfig(), BltConfig(horizon=50)):
        for rho in (Fraction(1, 1000), Fraction(1, 3), Fraction(7)):
            counter = config.calibrate(rho)
            exact = counter.l2_sensitivity_squared / (2 * rho)
            assert exact <= counter.sigma_squared <= exact * (1 + Fraction(1, 2**22))


@given(value=st.fractions(min_value=Fraction(1, 10**9), max_value=10**15))
def test_rounding_up_rounds_up(value: Fraction) -> None:
    assert value <= rounded_up(value) <= value * (1 + Fraction(1, 2**22))
    assert min(rounded_up(value).numerator, rounded_up(value).denominator).bit_length() <= 25


def test_blt_is_close_to_the_square_root_at_every_horizon() -> None:
    for horizon in (1, 2, 10, 100, 1024, 4096):
        root, blt = (config(horizon=horizon).calibrate(HALF) for config in (ToeplitzConfig, BltConfig))
        at = range(1, horizon + 1)
        assert np.mean([blt.variance(t) for t in at]) < 1.005 * np.mean([root.variance(t) for t in at])
        assert len(blt.buffers.shifts) <= np.log2(horizon) / 2 + 3


def test_memory_of_blt_stays_small() -> None:
    """Four thousand activations remembered in 8 numbers; the Toeplitz counter remembers all."""
    assert sum(array.nbytes for array in BltConfig(horizon=4096).calibrate(HALF).initial(1).values()) <= 11 * 8


def test_noise_that_no_uniform_source_gives_is_refused() -> None:
    with drawing(lambda count: np.full(count, 10**9, dtype=np.int64)), pytest.raises(EngineInputError, match="uniform"):
        gaussian_node(1, Fraction(100), seeded(1))
    counter = BltConfig(horizon=10).calibrate(HALF)
    state = counter.initial(1)
    state["buffers"][:] = 2**60
    with pytest.raises(EngineInputError, match="uniform"):
        counter.step(np.array([1]), state, seeded(1))


def test_the_draw_is_the_discrete_gaussian_of_the_noise_package() -> None:
    drawn = gaussian_node(5, Fraction(10**8), seeded(3))
    assert drawn.tolist() == discrete_gaussian(5, Fraction(10**8), seeded(3)).tolist()


@pytest.mark.parametrize(
    ("config", "rho", "message"),
    [
        (ToeplitzConfig(horizon=0), HALF, "horizon"),
        (ToeplitzConfig(horizon=2**25), HALF, "blt"),
        (ToeplitzConfig(horizon=100), Fraction(1, 10**20), "too small"),
        (BltConfig(horizon=0), HALF, "horizon"),
        (BltConfig(horizon=2**21), HALF, "epochs"),
        (BltConfig(horizon=100), Fraction(1, 10**20), "too small"),
        (EpochsConfig(family="blt"), Fraction(1, 10**20), "too small"),
    ],
    ids=str,
)
def test_refused_parameters(config: BltConfig, rho: Fraction, message: str) -> None:
    with pytest.raises(EngineInputError, match=message):
        config.calibrate(rho)


def test_a_toeplitz_counter_without_horizon_ends_where_its_arithmetic_would() -> None:
    counter = ToeplitzConfig().calibrate(HALF)
    state = counter.initial(1)
    state["activations"][:] = 2**20
    with pytest.raises(EngineInputError, match="2\\*\\*20"):
        counter.step(np.array([1]), state, seeded(1))
