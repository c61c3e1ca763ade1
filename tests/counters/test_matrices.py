"""Guarantee and variance of every counter from its matrices, for every horizon up to 64 and every place of the event.

Exact: strategies are integers and losses fractions. What the matrices say is then held to what the code does, draw by
draw. A strategy of `blt` bounds what happens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

from engines.core.counters import Counter, Recipe, concatenate, spent
from engines.core.counters.block import BlockCounter, UnboundedBlockCounter
from engines.core.counters.blt import BltCounter
from engines.core.counters.by_name import COUNTERS
from engines.core.counters.epochs import EpochsCounter
from engines.core.counters.kary import KaryCounter
from engines.core.counters.simple import SimpleCounter
from engines.core.counters.tree import HybridCounter, TreeCounter
from engines.core.noise import DiscreteGaussian, DiscreteLaplace, seeded
from schemas.arrays import BoolArray, IntArray
from tests.counters.doctored import drawing, sums_of_single_draws

LARGEST = 64
ONE = Fraction(1)
every_counter = pytest.mark.parametrize("name", sorted(COUNTERS))
VARIANTS: dict[str, Recipe] = {
    **{name: partial(build, LARGEST) for name, build in COUNTERS.items()},
    "kary-3": lambda epsilon: KaryCounter(epsilon=epsilon, horizon=LARGEST, arity=3),
    "kary-5": lambda epsilon: KaryCounter(epsilon=epsilon, horizon=LARGEST, arity=5),
    "kary-129": lambda epsilon: KaryCounter(epsilon=epsilon, horizon=LARGEST, arity=129),
    "short-epochs-kary": lambda epsilon: EpochsCounter(cost=epsilon, family="kary", first=3),
    "short-epochs-blt": lambda rho: EpochsCounter(cost=rho, family="blt", first=3),
    "short-epochs-blt-coarse": lambda rho: EpochsCounter(cost=rho, family="blt-coarse", first=3),
    "blocks-of-one": lambda epsilon: BlockCounter(epsilon=epsilon, length=1),
    "hybrid-even": lambda epsilon: HybridCounter(epsilon=epsilon, log_share=Fraction(1, 2)),
}
every_variant = pytest.mark.parametrize("name", sorted(VARIANTS))


def node_variances(counter: Counter, t: int) -> np.ndarray:
    law = DiscreteLaplace if counter.measure == "epsilon" else DiscreteGaussian
    return np.array([law(noise).variance for noise in counter.node_noise(t)])


@every_counter
def test_no_event_costs_more_than_claimed_at_any_horizon(name: str) -> None:
    cost = Fraction(2, 3)
    for horizon in range(1, LARGEST + 1):
        counter = COUNTERS[name](horizon, cost)
        assert spent(counter, horizon) <= cost


@every_variant
def test_no_event_of_a_variant_costs_more_than_claimed(name: str) -> None:
    assert spent(VARIANTS[name](Fraction(5)), LARGEST) <= 5


@pytest.mark.parametrize(
    ("counter", "t", "l1_sensitivity"),
    [
        (SimpleCounter(epsilon=ONE), 9, 1),
        (BlockCounter(epsilon=ONE, length=8), 8, 2),
        (BlockCounter(epsilon=ONE, length=1), 8, 1),
        (UnboundedBlockCounter(epsilon=ONE), 4, 2),
        (TreeCounter(epsilon=ONE, horizon=1), 1, 1),
        (TreeCounter(epsilon=ONE, horizon=64), 64, 7),
        (KaryCounter(epsilon=ONE, horizon=62, arity=5), 62, 3),
    ],
    ids=str,
)
def test_claimed_sensitivities_are_reached(counter: Any, t: int, l1_sensitivity: int) -> None:
    """So no claim is too large either: some event is in as many nodes."""
    assert counter.l1_sensitivity == l1_sensitivity
    assert int(np.abs(counter.strategy(t)).sum(axis=0).max()) == l1_sensitivity
    assert spent(counter, t) == 1


@every_variant
@pytest.mark.parametrize("t", [1, 2, 3, 13, LARGEST])
def test_the_matrices_multiply_to_running_sums(name: str, t: int) -> None:
    counter = VARIANTS[name](Fraction(1))
    product = counter.decoder(t) @ counter.strategy(t)
    assert np.allclose(product, np.tri(t), atol=1e-3 if "coarse" in name else 1e-4 if "blt" in name else 1e-9)
    assert counter.strategy(t).dtype == np.int64


@every_variant
def test_variance_is_that_of_the_matrices(name: str) -> None:
    counter = VARIANTS[name](Fraction(1, 7))
    expected = counter.decoder(LARGEST) ** 2 @ node_variances(counter, LARGEST)
    assert np.allclose([counter.variance(t) for t in range(1, LARGEST + 1)], expected, rtol=1e-6)


@every_variant
def test_the_code_does_what_the_matrices_say(name: str) -> None:
    """One draw at a time: the sums that follow from it are its column of the decoder. Rounding moves them a little."""
    t = 40
    counter = VARIANTS[name](Fraction(1))
    decoder = counter.decoder(t)
    # Gaussian draws are multiples of 1/resolution events, and are rounded again in every activation.
    lattice, atol = (counter.resolution, 1e-3) if counter.measure == "rho" else (1, 1e-4)
    sums = sums_of_single_draws(counter, t, decoder.shape[1], 8 * lattice)
    got, expected = sums / (8 * counter.resolution), decoder * lattice
    if "kary" in name:
        # The order of draws within one activation does not matter: compare columns as a set.
        got, expected = (np.array(sorted(matrix.T.round(6).tolist())) for matrix in (got, expected))
    assert np.allclose(got, expected, atol=atol)


LONG, SIZE = 300, 8
AGES = (0, 1, 64, 201)
"""Activations before each coordinate begins."""


def furthest(counter: Counter, t: int) -> float:
    """By how many events running sums are off what the decoder makes of nodes whose noise is SIZE events, all of it."""
    lattice = counter.resolution if counter.measure == "rho" else 1
    expected = counter.decoder(t).sum(axis=1) * lattice * SIZE
    state, off = counter.initial(0), 0.0
    with drawing(lambda count: np.full(count, SIZE * lattice)):
        for now in range(t):
            state = concatenate([state, counter.initial(AGES.count(now))])
            ages = counter.activations(state)
            increments, state = counter.step(np.zeros(len(ages), np.int64), state, seeded(0))
            before = np.concatenate([[0.0], expected])
            off = max(off, np.abs(increments / counter.resolution - before[ages + 1] + before[ages]).max())
    return float(off)


@every_counter
def test_noise_is_that_of_the_nodes_at_every_activation_and_age(name: str) -> None:
    """All nodes have the same noise, so that it does not matter which coordinate's is drawn first. Rounding: 0.01."""
    assert furthest(COUNTERS[name](LONG, Fraction(1)), LONG) < 0.01


