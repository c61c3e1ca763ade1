"""Selective counting: its law, exactly, over all draws and selections of short streams; and what it refuses."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from math import exp, log
from typing import ClassVar

import numpy as np
import pytest

from engines.core.counters import CounterState
from engines.core.counters.by_name import COUNTERS
from engines.core.counters.kary import KaryCounter
from engines.core.counters.selective import SelectiveCounting
from engines.core.counters.simple import SimpleCounter
from engines.core.counters.tree import TreeCounter
from engines.core.noise import DiscreteLaplace, seeded
from schemas.errors import EngineInputError
from tests.counters.doctored import Untouchable, drawing

COST, SELECTION = Fraction(1, 2), Fraction(1, 4)
DRAWS = range(-5, 6)
Law = dict[tuple[tuple[int, int], ...], float]
Values = Callable[[list[int], list[int], int], int]


def this_step(stream: list[int], selected: list[int], t: int) -> int:
    return stream[t]


def since_selected(stream: list[int], selected: list[int], t: int) -> int:
    """The tempting mistake: all events since this counter was last selected."""
    earlier = [s for s in range(t) if selected[s] == selected[t]]
    return sum(stream[earlier[-1] + 1 if earlier else 0 : t + 1])


def chance_of_one(value: int, released: tuple[tuple[int, int], ...]) -> float:
    """Randomised response on whether this step has events, turned around by the sign of the last increment."""
    truth = exp(float(SELECTION)) / (1 + exp(float(SELECTION)))
    turned = bool(released) and released[-1][1] < 0
    return truth if (value > 0) != turned else 1 - truth


def law(counting: SelectiveCounting, scale: Fraction, stream: list[int], values: Values) -> Law:
    """Probability of each transcript of (selected, increment), by running the code on every draw in DRAWS."""
    pmf = {z: DiscreteLaplace(scale).pmf(z) for z in DRAWS}
    result: Law = defaultdict(float)
    for selected in product((0, 1), repeat=len(stream)):
        for draws in product(DRAWS, repeat=len(stream)):
            states: tuple[CounterState, ...] = counting.initial([1, 1])
            released: tuple[tuple[int, int], ...] = ()
            probability = 1.0
            for t, z in enumerate(draws):
                one = chance_of_one(stream[t], released)
                probability *= (one if selected[t] else 1 - one) * pmf[z]
                with drawing(partial(np.full, fill_value=z, dtype=np.int64)):
                    value = values(stream, list(selected), t)
                    increment, states = counting.step(selected[t], [value], states, seeded(0))
                released = (*released, (selected[t], int(increment[0])))
            result[released] += probability
    return result


def loss(left: Law, right: Law) -> float:
    """The largest |ln ratio| over transcripts whose draws are inside on both sides: a few from the edge."""
    inside = [o for o in left if o in right and all(abs(increment) <= DRAWS[-1] - 2 for _, increment in o)]
    return max(abs(log(left[o] / right[o])) for o in inside)


NEIGHBOURS = [([0, 0], [1, 0]), ([0, 0], [0, 1]), ([1, 1], [1, 2]), ([2, 0], [1, 0])]


@pytest.mark.parametrize(("left", "right"), NEIGHBOURS, ids=str)
def test_one_event_costs_a_selection_and_a_counter(left: list[int], right: list[int]) -> None:
    counter = SimpleCounter(epsilon=COST)
    counting = SelectiveCounting(counters=(counter, counter), selection_cost=SELECTION)
    laws = [law(counting, counter.scale, stream, this_step) for stream in (left, right)]
    assert counting.cost == COST + SELECTION
    assert loss(*laws) <= float(counting.cost) + 1e-9


def test_the_cost_is_reached() -> None:
    """So the selection has to be paid for: without its share the claim would be broken."""
    counter = SimpleCounter(epsilon=COST)
    counting = SelectiveCounting(counters=(counter, counter), selection_cost=SELECTION)
    laws = [law(counting, counter.scale, stream, this_step) for stream in ([0, 0], [1, 0])]
    assert loss(*laws) > float(COST) + 0.9 * float(SELECTION)


def test_counting_events_since_the_last_selection_breaks_it() -> None:
    """An event before the first selections is then counted by each counter in its turn."""
    counter = SimpleCounter(epsilon=COST)
    counting = SelectiveCounting(counters=(counter, counter), selection_cost=SELECTION)
    laws = [law(counting, counter.scale, stream, since_selected) for stream in ([0, 0], [1, 0])]
    assert loss(*laws) > float(counting.cost) + 0.9 * float(COST)


def test_the_cost_is_that_of_the_dearest_counter() -> None:
    counters = (SimpleCounter(epsilon=Fraction(1, 3)), KaryCounter.with_best_arity(Fraction(2, 3), 9))
    assert SelectiveCounting(counters=counters, selection_cost=Fraction(0)).cost == Fraction(2, 3)
    assert SelectiveCounting(counters=counters * 50, selection_cost=Fraction(1, 3)).cost == 1


@pytest.mark.parametrize("name", sorted(COUNTERS))
def test_every_counter_counts_what_it_was_selected_for(name: str) -> None:
    """Beside the same counter run alone on the steps for which it was selected."""
    counter = COUNTERS[name](9, Fraction(1))
    counting = SelectiveCounting(counters=(counter, counter, counter), selection_cost=Fraction(1))
    assert (counting.measure, counting.cost) == (counter.measure, 2)
    selected, states, alone = [0, 1, 1, 0, 1, 1, 0, 1], counting.initial([2, 1, 3]), counter.initial(1)
    for t, choice in enumerate(selected):
        before = states
        values = np.arange([2, 1, 3][choice]) + t
        increment, states = counting.step(choice, values, states, seeded(t))
        assert all(states[other] is before[other] for other in range(3) if other != choice)
        if choice == 1:
            expected, alone = counter.step(values, alone, seeded(t))
            assert increment.tolist() == expected.tolist()
    assert counting.activations(states) == [3, 5, 0]


@dataclass(frozen=True, kw_only=True, slots=True)
class NotAdaptive(SimpleCounter):
    adaptive: ClassVar[bool] = False


def test_what_is_refused() -> None:
    simple, tree = SimpleCounter(epsilon=COST), TreeCounter(epsilon=COST, horizon=1)
    for counters, cost, message in (
        ((), SELECTION, "empty"),
        ((simple, NotAdaptive(epsilon=COST)), SELECTION, "adaptive"),
        ((simple, COUNTERS["blt"](4, COST)), SELECTION, "same measure"),
        ((simple,), Fraction(-1), "selection_cost"),
        ((simple,), 0.25, "selection_cost"),
    ):
        with pytest.raises(EngineInputError, match=message):
            SelectiveCounting(counters=counters, selection_cost=cost)  # type: ignore[arg-type]
    counting = SelectiveCounting(counters=(simple, tree), selection_cost=SELECTION)
    with pytest.raises(EngineInputError, match="widths"):
        counting.initial([1])
    states = counting.initial([1, 1])
    for selected in (-1, 2):
        with pytest.raises(EngineInputError, match="selected"):
            counting.step(selected, [1], states, Untouchable())
    with pytest.raises(EngineInputError, match="states"):
        counting.step(0, [1], states[:1], Untouchable())
    _, states = counting.step(1, [1], states, seeded(1))
    with pytest.raises(EngineInputError, match="horizon"):
        counting.step(1, [1], states, Untouchable())
