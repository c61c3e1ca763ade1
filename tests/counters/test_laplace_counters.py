"""What is particular to one Laplace counter: how blocks grow, choice of arity, shares of epsilon."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.counters import (
    BlockConfig,
    EpochsConfig,
    HybridConfig,
    KaryConfig,
    TreeConfig,
    UnboundedBlockConfig,
    spent,
)
from engines.core.counters.kary import balanced_digits, best_arity, digit_sum, height_for
from engines.core.noise import seeded
from schemas.errors import EngineInputError
from tests.counters.doctored import drawing

ONE = Fraction(1)
few = settings(max_examples=40)
ARITIES = st.integers(1, 30).map(lambda half: 2 * half + 1)


@given(t=st.integers(0, 10**9), arity=ARITIES)
def test_balanced_digits_write_the_number(t: int, arity: int) -> None:
    height = height_for(arity, max(t, 1))
    digits = [int(balanced_digits(np.array([t]), arity, level)[0]) for level in range(height)]
    assert sum(digit * arity**level for level, digit in enumerate(digits)) == t
    assert max(map(abs, digits)) <= (arity - 1) // 2
    assert digit_sum(t, arity, height) == sum(map(abs, digits))


@few
@given(horizon=st.integers(1, 150), arity=ARITIES, width=st.integers(0, 3))
def test_every_arity_counts_right_and_privately(horizon: int, arity: int, width: int) -> None:
    """Noise that is 1 for each node: the error is what is added less what is taken away, digit by digit."""
    counter = KaryConfig(horizon=horizon, arity=arity).calibrate(ONE)
    assert counter.height == height_for(arity, horizon)
    state = counter.initial(width)
    with drawing(lambda count: np.ones(count, dtype=np.int64)):
        for t in range(1, horizon + 1):
            _, state = counter.step(np.full(width, 2), state, seeded(1))
            digits = [int(balanced_digits(np.array([t]), arity, level)[0]) for level in range(counter.height)]
            assert counter.running_sum(state).tolist() == [2 * t + sum(digits)] * width
    assert spent(counter, horizon) <= 1


@pytest.mark.parametrize("objective", ["mean", "max"])
@pytest.mark.parametrize("horizon", [1, 2, 3, 5, 12, 40, 100, 260])
def test_the_best_arity_is_the_best_of_all(horizon: int, objective: str) -> None:
    fold = sum if objective == "mean" else max

    def value(arity: int) -> int:
        height = height_for(arity, horizon)
        return height**2 * fold(digit_sum(t, arity, height) for t in range(1, horizon + 1))

    best = min(range(3, 2 * horizon + 4, 2), key=lambda arity: (value(arity), arity))
    assert best_arity(horizon, objective) == best  # type: ignore[arg-type]


def test_arities_of_the_design() -> None:
    chosen = [KaryConfig(horizon=horizon).calibrate(ONE) for horizon in (100, 1024, 4096)]
    assert [(counter.arity, counter.height) for counter in chosen] == [(15, 2), (13, 3), (21, 3)]


@pytest.mark.parametrize("horizon", [10**6, 2**47])
def test_long_horizons_are_chosen_at_once(horizon: int) -> None:
    counter = KaryConfig(horizon=horizon, objective="max").calibrate(ONE)
    assert (counter.arity**counter.height - 1) // 2 >= horizon
    assert counter.variance(horizon) < TreeConfig(horizon=horizon).calibrate(ONE).variance(horizon - 1)


@few
@given(horizon=st.integers(1, 200), levels=st.integers(0, 5))
def test_the_tree_has_as_many_levels_as_the_horizon_has_digits(horizon: int, levels: int) -> None:
    counter = TreeConfig(horizon=horizon).calibrate(ONE)
    assert 2 ** (counter.l1_sensitivity - 1) <= horizon < 2**counter.l1_sensitivity
    t = min(horizon, 2**levels)
    assert counter.variance(t) == bin(t).count("1") * counter.node_variance


def test_blocks_of_the_papers_form_grow_as_squares() -> None:
    counter = UnboundedBlockConfig(growth="paper").calibrate(ONE)
    ends = np.flatnonzero(counter._ends(np.arange(1, 40))) + 1
    assert ends.tolist() == [2, 4, 7, 10, 13, 17, 21, 25, 29, 34, 39]


def test_blocks_that_quadruple() -> None:
    counter = UnboundedBlockConfig().calibrate(ONE)
    ends = np.flatnonzero(counter._ends(np.arange(1, 45))) + 1
    assert ends.tolist() == [2, 4, 8, 12, 16, 20, 28, 36, 44]


def test_the_papers_block_grows_faster_than_it_says() -> None:
    """Error t^(1/3), not t^(1/4): from partition to partition the variance grows as t^(2/3). Ours: t^(1/2)."""
    for growth, power in (("paper", 2 / 3), ("quadrupling", 1 / 2)):
        counter = UnboundedBlockConfig(growth=growth).calibrate(Fraction(1, 10))  # type: ignore[arg-type]
        if growth == "paper":
            ends = [sum(b * b for b in range(2, n)) for n in (50, 200)]
        else:
            ends = [sum(4**j for j in range(1, n)) for n in (5, 9)]
        slope = np.log(counter.variance(ends[1]) / counter.variance(ends[0])) / np.log(ends[1] / ends[0])
        assert abs(slope - power) < 0.02


def test_the_length_of_blocks_for_a_horizon_is_near_its_root() -> None:
    assert [BlockConfig.for_horizon(horizon).length for horizon in (1, 2, 100, 101, 4096)] == [1, 2, 10, 11, 64]


def test_the_hybrid_splits_epsilon() -> None:
    counter = HybridConfig(log_share=Fraction(1, 4)).calibrate(Fraction(2))
    assert (counter.log_scale, counter.tree_scale(3)) == (2, 2)
    # An event early in the epoch from 9 on is in its total and in all three levels of its tree.
    assert spent(counter, 16) == 2


def test_epochs_are_counters_of_their_own() -> None:
    counter = EpochsConfig(family="kary", first=4).calibrate(ONE)
    parts = [KaryConfig(horizon=horizon).calibrate(ONE) for horizon in (4, 8, 16)]
    assert counter.variance(4) == parts[0].variance(4)
    assert counter.variance(12) == parts[0].variance(4) + parts[1].variance(8)
    assert counter.variance(15) == counter.variance(12) + parts[2].variance(3)
    # From the longest on they are all alike.
    assert EpochsConfig(family="kary", first=2**18).calibrate(ONE).epoch_of(5 * 2**18) == (4, 2**20)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (BlockConfig(length=0), "length"),
        (BlockConfig(length=2.0), "length"),  # type: ignore[arg-type]
        (TreeConfig(horizon=0), "horizon"),
        (TreeConfig(horizon=True), "horizon"),
        (KaryConfig(horizon=0), "horizon"),
        (KaryConfig(horizon=9, arity=4), "odd"),
        (KaryConfig(horizon=9, arity=1), "arity"),
        (KaryConfig(horizon=9, objective="median"), "objective"),  # type: ignore[arg-type]
        (HybridConfig(log_share=Fraction(1)), "log_share"),
        (HybridConfig(log_share=0.5), "log_share"),  # type: ignore[arg-type]
        (UnboundedBlockConfig(growth="thesis"), "growth"),  # type: ignore[arg-type]
        (EpochsConfig(family="tree"), "family"),  # type: ignore[arg-type]
        (EpochsConfig(family="kary", first=0), "first"),
        (EpochsConfig(family="kary", first=2**19), "first"),
    ],
    ids=str,
)
def test_refused_parameters(config: KaryConfig, message: str) -> None:
    with pytest.raises(EngineInputError, match=message):
        config.calibrate(ONE)


def test_noise_of_kary_nodes_still_to_be_used_is_in_the_state() -> None:
    """After the first wrap the lowest level holds (k-1)/2 draws, and drops one at each activation."""
    counter = KaryConfig(horizon=100, arity=15).calibrate(ONE)
    state = counter.initial(1)
    held = []
    with drawing(lambda count: np.full(count, 5, dtype=np.int64)):
        for _ in range(20):
            _, state = counter.step(np.array([0]), state, seeded(1))
            held.append(int(np.count_nonzero(state["right"])))
    assert held == [0] * 7 + [7, 6, 5, 4, 3, 2, 1] + [0] * 6
    with pytest.raises(EngineInputError, match="another counter"):
        replace(counter, arity=17).step(np.array([0]), state, seeded(1))
