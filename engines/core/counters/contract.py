"""What every continual counter promises: state in, state out, a vector of counters at a time.

A config is a recipe; `calibrate(cost)` turns it into a counter that holds its noise scale. The counter itself holds
public constants only. What it has seen is in a `CounterState`, a dictionary of int64 arrays that its caller stores.

Guarantee: a counter that is activated any number of times (up to its horizon) costs `cost` for one event, which is one
    unit, added or removed, in ONE coordinate at ONE activation: epsilon-DP or rho-zCDP, as `measure` says. An event of
    weight w costs w times that epsilon, or w squared times that rho.
Units: values are events; increments and running sums, nodes and their noise are whole multiples of 1/resolution events,
    which is 1 for Laplace noise; an activation is one call of `step`, not a step of the stream.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engines.core.noise import NoiseSource
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.errors import EngineInputError

CounterState = dict[str, IntArray]
"""Arrays by name, all that a counter must remember, noise still to be used included; private.

The first axis of every array is the coordinate, and nothing is shared between coordinates: so `select` and
`concatenate` give the states of fewer or more of them, for counters of a tree whose leaves come and go. `kind` names
the counter, its parameters, its cost and the format: a state of any other is refused.
"""

Measure = Literal["epsilon", "rho"]
"""What a cost is counted in: epsilon of pure DP (discrete Laplace noise), rho of zCDP (discrete Gaussian noise)."""


class CounterConfig(Protocol):
    """A recipe: parameters that are public and do not depend on the budget, e.g. a horizon or a block length."""

    def calibrate(self, cost: Fraction, /) -> "Counter":
        """Return the counter that spends `cost` (epsilon, or rho) on one event over all its activations.

        Raises: EngineInputError if the cost is not a positive Fraction, or so small that noise would leave int64.
        """
        ...


class Counter(Protocol):
    """Public constants and the rule that takes one state to the next; may be printed and logged.

    Every counter here is linear: with x the values, t activations and z independent integer noise, it releases
    `decoder @ (strategy @ x + z)`. So its guarantee is a matter of two matrices: `spent` reads it off them.
    """

    @property
    def measure(self) -> Measure:
        """What `cost` is counted in."""
        ...

    @property
    def cost(self) -> Fraction:
        """What one event costs over all activations together; exact."""
        ...

    @property
    def horizon(self) -> int | None:
        """Number of activations it is calibrated for; None if it may go on for ever."""
        ...

    @property
    def resolution(self) -> int:
        """Increments and running sums are multiples of one event divided by this."""
        ...

    @property
    def adaptive(self) -> bool:
        """True if the guarantee holds when later values, and whether to activate, depend on earlier increments.

        Selective counting asks for it ([kumar2024], algorithm 11). All counters here have it; `linear` proves it.
        """
        ...

    def initial(self, width: int) -> CounterState:
        """Return the state of `width` counters that were never activated.

        Raises: EngineInputError if width is negative.
        """
        ...

    def step(self, values: ArrayLike, state: CounterState, source: NoiseSource) -> tuple[IntArray, CounterState]:
        """Activate all counters of `state` once.

        Args:
            values: `(width,)` int64, events since the last activation, of either sign; private.
            state: what `initial` or the last `step` returned; left as it is.
            source: noise of this activation alone: the caller derives a child for each.
        Returns: `(width,)` int64, the noisy running sum now minus the one after the last activation, safe to publish;
            and the next state. Both are taken modulo 2**64: no error, as it would tell of the values.
        Raises: EngineInputError if values are not integers, if their number is not the width of the state, if the
            state is of another counter or version, or if a counter was activated `horizon` times before. Nothing is
            drawn then.
        """
        ...

    def running_sum(self, state: CounterState) -> IntArray:
        """Return `(width,)` int64, the noisy sums: the sum of all increments so far; safe to publish."""
        ...

    def activations(self, state: CounterState) -> IntArray:
        """Return `(width,)` int64, how often each coordinate was activated; public."""
        ...

    def variance(self, t: int) -> float:
        """Return the exact variance of `running_sum` after `t` activations, in squared events.

        Raises: EngineInputError if t is negative or beyond the horizon.
        """
        ...

    def strategy(self, t: int) -> IntArray:
        """Return `(nodes, t)` integers: what is measured in the first t activations, a row for each noise drawn."""
        ...

    def decoder(self, t: int) -> FloatArray:
        """Return `(t, nodes)`: how the running sums, in events, are made of the noisy nodes."""
        ...

    def node_noise(self, t: int) -> tuple[Fraction, ...]:
        """Return for each node the scale of its discrete Laplace noise, or the sigma squared of its Gaussian one."""
        ...


def laplace_scale(counter: Counter) -> Fraction:
    """Return the largest scale of its nodes' noise in the first activation.

    >>> from engines.core.counters import TreeConfig
    >>> laplace_scale(TreeConfig(horizon=15).calibrate(Fraction(1, 2)))
    Fraction(8, 1)
    """
    return max(counter.node_noise(1))


def spent(counter: Counter, t: int) -> Fraction:
    """Return what one event really costs within t activations: the dearest column of the strategy, exactly.

    For discrete Laplace noise the sum of |entry| / scale, for discrete Gaussian that of entry**2 / (2 sigma_squared).

    >>> from engines.core.counters import BlockConfig
    >>> counter = BlockConfig(length=8).calibrate(Fraction(1, 2))
    >>> spent(counter, 7), spent(counter, 8)
    (Fraction(1, 4), Fraction(1, 2))
    """
    strategy, noise = counter.strategy(t), counter.node_noise(t)
    weights: NDArray[Any] = np.abs(strategy) if counter.measure == "epsilon" else strategy.astype(object) ** 2
    total = Fraction(0)
    # Nodes of equal noise are summed as integers: a fraction for each of them would take a hundred times as long.
    columns: dict[Fraction, NDArray[Any]] = {}
    for row, size in zip(weights, noise, strict=True):
        columns[size] = columns[size] + row if size in columns else row
    for column in range(strategy.shape[1]):
        loss = sum((Fraction(int(sums[column])) / size for size, sums in columns.items()), Fraction(0))
        total = max(total, loss)
    return total if counter.measure == "epsilon" else total / 2


def check_activation(t: int, horizon: int | None) -> None:
    """Refuse a number of activations that the counter is not calibrated for.

    Raises: EngineInputError.
    """
    if t < 0:
        raise EngineInputError("the number of activations must not be negative")
    if horizon is not None and t > horizon:
        raise EngineInputError("the counter was activated as often as its horizon allows")


def select(state: CounterState, which: IntArray | BoolArray) -> CounterState:
    """Return the state of some coordinates, copied: an index array or a mask over the width.

    >>> select({"activations": np.array([3, 1, 2])}, np.array([2, 0]))
    {'activations': array([2, 3])}
    """
    return {name: array[which] for name, array in state.items()}


def concatenate(states: Sequence[CounterState]) -> CounterState:
    """Return the state of all coordinates of `states`, one after the other; at least one state.

    Memories that grow with time are filled up with zeros to the length of the longest.
    Raises: EngineInputError if there is no state, or if they are of different counters.

    >>> concatenate([{"activations": np.array([3])}, {"activations": np.array([0, 0])}])
    {'activations': array([3, 0, 0])}
    """
    if not states:
        raise EngineInputError("states must not be empty")
    kinds = np.concatenate([state.get("kind", np.zeros(0, dtype=np.int64)) for state in states])
    if np.any(kinds != kinds[:1]) or any(state.keys() != states[0].keys() for state in states):
        raise EngineInputError("states must be of the same kind of counter")
    return {name: np.concatenate(_padded([state[name] for state in states])) for name in states[0]}


def _padded(arrays: Sequence[IntArray]) -> list[IntArray]:
    if arrays[0].ndim != 2:
        return list(arrays)
    longest = max(array.shape[1] for array in arrays)
    return [np.pad(array, ((0, 0), (0, longest - array.shape[1]))) for array in arrays]
