"""What every counter must do. A counter is tested by being entered in `engines.core.counters.by_name`."""

from fractions import Fraction
from functools import partial
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.counters import Counter, CounterState, Recipe, concatenate, select, spent
from engines.core.counters.by_name import COUNTERS as BUILDERS
from engines.core.noise import seeded
from schemas.arrays import IntArray
from schemas.errors import EngineInputError
from tests.counters.doctored import Untouchable, drawing, negated, no_noise
from tests.examples import examples

HORIZON = 12
COUNTERS: dict[str, Recipe] = {name: partial(build, HORIZON) for name, build in BUILDERS.items()}
COSTS = st.fractions(min_value=Fraction(1, 1000), max_value=100, max_denominator=1000).filter(bool)
VALUES = st.integers(-(2**40), 2**40)
few = settings(max_examples=examples(0.3))  # of each test, for each counter
every_counter = pytest.mark.parametrize("name", sorted(COUNTERS))


@st.composite
def streams(draw: st.DrawFn, min_width: int = 0) -> list[IntArray]:
    width = draw(st.integers(min_width, 4))
    row = st.lists(VALUES, min_size=width, max_size=width)
    return [np.array(values, dtype=np.int64) for values in draw(st.lists(row, min_size=1, max_size=6))]


def run(counter: Counter, stream: list[IntArray], seed: int, state: CounterState, first: int = 0) -> tuple:
    increments = []
    for t, values in enumerate(stream, start=first):
        increment, state = counter.step(values, state, seeded(seed).child("activation", t))
        increments.append(increment)
    return increments, state


@every_counter
@few
@given(stream=streams(), cost=COSTS, seed=st.integers(0, 9))
def test_increments_sum_to_the_running_sum(name: str, stream: list[IntArray], cost: Fraction, seed: int) -> None:
    counter = COUNTERS[name](cost)
    increments, state = run(counter, stream, seed, counter.initial(stream[0].size))
    assert counter.running_sum(state).tolist() == np.sum(increments, axis=0).tolist()
    assert counter.activations(state).tolist() == [len(stream)] * stream[0].size


@every_counter
@few
@given(stream=streams(), cut=st.integers(0, 6), seed=st.integers(0, 9))
def test_a_stored_state_goes_on_identically(name: str, stream: list[IntArray], cut: int, seed: int) -> None:
    counter = COUNTERS[name](Fraction(1, 3))
    whole, last = run(counter, stream, seed, counter.initial(stream[0].size))
    head, middle = run(counter, stream[:cut], seed, counter.initial(stream[0].size))
    stored = {name: array.copy() for name, array in middle.items()}
    again = COUNTERS[name](Fraction(1, 3))
    tail, end = run(again, stream[cut:], seed, stored, first=len(stream[:cut]))
    assert [x.tolist() for x in whole] == [x.tolist() for x in head + tail]
    assert {k: v.tolist() for k, v in last.items()} == {k: v.tolist() for k, v in end.items()}


@every_counter
@few
@given(stream=streams())
def test_nothing_is_mutated_and_state_is_arrays_by_coordinate(name: str, stream: list[IntArray]) -> None:
    counter = COUNTERS[name](Fraction(1))
    state = counter.initial(stream[0].size)
    for t, values in enumerate(stream):
        before = {k: v.copy() for k, v in state.items()}
        given_values = values.copy()
        increment, following = counter.step(values, state, seeded(t))
        counter.running_sum(following)[:] = 0
        assert counter.running_sum(following).tolist() == (counter.running_sum(state) + increment).tolist()
        assert increment.dtype == np.int64
        assert values.tolist() == given_values.tolist()
        assert {k: v.tolist() for k, v in before.items()} == {k: v.tolist() for k, v in state.items()}
        state = following
        for array in state.values():
            assert array.dtype == np.int64
            assert array.shape[0] == values.size