@pytest.mark.parametrize(
    "spared", [lambda t: t & (t - 1) == 0, lambda t: t == 2**8, lambda t: t < t.max(initial=0) - 200]
)
def test_noise_that_is_left_out_somewhere_is_seen(spared: Callable[[IntArray], BoolArray]) -> None:
    """At powers of two, at one of them, or of the youngest coordinate: in `_advance`, which no door sees."""
    advance = KaryCounter._advance

    def sparing(self: KaryCounter, t: IntArray, *rest: Any) -> Any:
        noise, memory = advance(self, t, *rest)
        return np.where(spared(t), 0, noise), memory

    with mock.patch.object(KaryCounter, "_advance", sparing):
        assert furthest(KaryCounter.with_best_arity(Fraction(1), LONG), LONG) > 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Literal(TreeCounter):
    """[kumar2024], algorithm 4, as printed: noise Lap(log2(T) / epsilon)."""

    def node_noise(self, t: int) -> tuple[Fraction, ...]:
        return (Fraction(float(np.log2(self.horizon))),) * t


@pytest.mark.parametrize("horizon", range(2, LARGEST + 1))
def test_the_listing_of_the_tree_overspends_at_every_horizon(horizon: int) -> None:
    literal = Literal(epsilon=Fraction(1), horizon=horizon)
    assert spent(literal, horizon) > 1
    assert spent(TreeCounter(epsilon=Fraction(1), horizon=horizon), horizon) <= 1


def test_the_listing_of_the_tree_adds_no_noise_at_horizon_one() -> None:
    """Scale log2(1) is zero: no epsilon at all. Ours has one level there."""
    assert Literal(epsilon=Fraction(1), horizon=1).node_noise(1) == (0,)
    assert TreeCounter(epsilon=Fraction(1), horizon=1).scale == 1


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("simple", (51 * 2 - 1, 1025, 4097)),
        ("tree", (313, 1210, 2028)),
        ("block", (73, 248, 504)),
        ("kary", (57, 171, 271)),
    ],
)
def test_mean_variances_of_the_design(name: str, means: tuple[int, ...]) -> None:
    """Design, section 2, at epsilon 1: continuous noise, so epsilon is small here and the variance scaled."""
    for horizon, mean in zip((100, 1024, 4096), means, strict=True):
        counter = COUNTERS[name](horizon, Fraction(1, 100))
        variances = [counter.variance(t) for t in range(1, horizon + 1)]
        assert abs(np.mean(variances) / 100**2 - mean) <= 0.6


def test_mean_variances_of_blt() -> None:
    """5.6 / mu^2 and 9.7 / mu^2, at mu = 1."""
    for horizon, mean in ((100, 5.6), (1024, 9.7)):
        counter = COUNTERS["blt"](horizon, Fraction(1, 2))
        assert abs(np.mean([counter.variance(t) for t in range(1, horizon + 1)]) - mean) < 0.05


def test_bounds_of_blt_are_bounds_of_what_the_rounding_does() -> None:
    """The noise that explains one release with and without an event: F(w) and F(w - s e_u) of the module's head."""
    counter = BltCounter.fitted_to(LARGEST, Fraction(1, 2))
    bounds = counter.strategy(LARGEST)
    noise = np.random.default_rng(4).integers(-(2**22), 2**22, size=(300, LARGEST))
    for u in (0, 1, 17, LARGEST - 1):
        moved = noise.copy()
        moved[:, u] -= counter.resolution
        difference = np.abs(_explained(counter, noise) - _explained(counter, moved))
        assert (difference <= bounds[:, u]).all()
        assert (difference[:, :u] == 0).all()
        assert (difference[:, u] == counter.resolution).all()
        # Not by far too large either: within two units of what was seen.
        assert (difference.max(axis=0) >= bounds[:, u] - 3).all()


def _explained(counter: object, noise: np.ndarray) -> np.ndarray:
    """z = F(w), from the recursion itself: what is drawn is what is released less what the buffers foretell."""
    buffers = np.zeros((len(noise), len(counter.buffers.shifts)), dtype=np.int64)  # type: ignore[attr-defined]
    drawn = np.zeros_like(noise)
    for t in range(noise.shape[1]):
        foretold, _ = counter.buffers.advance(np.zeros(len(noise), dtype=np.int64), buffers)  # type: ignore[attr-defined]
        drawn[:, t] = noise[:, t] - foretold
        again, buffers = counter.buffers.advance(drawn[:, t], buffers)  # type: ignore[attr-defined]
        assert (again == noise[:, t]).all()
    return drawn
