"""Selective counting: many counters, of which each step activates one, chosen by a private mechanism.

Guarantee: selection_cost + the dearest counter's cost, for one event, however many counters there are. An event enters
    at one step. There it may sway the selection (selection_cost), and it is counted by the counter that was selected
    and by no other (its cost). Given the releases nothing else depends on it.
    Two things are asked for. The mechanism that selects looks at the events of this step and at releases of earlier
    ones, no further back, and is selection_cost-private for one event. And each counter is private under adaptive
    continual release: when it is activated, and on what, is decided by what it and the others showed before. The
    theorem of the paper reads as if plain continual privacy were enough; its proof conditions on past outputs, which is
    adaptivity. A counter with `adaptive` false is refused.
Values are those of THIS step alone. A counter that were given all events since it was last selected would count
    each event in as many counters as there are, at as many times the cost; its increment is what is new in its sum.
Source: [kumar2024], algorithm 11 and theorem 3.5.1 ([kumar2024b], algorithm 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from numpy.typing import ArrayLike

from engines.core.counters.linear import Counter, CounterState, Measure
from engines.core.noise import NoiseSource
from schemas.arrays import IntArray
from schemas.errors import EngineInputError


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectiveCounting:
    """Counters to select from; holds budgets and no data.

    Args:
        counters: at least one, all with costs in the same measure; each may have a width and parameters of its own.
        selection_cost: of one event in one selection, in that measure; zero if the choice is made from releases alone.
    Raises: EngineInputError if there is no counter, a counter is not adaptive, measures differ, or selection_cost is
        not a Fraction from zero.

    >>> from engines.core.counters.kary import KaryCounter
    >>> from engines.core.noise import seeded
    >>> counter = KaryCounter.with_best_arity(Fraction(1, 4), 50)
    >>> marginals = SelectiveCounting(counters=(counter, counter), selection_cost=Fraction(1, 4))
    >>> states = marginals.initial([2, 3])
    >>> increment, states = marginals.step(1, [5, 0, 7], states, seeded(1))
    >>> len(increment), marginals.activations(states), marginals.cost
    (3, [0, 1], Fraction(1, 2))
    """

    counters: tuple[Counter, ...]
    selection_cost: Fraction

    def __post_init__(self) -> None:
        if not self.counters:
            raise EngineInputError("counters must not be empty")
        if not all(counter.adaptive for counter in self.counters):
            raise EngineInputError("counters must be private under adaptive continual release")
        if len({counter.measure for counter in self.counters}) > 1:
            raise EngineInputError("counters must have costs in the same measure")
        cost: object = self.selection_cost
        if not isinstance(cost, Fraction) or cost < 0:
            raise EngineInputError("selection_cost must be a Fraction, at least zero")

    @property
    def measure(self) -> Measure:
        """What costs are counted in."""
        return self.counters[0].measure

    @property
    def cost(self) -> Fraction:
        """What one event costs over all steps: one selection and one counter."""
        return self.selection_cost + max(counter.cost for counter in self.counters)

    def initial(self, widths: Sequence[int]) -> tuple[CounterState, ...]:
        """Return the states of counters that were never selected; `widths` says how many coordinates each has.

        Raises: EngineInputError if there are not as many widths as counters, or one is negative.
        """
        if len(widths) != len(self.counters):
            raise EngineInputError("widths must be as many as counters")
        return tuple(counter.initial(width) for counter, width in zip(self.counters, widths, strict=True))

    def step(
        self, selected: int, values: ArrayLike, states: Sequence[CounterState], source: NoiseSource
    ) -> tuple[IntArray, tuple[CounterState, ...]]:
        """Activate the counter that was selected for this step, and no other.

        Args:
            selected: its index, the outcome of the selecting mechanism; released with the increment.
            values: `(width,)` int64, what the events of this step alone are in its coordinates.
            states: what `initial` or the last `step` returned; left as they are.
            source: noise of this step alone.
        Returns: `(width,)` the increment of its running sum since it was last selected; and the next states.
        Raises: EngineInputError if there is no such counter or it refuses (`Counter.step`); nothing is drawn then.
        """
        if len(states) != len(self.counters):
            raise EngineInputError("states must be as many as counters")
        if not 0 <= selected < len(self.counters):
            raise EngineInputError("selected must be the index of a counter")
        increment, following = self.counters[selected].step(values, states[selected], source)
        return increment, (*states[:selected], following, *states[selected + 1 :])

    def activations(self, states: Sequence[CounterState]) -> list[int]:
        """Return how often each counter was selected; of a counter without coordinates, zero. Public."""
        return [
            int(counter.activations(state).max(initial=0)) for counter, state in zip(self.counters, states, strict=True)
        ]