@every_counter
@few
@given(stream=streams(min_width=1), at=st.integers(0, 5), coordinate=st.integers(0, 3), seed=st.integers(0, 9))
def test_noise_does_not_depend_on_values(
    name: str, stream: list[IntArray], at: int, coordinate: int, seed: int
) -> None:
    """Linear counters: what noise is drawn is the same for neighbours, so sums differ by the event from its time on."""
    counter = COUNTERS[name](Fraction(1))
    at, coordinate = at % len(stream), coordinate % stream[0].size
    neighbour = [values.copy() for values in stream]
    neighbour[at][coordinate] += 1
    here, _ = run(counter, stream, seed, counter.initial(stream[0].size))
    there, _ = run(counter, neighbour, seed, counter.initial(stream[0].size))
    moved = np.cumsum(there, axis=0) - np.cumsum(here, axis=0)
    expected = np.zeros_like(moved)
    expected[at:, coordinate] = counter.resolution
    assert moved.tolist() == expected.tolist()


@every_counter
@few
@given(stream=streams(), which=st.lists(st.integers(0, 3), max_size=6))
def test_coordinates_can_be_taken_and_joined(name: str, stream: list[IntArray], which: list[int]) -> None:
    counter = COUNTERS[name](Fraction(1))
    width = stream[0].size
    _, state = run(counter, stream, 1, counter.initial(width))
    indices = np.array([i for i in which if i < width], dtype=np.int64)
    joined = concatenate([select(state, indices), counter.initial(2)])
    assert counter.running_sum(joined).tolist() == [*counter.running_sum(state)[indices].tolist(), 0, 0]
    _, following = counter.step(np.zeros(indices.size + 2, dtype=np.int64), joined, seeded(1))
    assert counter.activations(following).tolist() == [len(stream) + 1] * indices.size + [1, 1]


@every_counter
@few
@given(cost=COSTS, t=st.integers(1, HORIZON))
def test_the_numbers_of_the_guarantee_fit_together(name: str, cost: Fraction, t: int) -> None:
    counter = COUNTERS[name](cost)
    assert counter.cost == cost
    assert 0 < spent(counter, t) <= cost
    assert counter.measure in ("epsilon", "rho")
    assert counter.variance(0) == 0.0
    assert counter.variance(1) > 0.0 or cost > 50
    assert counter.adaptive


@every_counter
@few
@given(stream=streams(), cost=COSTS)
def test_sums_without_noise_are_those_of_brute_force(name: str, stream: list[IntArray], cost: Fraction) -> None:
    counter = COUNTERS[name](cost)
    state, so_far = counter.initial(stream[0].size), np.zeros(stream[0].size, dtype=np.int64)
    with drawing(no_noise):
        for values in stream:
            _, state = counter.step(values, state, Untouchable())
            so_far = so_far + values
            assert counter.running_sum(state).tolist() == (so_far * counter.resolution).tolist()


@every_counter
@few
@given(stream=streams(), cost=COSTS, seed=st.integers(0, 9))
def test_sums_are_exactly_unbiased(name: str, stream: list[IntArray], cost: Fraction, seed: int) -> None:
    """Draws are symmetric in law; with all of them negated the error of each release is, to the last bit, as well."""
    counter = COUNTERS[name](cost)
    honest, _ = run(counter, stream, seed, counter.initial(stream[0].size))
    with negated():
        mirrored, _ = run(counter, stream, seed, counter.initial(stream[0].size))
    for here, there, values in zip(honest, mirrored, stream, strict=True):
        assert (here + there).tolist() == (2 * values * counter.resolution).tolist()


@every_counter
def test_every_activation_draws_its_own_noise(name: str) -> None:
    counter = COUNTERS[name](Fraction(1, 100))
    zeros = [np.zeros(50, dtype=np.int64)] * 2
    (first, second), _ = run(counter, zeros, 5, counter.initial(50))
    assert first.any()
    assert first.tolist() != second.tolist()


