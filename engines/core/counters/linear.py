"""What all counters share: true sum plus a noise process, and why that is private, adaptively as well.

Each counter releases x_1 + ... + x_t + w_t, where the noise process w is drawn without looking at x. So a counter is
its noise process: `_advance` draws what this activation adds to w. No partial sum of the data is ever stored.

Guarantee. Let w = D z (D the decoder, z independent noise, one entry a node) and let S be the strategy, with D S the
    lower triangle of ones. Then a release is D (S x + z), post-processing of noisy nodes.
    Adaptive continual release: let an adversary choose each x_t, and whether and where the one event e_s is put, from
    what it has seen. Fix a transcript o. Up to then all of the adversary's choices are functions of o, hence so are x
    and s; o occurs without the event if D z = o - D S x, and with it if D z = o - D S x - D S e_s, that is for z in
    the same set, shifted by S e_s. Where the law of z changes by at most exp(epsilon) under that shift, which for
    discrete Laplace noise it does if the entries of the column s of S, each divided by its scale, sum to at most
    epsilon, so does the probability of o. The shift may depend on o: nothing in the argument asks for a fixed one. It
    holds though a node may cover values yet to come (`kary`), since D S e_s is zero before the event. With Gaussian
    noise a bound for each transcript does not exist; there S is lower triangular, and `blt` argues by adaptive
    composition instead.

A counter that is activated any number of times (up to its horizon) costs `cost` for one event, which is one unit, added
or removed, in ONE coordinate at ONE activation: epsilon-DP or rho-zCDP, as `measure` says. An event of weight w costs w
times that epsilon, or w squared times that rho.
Units: values are events; increments and running sums, nodes and their noise are whole multiples of 1/resolution events,
    which is 1 for Laplace noise; an activation is one call of `step`, not a step of the stream.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from hashlib import sha256
from math import isqrt
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engines.core.noise import (
    DiscreteLaplace,
    NoiseSource,
    discrete_gaussian,
    discrete_laplace,
    int64_vector,
    scale_for,
)
from engines.core.noise.arguments import check_fraction
from engines.core.noise.door import released
from engines.core.noise.witness import CounterLaw, drawn
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.errors import EngineInputError

STATE_FORMAT = 1
"""Format of all counters' states. Whoever changes what an array means changes it: a state of another is refused."""

CounterState = dict[str, IntArray]
"""Arrays by name, all that a counter must remember, noise still to be used included; private.

The first axis of every array is the coordinate, and nothing is shared between coordinates: so `select` and
`concatenate` give the states of fewer or more of them, for counters of a tree whose leaves come and go. `kind` names
the counter, its parameters, its cost and the format: a state of any other is refused.
"""

Memory = Mapping[str, IntArray]
"""The arrays of a state that are a counter's own: `(width, ...)` noise that was drawn and may be used again."""

Measure = Literal["epsilon", "rho"]
"""What a cost is counted in: epsilon of pure DP (discrete Laplace noise), rho of zCDP (discrete Gaussian noise)."""

_CERTAIN = 64
"""No uniform source gives Gaussian noise of this many sigma: its probability is below exp(-2000)."""
_COMMON = {"kind", "activations", "running_sum"}


