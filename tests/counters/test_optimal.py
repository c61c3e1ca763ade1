"""The optimal counter: its stored strategies, in integers, and that a release is a function of noisy nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.counters import KaryConfig, OptimalConfig, OptimalCounter, select, spent
from engines.counters.contract import laplace_scale
from engines.counters.optimal.strategies import (
    COARSEST,
    DIGEST,
    LATTICE,
    LEAST_SHARE,
    RESOLUTION,
    Strategy,
    _inverse,
    cut,
    nearest,
    packed,
    stored,
    strategy_for,
    unpacked,
)
from engines.noise import seeded
from schemas.config.options.spatial import LONGEST_HORIZON
from schemas.errors import EngineInputError
from tests.counters.doctored import Untouchable, drawing

ONE = Fraction(1)
EVERY = sorted(stored())
CUTS = sorted({*range(1, 65), *EVERY, 77, 99, 333})
every_stored = pytest.mark.parametrize("horizon", EVERY)


def whole_draws(strategy: Strategy, rows: int, largest: int) -> np.ndarray:
    return np.random.default_rng(strategy.nodes).integers(-largest, largest + 1, size=(rows, strategy.nodes))


# --- the strategies ---


@every_stored
def test_stored_columns_add_up_to_the_claimed_sensitivity(horizon: int) -> None:
    strategy = strategy_for(horizon)
    sums = np.vectorize(int, otypes=[object])(strategy.matrix(horizon)).sum(axis=0)
    assert sums.tolist() == [strategy.lattice] * horizon
    assert strategy.lattice == (LATTICE if len(strategy.sums) else 1)
    assert int(strategy.matrix(horizon).min()) >= 0
    assert int(strategy.own.min()) >= min(LEAST_SHARE, strategy.lattice)
    # What the lemma asks for, so that no quotient lies half-way.
    assert int(strategy.own.max()) <= RESOLUTION


@every_stored
def test_the_decoder_is_an_exact_left_inverse(horizon: int) -> None:
    """D S = L in Python's integers: D is [(2^22 L - G B) diag(1/own), G] / 2^22."""
    strategy = strategy_for(horizon)
    own, sums, weights = (array.astype(object) for array in (strategy.own, strategy.sums, strategy.weights))
    triangle = np.tri(horizon, dtype=np.int64).astype(object) * 2**22
    left = triangle - (weights @ sums if len(sums) else 0)
    # Fractions with the own share as denominator, times the own share: whole again, before anything is rounded.
    for column in (0, horizon // 2, horizon - 1):
        fractions = [Fraction(entry, own[column]) * own[column] for entry in left[:, column]]
        corrected = np.array(fractions, dtype=object) + (weights @ sums[:, column] if len(sums) else 0)
        assert corrected.tolist() == triangle[:, column].tolist()
    floats = strategy.decoder(horizon)
    assert np.allclose(floats, np.concatenate([left / own, weights], axis=1).astype(float) / 2**22, rtol=1e-12)


@pytest.mark.parametrize("horizon", CUTS)
def test_a_release_is_a_function_of_noisy_nodes(horizon: int) -> None:
    """The lemma: each column of S in turn, and any values, move f by whole running sums, to the last bit."""
    strategy = strategy_for(horizon)
    events = np.concatenate([np.eye(horizon, dtype=np.int64), -np.eye(horizon, dtype=np.int64)[:3]])
    values = np.random.default_rng(horizon).integers(-(10**6), 10**6, size=(4, horizon))
    for moved in (events, values):
        # Draws of nothing, of quarter scales, and of tens of them.
        for largest in (0, strategy.lattice // 4, 50 * strategy.lattice):
            draws = np.resize(whole_draws(strategy, 5, largest), (len(moved), strategy.nodes))
            noise, both = strategy.noise(draws), strategy.noise(draws + moved @ strategy.matrix(horizon).T)
            assert np.array_equal(both - noise, RESOLUTION * np.cumsum(moved, axis=1))


def test_rounding_that_looks_at_the_sign_would_tell_of_the_values() -> None:
    """So own shares must not exceed RESOLUTION: with twice as much something lies half-way, and the lemma fails."""
    wide = Strategy(np.full(2, 2 * RESOLUTION), np.zeros((0, 2), np.int64), np.zeros((2, 0), np.int64))
    draws = np.array([[-1, 0]])
    moved = wide.noise(draws + wide.matrix(2)[:, 0]) - wide.noise(draws)
    assert moved.tolist() != [[RESOLUTION, RESOLUTION]]


@settings(max_examples=60)
@given(horizon=st.sampled_from([1, 9, 12, 30, 77]), coarse=st.integers(0, COARSEST), data=st.data())
def test_noise_is_that_of_pythons_integers(horizon: int, coarse: int, data: st.DataObject) -> None:
    """Without numpy, and with fractions where `noise` divides."""
    strategy = strategy_for(horizon)
    largest = 2**12 * 2**coarse * strategy.lattice
    draws = data.draw(st.lists(st.integers(-largest, largest), min_size=strategy.nodes, max_size=strategy.nodes))
    own = [_nearest(Fraction(RESOLUTION * z, int(d))) for z, d in zip(draws, strategy.own, strict=False)]
    beyond = [
        RESOLUTION * z - sum(int(share) * a for share, a in zip(row, own, strict=True))
        for z, row in zip(draws[horizon:], strategy.sums, strict=True)
    ]
    beyond = [_nearest(Fraction(u, 2 ** (8 + coarse))) for u in beyond]
    expected, total = [], 0
    for a, row in zip(own, strategy.weights, strict=True):
        total += a
        correction = sum(int(weight) * u for weight, u in zip(row, beyond, strict=True))
        expected.append(total + _nearest(Fraction(correction, 2 ** (COARSEST - coarse))))
    assert strategy.noise(np.array([draws]), coarse).tolist() == [expected]


def _nearest(value: Fraction) -> int:
    whole = int(abs(value) + Fraction(1, 2))
    return whole if value > 0 else -whole


@every_stored
def test_nothing_leaves_int64(horizon: int) -> None:
    """Draws of 2^12 scales at the least epsilon, with the worst signs: each bound far below 2^63, in floats."""
    strategy = strategy_for(horizon)
    largest = 2.0**12 * 2**COARSEST * strategy.lattice
    own = largest * RESOLUTION / strategy.own
    assert 2 * largest * RESOLUTION < 2**62
    beyond = largest * RESOLUTION + strategy.sums @ own
    assert 2 * beyond.max(initial=0) + own.sum() < 2**62
    fine = beyond / 2 ** (8 + COARSEST)
    assert 4 * float((np.abs(strategy.weights) @ fine).max()) < 2**62
    # And what the weights were computed by.
    ratios = strategy.sums / strategy.own
    assert float(ratios.max(initial=0)) * 2**20 < 2**40
    assert float((ratios @ ratios.T).max(initial=0)) * 2**40 < 2**61
    running = np.cumsum(ratios / strategy.own, axis=1)
    assert float(running.max(initial=0)) * 2**41 < 2**62
    inverse = np.linalg.inv(np.eye(len(ratios)) + ratios @ ratios.T)
    assert float((running.T @ np.abs(inverse)).max(initial=0)) * 2**55 < 2**62


@every_stored
def test_weights_are_those_of_least_squares(horizon: int) -> None:
    """By numpy's pseudo-inverse, up to the rounding of the weights: no more than 1e-4 of the variance."""
    strategy = strategy_for(horizon)
    best = np.tri(horizon) @ np.linalg.pinv(strategy.matrix(horizon).astype(float))
    excess = (strategy.decoder(horizon) ** 2).sum() / (best**2).sum()
    assert 1 - 1e-9 < excess < 1 + 1e-4


@given(size=st.integers(1, 9), seed=st.integers(0, 99))
def test_the_inverse_in_integers_is_the_inverse(size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    half = nearest(random.integers(-(2**31), 2**31, size=(size, size)), np.int64(2**10))
    normal = (np.eye(size, dtype=np.int64) << 40) + half @ half.T
    assert np.allclose(_inverse(normal) / 2**26, np.linalg.inv(normal / 2**40), atol=2**-25)


def test_what_is_stored_is_what_this_version_was_made_with() -> None:
    content = packed(stored())
    assert {horizon: sums.tolist() for horizon, sums in unpacked(content).items()} == {
        horizon: sums.tolist() for horizon, sums in stored().items()
    }
    stored.cache_clear()
    try:
        with (
            mock.patch("engines.counters.optimal.strategies.DIGEST", "0" * 64),
            pytest.raises(EngineInputError, match="install it anew"),
        ):
            stored()
    finally:
        stored.cache_clear()
    assert sha256(content).hexdigest() == DIGEST


def test_the_configuration_knows_the_longest_horizon() -> None:
    assert {"optimal": max(stored())} == LONGEST_HORIZON


@pytest.mark.parametrize(
    "sums", [np.array([[-1, 0]]), np.array([[LATTICE, 5]]), np.array([[LATTICE - LEAST_SHARE + 1, 0]])]
)
def test_bad_shares_are_refused(sums: np.ndarray) -> None:
    with pytest.raises(EngineInputError, match="shares"):
        cut(sums, 2)


# --- the counter ---


@pytest.mark.parametrize(("horizon", "most"), [(30, 0.67), (100, 0.65), (200, 0.65), (1024, 0.65)])
def test_it_has_less_variance_than_kary(horizon: int, most: float) -> None:
    """At epsilon 1, discrete noise. At 30 `kary` is the simple counter, whose noise on whole events is 8 % less."""
    optimal, kary = (config(horizon=horizon).calibrate(ONE) for config in (OptimalConfig, KaryConfig))
    at = range(1, horizon + 1)
    assert np.mean([optimal.variance(t) for t in at]) < most * np.mean([kary.variance(t) for t in at])


@pytest.mark.parametrize("horizon", [7, 30])
def test_its_noise_in_events_is_that_of_one_node(horizon: int) -> None:
    """What `explain` and the ledger show: shares of an event add up to one event."""
    assert laplace_scale(OptimalConfig(horizon=horizon).calibrate(Fraction(1, 3))) == 3


def test_it_is_the_simple_counter_where_that_is_best() -> None:
    counter = OptimalConfig(horizon=7).calibrate(ONE)
    assert (counter.l1_sensitivity, counter.scale) == (1, 1)
    assert counter.variance(7) == pytest.approx(KaryConfig(horizon=7).calibrate(ONE).variance(7), rel=1e-12)


@pytest.mark.parametrize("horizon", [7, 30, 101])
def test_increments_are_dropped_when_they_are_released_and_draws_come_first(horizon: int) -> None:
    counter = OptimalConfig(horizon=horizon).calibrate(ONE)
    _, state = counter.step(np.array([5, 7]), counter.initial(2), seeded(1))
    left = state["increments"].copy()
    for t in range(1, horizon):
        released, state = counter.step(np.array([1, -1]), state, Untouchable())
        assert released.tolist() == (left[:, t] + np.array([RESOLUTION, -RESOLUTION])).tolist()
        assert not state["increments"][:, : t + 1].any()
        assert np.array_equal(state["increments"][:, t + 1 :], left[:, t + 1 :])


def test_the_state_tells_nothing_of_the_values() -> None:
    counter = OptimalConfig(horizon=40).calibrate(Fraction(1, 3))
    states = []
    for value in (0, 10**9):
        state = counter.initial(3)
        for t in range(20):
            _, state = counter.step(np.full(3, value * (t % 3)), state, seeded(t))
        states.append(state)
    one, other = ({name: a.tolist() for name, a in state.items() if name != "running_sum"} for state in states)
    assert one == other


@pytest.mark.parametrize(
    ("horizon", "recorded"),
    [
        (7, [[4096, -28672], [-4096, 8192], [4096, 16384]]),
        (100, [[-15837, -26333], [39610, 26552], [-20627, 45876]]),
        (1000, [[8504, 19390], [30442, 78042], [-201095, 38981]]),
    ],
)
def test_the_same_seed_gives_the_same_bytes(horizon: int, recorded: list[list[int]]) -> None:
    """Recorded: a change of strategies, weights or rounding is a change of what running streams draw."""
    counter = OptimalConfig(horizon=horizon).calibrate(Fraction(2, 7))
    state, released = counter.initial(2), []
    for t in range(3):
        increment, state = counter.step(np.array([0, 1]), state, seeded(t))
        released.append(increment.tolist())
    assert released == recorded


@dataclass(frozen=True, kw_only=True, slots=True)
class Short(OptimalCounter):
    """Noise for all of an event but one part in 4096."""

    def node_noise(self, t: int) -> tuple[Fraction, ...]:
        return (self.scale * Fraction(LATTICE - 1, LATTICE),) * self._strategy.nodes


@pytest.mark.parametrize("horizon", [12, 30, 333])
def test_a_scale_that_is_a_little_too_small_is_caught_by_the_matrix(horizon: int) -> None:
    assert spent(Short(epsilon=ONE, horizon=horizon), horizon) > 1
    assert spent(OptimalConfig(horizon=horizon).calibrate(ONE), horizon) == 1


@pytest.mark.parametrize(("horizon", "cut_at"), [(30, 1), (30, 17), (101, 64)])
def test_a_state_that_is_cut_and_restored_goes_on_bit_for_bit(horizon: int, cut_at: int) -> None:
    whole = counter = OptimalConfig(horizon=horizon).calibrate(Fraction(1, 5))
    state = other = counter.initial(2)
    for t in range(horizon):
        if t == cut_at:
            strategy_for.cache_clear()
            stored.cache_clear()
            other = {name: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape) for name, a in other.items()}
            whole = OptimalConfig(horizon=horizon).calibrate(Fraction(1, 5))
        expected, state = counter.step(np.array([t, -t]), state, seeded(t))
        released, other = whole.step(np.array([t, -t]), other, seeded(t))
        assert released.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("horizon", "epsilon", "message"),
    [
        (0, ONE, "horizon"),
        (True, ONE, "horizon"),
        (1025, ONE, "at most 1024"),
        (10, Fraction(1, 2**COARSEST + 1), "too small"),
        (10, Fraction(0), "epsilon"),
    ],
)
def test_what_is_refused(horizon: int, epsilon: Fraction, message: str) -> None:
    with pytest.raises(EngineInputError, match=message):
        OptimalConfig(horizon=horizon).calibrate(epsilon)


def test_noise_that_no_uniform_source_gives_is_refused() -> None:
    counter = OptimalConfig(horizon=30).calibrate(ONE)
    with drawing(lambda count: np.full(count, 2**25)), pytest.raises(EngineInputError, match="uniform"):
        counter.step(np.array([1]), counter.initial(1), seeded(1))


def test_a_state_of_other_strategies_is_refused() -> None:
    counter = OptimalConfig(horizon=30).calibrate(ONE)
    other: Any = replace(counter, digest="0" * 64)
    with pytest.raises(EngineInputError, match="another counter"):
        counter.step(np.array([1]), select(other.initial(2), np.array([0])), Untouchable())