@every_counter
def test_outside_the_contract(name: str) -> None:
    counter = COUNTERS[name](Fraction(1))
    for cost in (Fraction(0), Fraction(-1), 1.0):
        with pytest.raises(EngineInputError, match=counter.measure):
            COUNTERS[name](cost)  # type: ignore[arg-type]
    with pytest.raises(EngineInputError, match="width"):
        counter.initial(-1)
    with pytest.raises(EngineInputError, match="width"):
        counter.step(np.array([1]), counter.initial(2), seeded(1))
    for values in (np.array([1.0, 2.0]), np.array([[1, 2]])):
        with pytest.raises(EngineInputError, match="values"):
            counter.step(values, counter.initial(2), seeded(1))
    with pytest.raises(EngineInputError, match="activations"):
        counter.variance(-1)
    if counter.horizon is not None:
        with pytest.raises(EngineInputError, match="horizon"):
            counter.variance(counter.horizon + 1)


@every_counter
def test_past_the_horizon_nothing_is_drawn_and_nothing_released(name: str) -> None:
    counter = COUNTERS[name](Fraction(1))
    state, rested = counter.initial(1), counter.initial(1)
    for t in range(HORIZON):
        _, state = counter.step(np.array([1]), state, seeded(t))
    if counter.horizon is None:
        counter.step(np.array([1]), state, seeded(HORIZON))
        return
    assert counter.horizon in (HORIZON, None)
    before = {k: v.tolist() for k, v in state.items()}
    for states in (state, concatenate([rested, state])):
        with pytest.raises(EngineInputError, match="horizon"):
            counter.step(np.ones(states["kind"].size, dtype=np.int64), states, Untouchable())
    assert {k: v.tolist() for k, v in state.items()} == before


@every_counter
def test_a_state_of_another_counter_calibration_or_version_is_refused(name: str) -> None:
    counter = COUNTERS[name](Fraction(1))
    others = {f"{other}": COUNTERS[other](Fraction(1)) for other in COUNTERS if other != name}
    others["dearer"] = COUNTERS[name](Fraction(2))
    if counter.horizon is not None:
        others["longer"] = BUILDERS[name](HORIZON + 1, Fraction(1))
    for other in others.values():
        with pytest.raises(EngineInputError, match="another counter"):
            counter.step(np.array([1]), other.initial(1), Untouchable())
        with pytest.raises(EngineInputError, match="another counter"):
            counter.running_sum(other.initial(1))
        with pytest.raises(EngineInputError, match="same kind"):
            concatenate([counter.initial(1), other.initial(1)])
    state = counter.initial(1)
    with mock.patch("engines.core.counters.linear.STATE_FORMAT", 0), pytest.raises(EngineInputError, match="version"):
        counter.step(np.array([1]), state, Untouchable())
    for wrong in (
        {k: v for k, v in state.items() if k != "kind"},
        {k: v for k, v in state.items() if k != "running_sum"},
        state | {"other": state["kind"]},
        state | {"running_sum": np.zeros(1)},
        state | {"running_sum": np.zeros(2, dtype=np.int64)},
    ):
        with pytest.raises(EngineInputError, match="state"):
            counter.step(np.array([1]), wrong, Untouchable())  # type: ignore[arg-type]


@every_counter
@pytest.mark.parametrize("t", [1, 2, 3, 7, HORIZON])
def test_a_coordinate_does_not_notice_its_companions(name: str, t: int) -> None:
    """Coordinates of different ages in one state: each one's sums without noise, and its memory, are its own."""
    counter = COUNTERS[name](Fraction(1))
    with drawing(lambda count: np.full(count, 1000, dtype=np.int64)):
        _, old = run(counter, [np.array([3])] * (t - 1), 0, counter.initial(1))
        _, young = run(counter, [np.array([5])] * (t // 2), 0, counter.initial(1))
        apart = [counter.step(np.array([7]), state, seeded(0))[1] for state in (young, old)]
        _, together = counter.step(np.array([7, 7]), concatenate([young, old]), seeded(0))
    expected = concatenate(apart)
    assert {k: v.tolist() for k, v in together.items()} == {k: v.tolist() for k, v in expected.items()}


def test_states_of_different_counters_cannot_be_joined() -> None:
    with pytest.raises(EngineInputError, match="empty"):
        concatenate([])
    with pytest.raises(EngineInputError, match="same kind"):
        concatenate([{"activations": np.array([1])}, {"nodes": np.array([1])}])