class Counter(ABC):
    """Public constants and a noise process; holds a budget and no data, so it may be printed and logged.

    Every counter is linear: with x the values, t activations and z independent integer noise, it releases
    `decoder @ (strategy @ x + z)`. So its guarantee is a matter of two matrices: `spent` reads it off them. What it has
    seen is in a `CounterState`, which its caller stores.
    """

    __slots__ = ()

    adaptive: ClassVar[bool] = True
    """True if the guarantee holds when later values, and whether to activate, depend on earlier increments.

    Selective counting asks for it ([kumar2024], algorithm 11). All counters here have it; the module's head proves it.
    """

    @property
    def resolution(self) -> int:
        """Increments and running sums are whole multiples of one event divided by this."""
        return 1

    @property
    @abstractmethod
    def measure(self) -> Measure:
        """What `cost` is counted in."""

    @property
    @abstractmethod
    def cost(self) -> Fraction:
        """What one event costs over all activations together; exact."""

    @property
    @abstractmethod
    def horizon(self) -> int | None:
        """Number of activations it is calibrated for; None if it may go on for ever."""

    @abstractmethod
    def _memory(self, width: int) -> dict[str, IntArray]:
        """Return the noise remembered before the first activation: zeros."""

    @abstractmethod
    def _advance(self, t: IntArray, memory: Memory, source: NoiseSource) -> tuple[IntArray, dict[str, IntArray]]:
        """Draw the noise of activation number `t` (from 1; `(width,)`, may differ between coordinates).

        Returns: what it adds to the noise of the running sum, in units of 1/resolution; and the next memory.
        """

    @abstractmethod
    def variance(self, t: int) -> float:
        """Return the exact variance of `running_sum` after `t` activations, in squared events.

        Raises: EngineInputError if t is negative or beyond the horizon.
        """

    def strategy(self, t: int) -> IntArray:
        """Return `(nodes, t)` integers: what is measured in the first t activations, a row for each noise drawn.

        It follows from the decoder, unless that has more nodes than activations: then it is stated (`kary`).
        """
        strategy: IntArray = np.rint(np.linalg.solve(self.decoder(t), np.tri(t))).astype(np.int64)
        return strategy

    @abstractmethod
    def decoder(self, t: int) -> FloatArray:
        """Return `(t, nodes)`: how the running sums, in events, are made of the noisy nodes."""

    @abstractmethod
    def node_noise(self, t: int) -> tuple[Fraction, ...]:
        """Return for each node the scale of its discrete Laplace noise, or the sigma squared of its Gaussian one."""

    @property
    def kind(self) -> int:
        """63 bits that stand for format, class, parameters and cost."""
        return _kind(f"{STATE_FORMAT} {self!r}")

    def initial(self, width: int) -> CounterState:
        """Return the state of `width` counters that were never activated.

        Raises: EngineInputError if width is negative.
        """
        if width < 0:
            raise EngineInputError("width must not be negative")
        zeros = np.zeros(width, dtype=np.int64)
        common = {"kind": np.full(width, self.kind, dtype=np.int64), "activations": zeros, "running_sum": zeros.copy()}
        return common | self._memory(width)

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
        self._check(state)
        t = state["activations"] + 1
        check_activation(int(t.max(initial=0)), self.horizon)
        law, before = CounterLaw(self, t), {name: array for name, array in state.items() if name not in _COMMON}
        memory = before

        def draw(count: int) -> IntArray:
            """Draw the noise of this activation, at the door. It has not seen the values."""
            if count != t.size:
                raise EngineInputError("values must have the width of the state")
            return drawn(source, law, sample)

        def sample(words: NoiseSource) -> IntArray:
            nonlocal memory
            noise, memory = self._advance(t, before, words)
            return noise

        # A counter is a mechanism: private values meet its noise at the door, and are hidden in its increments.
        increment: IntArray = released(values, law, draw, source, checked=partial(int64_vector, "values"))
        return increment, {
            "kind": state["kind"].copy(),
            "activations": t,
            "running_sum": state["running_sum"] + increment,
            **memory,
        }

    def running_sum(self, state: CounterState) -> IntArray:
        """Return `(width,)` int64, the noisy sums: the sum of all increments so far; safe to publish."""
        self._check(state)
        return state["running_sum"].copy()

    def activations(self, state: CounterState) -> IntArray:
        """Return `(width,)` int64, how often each coordinate was activated; public."""
        self._check(state)
        return state["activations"].copy()

    def _check(self, state: CounterState) -> None:
        if "kind" not in state or bool(np.any(state["kind"] != self.kind)):
            raise EngineInputError("state is of another counter, calibration or version")
        shapes = {name: array.shape[1:] for name, array in self._memory(0).items()}
        if state.keys() != _COMMON | shapes.keys():
            raise EngineInputError("state lacks an array of this counter, or has one too many")
        width = state["kind"].shape
        for name, array in state.items():
            least = shapes.get(name, ())
            # As many entries for each coordinate as at the beginning: they may grow.
            wide = array.ndim == 1 + len(least) and all(a >= b for a, b in zip(array.shape[1:], least, strict=True))
            if array.dtype != np.int64 or array.shape[:1] != width or not wide:
                raise EngineInputError("state has an array of the wrong shape or type")


