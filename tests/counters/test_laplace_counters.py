"""What is particular to one Laplace counter: how blocks grow, choice of arity, shares of epsilon."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.counters import Counter, spent
from engines.core.counters.block import BlockCounter, UnboundedBlockCounter
from engines.core.counters.epochs import EpochsCounter
from engines.core.counters.kary import KaryCounter, balanced_digits, best_arity, digit_sum, height_for
from engines.core.counters.simple import SimpleCounter
from engines.core.counters.tree import HybridCounter, TreeCounter
from engines.core.noise import seeded
from schemas.errors import EngineInputError
from tests.counters.doctored import drawing
from tests.examples import examples
from tests.noise.goodness import laplace_hits, misfit

ONE = Fraction(1)
few = settings(max_examples=examples(0.8))
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
    counter = KaryCounter(epsilon=ONE, horizon=horizon, arity=arity)
    assert counter.height == height_for(arity, horizon)
    state = counter.initial(width)
    with drawing(lambda count: np.ones(count, dtype=np.int64)):
        for t in range(1, horizon + 1):
            _, state = counter.step(np.full(width, 2), state, seeded(1))
            digits = [int(balanced_digits(np.array([t]), arity, level)[0]) for level in range(counter.height)]
            assert counter.running_sum(state).tolist() == [2 * t + sum(digits)] * width
    assert spent(counter, horizon) <= 1


@pytest.mark.parametrize("horizon", [1, 2, 3, 5, 12, 40, 100, 260])
def test_the_best_arity_is_the_best_of_all(horizon: int) -> None:
    def value(arity: int) -> int:
        height = height_for(arity, horizon)
        return height**2 * sum(digit_sum(t, arity, height) for t in range(1, horizon + 1))

    best = min(range(3, 2 * horizon + 4, 2), key=lambda arity: (value(arity), arity))
    assert best_arity(horizon) == best


def test_arities_of_the_design() -> None:
    chosen = [KaryCounter.with_best_arity(ONE, horizon) for horizon in (100, 1024, 4096)]
    assert [(counter.arity, counter.height) for counter in chosen] == [(15, 2), (13, 3), (21, 3)]


@pytest.mark.parametrize("horizon", [10**6, 2**47])
def test_long_horizons_are_chosen_at_once(horizon: int) -> None:
    counter = KaryCounter.with_best_arity(ONE, horizon)
    assert (counter.arity**counter.height - 1) // 2 >= horizon
    assert counter.variance(horizon) < TreeCounter(epsilon=ONE, horizon=horizon).variance(horizon - 1)


@few
@given(horizon=st.integers(1, 200), levels=st.integers(0, 5))
def test_the_tree_has_as_many_levels_as_the_horizon_has_digits(horizon: int, levels: int) -> None:
    counter = TreeCounter(epsilon=ONE, horizon=horizon)
    assert 2 ** (counter.l1_sensitivity - 1) <= horizon < 2**counter.l1_sensitivity
    t = min(horizon, 2**levels)
    assert counter.variance(t) == bin(t).count("1") * counter.node_variance


def test_blocks_of_the_papers_form_grow_as_squares() -> None:
    counter = UnboundedBlockCounter(epsilon=ONE, growth="paper")
    ends = np.flatnonzero(counter._ends(np.arange(1, 40))) + 1
    assert ends.tolist() == [2, 4, 7, 10, 13, 17, 21, 25, 29, 34, 39]


def test_blocks_that_quadruple() -> None:
    counter = UnboundedBlockCounter(epsilon=ONE)
    ends = np.flatnonzero(counter._ends(np.arange(1, 45))) + 1
    assert ends.tolist() == [2, 4, 8, 12, 16, 20, 28, 36, 44]


def test_the_papers_block_grows_faster_than_it_says() -> None:
    """Error t^(1/3), not t^(1/4): from partition to partition the variance grows as t^(2/3). Ours: t^(1/2)."""
    for growth, power in (("paper", 2 / 3), ("quadrupling", 1 / 2)):
        counter = UnboundedBlockCounter(epsilon=Fraction(1, 10), growth=growth)  # type: ignore[arg-type]
        if growth == "paper":
            ends = [sum(b * b for b in range(2, n)) for n in (50, 200)]
        else:
            ends = [sum(4**j for j in range(1, n)) for n in (5, 9)]
        slope = np.log(counter.variance(ends[1]) / counter.variance(ends[0])) / np.log(ends[1] / ends[0])
        assert abs(slope - power) < 0.02


def test_the_length_of_blocks_for_a_horizon_is_near_its_root() -> None:
    assert [BlockCounter.best_length(horizon) for horizon in (1, 2, 100, 101, 4096)] == [1, 2, 10, 11, 64]


def test_the_hybrid_splits_epsilon() -> None:
    counter = HybridCounter(epsilon=Fraction(2), log_share=Fraction(1, 4))
    assert (counter.log_scale, counter.tree_scale(3)) == (2, 2)
    # An event early in the epoch from 9 on is in its total and in all three levels of its tree.
    assert spent(counter, 16) == 2


def test_epochs_are_counters_of_their_own() -> None:
    counter = EpochsCounter(cost=ONE, family="kary", first=4)
    parts = [KaryCounter.with_best_arity(ONE, horizon) for horizon in (4, 8, 16)]
    assert counter.variance(4) == parts[0].variance(4)
    assert counter.variance(12) == parts[0].variance(4) + parts[1].variance(8)
    assert counter.variance(15) == counter.variance(12) + parts[2].variance(3)
    # From the longest on they are all alike.
    assert EpochsCounter(cost=ONE, family="kary", first=2**18).epoch_of(5 * 2**18) == (4, 2**20)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BlockCounter(epsilon=ONE, length=0), "length"),
        (lambda: BlockCounter(epsilon=ONE, length=2.0), "length"),  # type: ignore[arg-type]
        (lambda: TreeCounter(epsilon=ONE, horizon=0), "horizon"),
        (lambda: TreeCounter(epsilon=ONE, horizon=True), "horizon"),
        (lambda: KaryCounter.with_best_arity(ONE, 0), "horizon"),
        (lambda: KaryCounter(epsilon=ONE, horizon=9, arity=4), "odd"),
        (lambda: KaryCounter(epsilon=ONE, horizon=9, arity=1), "arity"),
        (lambda: HybridCounter(epsilon=ONE, log_share=ONE), "log_share"),
        (lambda: HybridCounter(epsilon=ONE, log_share=0.5), "log_share"),  # type: ignore[arg-type]
        (lambda: UnboundedBlockCounter(epsilon=ONE, growth="thesis"), "growth"),  # type: ignore[arg-type]
        (lambda: EpochsCounter(cost=ONE, family="tree"), "family"),  # type: ignore[arg-type]
        (lambda: EpochsCounter(cost=ONE, family="kary", first=0), "first"),
        (lambda: EpochsCounter(cost=ONE, family="kary", first=2**19), "first"),
    ],
)
def test_refused_parameters(make: Callable[[], Counter], message: str) -> None:
    with pytest.raises(EngineInputError, match=message):
        make()


def test_noise_of_kary_nodes_still_to_be_used_is_in_the_state() -> None:
    """After the first wrap the lowest level holds (k-1)/2 draws, and drops one at each activation."""
    counter = KaryCounter(epsilon=ONE, horizon=100, arity=15)
    state = counter.initial(1)
    held = []
    with drawing(lambda count: np.full(count, 5, dtype=np.int64)):
        for _ in range(20):
            _, state = counter.step(np.array([0]), state, seeded(1))
            held.append(int(np.count_nonzero(state["right"])))
    assert held == [0] * 7 + [7, 6, 5, 4, 3, 2, 1] + [0] * 6
    with pytest.raises(EngineInputError, match="another counter"):
        replace(counter, arity=17).step(np.array([0]), state, seeded(1))


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(1, 10), Fraction(7, 3)], ids=str)
def test_each_increment_of_the_simple_counter_has_the_exact_law(epsilon: Fraction) -> None:
    """Discrete Laplace of scale 1/epsilon, afresh each time. False-positive rate 1e-6."""
    counter, width = SimpleCounter(epsilon=epsilon), 500_000
    values = np.arange(width) - 1000
    state = counter.initial(width)
    for t in range(2):
        increment, state = counter.step(values, state, seeded(81).child(t))
        hits, probabilities = laplace_hits(increment - values, 1 / epsilon)
        assert misfit(hits, probabilities, width) == ""


def test_sums_beyond_int64_wrap_without_an_error() -> None:
    """An error, or a saturated sum, would tell of the values; the wrapped sum is a function of the noisy one."""
    counter = SimpleCounter(epsilon=Fraction(1, 1000))
    largest = np.full(100, 2**63 - 1)
    increment, state = counter.step(largest, counter.initial(100), seeded(84))
    assert (increment < 0).any()
    counter.step(largest, state, seeded(85))