class LaplaceCounter(Counter):
    """A counter with discrete Laplace noise of one scale, the same for each of its nodes."""

    __slots__ = ()

    epsilon: Fraction
    measure: ClassVar[Measure] = "epsilon"

    @property
    @abstractmethod
    def l1_sensitivity(self) -> int:
        """How many nodes one event is counted in, at most."""

    @property
    def scale(self) -> Fraction:
        """l1_sensitivity / epsilon, rounded up where its terms are too long for exact noise."""
        return scale_for(self.l1_sensitivity, self.epsilon)

    def __post_init__(self) -> None:
        check_fraction("epsilon", self.epsilon)
        _ = self.scale  # refuses an epsilon that is too small

    @property
    def cost(self) -> Fraction:
        """Epsilon of one event."""
        return self.epsilon

    @property
    def node_variance(self) -> float:
        """Variance of the noise of one node."""
        return DiscreteLaplace(self.scale).variance

    def node_noise(self, t: int) -> tuple[Fraction, ...]:
        """Return the scale, once for each node."""
        return (self.scale,) * len(self.decoder(t).T)


@lru_cache(maxsize=256)
def _kind(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1


def spent(counter: Counter, t: int) -> Fraction:
    """Return what one event really costs within t activations: the dearest column of the strategy, exactly.

    For discrete Laplace noise the sum of |entry| / scale, for discrete Gaussian that of entry**2 / (2 sigma_squared).

    >>> from engines.core.counters.block import BlockCounter
    >>> counter = BlockCounter(epsilon=Fraction(1, 2), length=8)
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
    joined = {}
    for name, first in states[0].items():
        arrays = [state[name] for state in states]
        if first.ndim == 2:
            longest = max(array.shape[1] for array in arrays)
            arrays = [np.pad(array, ((0, 0), (0, longest - array.shape[1]))) for array in arrays]
        joined[name] = np.concatenate(arrays)
    return joined


def laplace_nodes(rows: int, nodes: int, scale: Fraction, source: NoiseSource) -> IntArray:
    """Draw `(rows, nodes)` discrete Laplace noise, `nodes` for each of `rows` coordinates."""
    return discrete_laplace(rows * nodes, scale, source).reshape(rows, nodes)


def gaussian_node(rows: int, sigma_squared: Fraction, source: NoiseSource) -> IntArray:
    """Draw `(rows,)` discrete Gaussian noise, one for each coordinate, of at most 64 sigma.

    Raises: EngineInputError if one is larger: then the source is not uniform.
    """
    drawn = discrete_gaussian(rows, sigma_squared, source)
    if rows and int(np.abs(drawn).max()) > largest_gaussian(sigma_squared):
        raise EngineInputError("source is not uniform: its noise is too large")
    return drawn


def largest_gaussian(sigma_squared: Fraction) -> int:
    """Return 64 sigma, rounded up: what noise is checked against, so that no later product can leave int64."""
    return _CERTAIN * (isqrt(int(sigma_squared)) + 1)


def check_whole(name: str, value: object, least: int = 1) -> None:
    """Refuse a public parameter that is not a whole number, or below `least`, or from 2**48 on.

    Raises: EngineInputError.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**48:
        raise EngineInputError(f"{name} must be a whole number from {least} to 2**48 - 1")
