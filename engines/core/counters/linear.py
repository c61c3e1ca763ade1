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
    noise a bound for each transcript does not exist; there S is lower triangular, and `toeplitz` and `blt` argue by
    adaptive composition instead.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache, partial
from hashlib import sha256
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from engines.core.counters.contract import CounterState, Measure, check_activation
from engines.core.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource, int64_vector
from engines.core.noise.door import released
from engines.core.noise.witness import CounterLaw, drawn
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError

STATE_FORMAT = 1
"""Of all counters' states. Whoever changes what an array means changes this: old states are refused, not misread."""

Memory = Mapping[str, IntArray]
"""The arrays of a state that are a counter's own: `(width, ...)` noise that was drawn and may be used again."""


def accumulation(t: int) -> FloatArray:
    """Return the `(t, t)` lower triangle of ones, which turns values into running sums."""
    return np.tri(t)


@lru_cache(maxsize=256)
def _kind(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1


def _holds(array: IntArray, least: tuple[int, ...]) -> bool:
    """True if the array has a width and as many entries for each coordinate as at the beginning: they may grow."""
    return array.ndim == 1 + len(least) and all(a >= b for a, b in zip(array.shape[1:], least, strict=True))


class LinearCounter(ABC):
    """The contract's `step` around a noise process; see `engines.core.counters.contract.Counter`."""

    __slots__ = ()

    adaptive: ClassVar[bool] = True

    @property
    def resolution(self) -> int:
        """Increments and running sums are whole multiples of one event divided by this."""
        return 1

    @property
    @abstractmethod
    def measure(self) -> Measure:
        """What the cost is counted in."""

    @property
    @abstractmethod
    def cost(self) -> Fraction:
        """What one event costs."""

    @property
    @abstractmethod
    def horizon(self) -> int | None:
        """How often it may be activated."""

    @abstractmethod
    def _memory(self, width: int) -> dict[str, IntArray]:
        """Return the noise remembered before the first activation: zeros."""

    @abstractmethod
    def _advance(self, t: IntArray, memory: Memory, source: NoiseSource) -> tuple[IntArray, dict[str, IntArray]]:
        """Draw the noise of activation number `t` (from 1; `(width,)`, may differ between coordinates).

        Returns: what it adds to the noise of the running sum, in units of 1/resolution; and the next memory.
        """

    @property
    def kind(self) -> int:
        """63 bits that stand for format, class, parameters and cost."""
        return _kind(f"{STATE_FORMAT} {self!r}")

    def initial(self, width: int) -> CounterState:
        """Return the state of `width` counters that were never activated."""
        if width < 0:
            raise EngineInputError("width must not be negative")
        zeros = np.zeros(width, dtype=np.int64)
        common = {"kind": np.full(width, self.kind, dtype=np.int64), "activations": zeros, "running_sum": zeros.copy()}
        return common | self._memory(width)

    def step(self, values: ArrayLike, state: CounterState, source: NoiseSource) -> tuple[IntArray, CounterState]:
        """Activate all counters once: `(width,)` noisy increments, and the next state. See `Counter.step`."""
        self._check(state)
        t = state["activations"] + 1
        check_activation(int(t.max(initial=0)), self.horizon)
        noise = _Noise(self, t, state, source)
        # A counter is a mechanism: private values meet its noise at the door, and are hidden in its increments.
        increment: IntArray = released(values, noise.law, noise, source, checked=partial(int64_vector, "values"))
        return increment, {
            "kind": state["kind"].copy(),
            "activations": t,
            "running_sum": state["running_sum"] + increment,
            **noise.memory,
        }

    def running_sum(self, state: CounterState) -> IntArray:
        """Return `(width,)` noisy sums in units of 1/resolution."""
        self._check(state)
        return state["running_sum"].copy()

    def activations(self, state: CounterState) -> IntArray:
        """Return `(width,)` numbers of activations."""
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
            if array.dtype != np.int64 or array.shape[:1] != width or not _holds(array, shapes.get(name, ())):
                raise EngineInputError("state has an array of the wrong shape or type")

    @abstractmethod
    def strategy(self, t: int) -> IntArray:
        """Return the `(nodes, t)` strategy, nodes in the order of their noise."""

    @abstractmethod
    def decoder(self, t: int) -> FloatArray:
        """Return the `(t, nodes)` decoder."""

    @abstractmethod
    def variance(self, t: int) -> float:
        """Return the exact variance after t activations."""


class LaplaceCounter(LinearCounter):
    """A counter with discrete Laplace noise of one scale, the same for each of its nodes."""

    __slots__ = ()

    epsilon: Fraction
    measure: ClassVar[Measure] = "epsilon"

    @property
    @abstractmethod
    def l1_sensitivity(self) -> int:
        """How many nodes one event is counted in, at most."""

    @property
    @abstractmethod
    def scale(self) -> Fraction:
        """l1_sensitivity / epsilon, rounded up where its terms are too long for exact noise."""

    @property
    def cost(self) -> Fraction:
        """Epsilon of one event."""
        return self.epsilon

    @property
    def node_variance(self) -> float:
        """Variance of the noise of one node."""
        return DiscreteLaplace(self.scale).variance

    def node_noise(self, t: int) -> tuple[Fraction, ...]:
        """Return the scale, once for each node of `strategy(t)`."""
        return (self.scale,) * len(self.strategy(t))


class GaussianCounter(LinearCounter):
    """A counter with discrete Gaussian noise of one size, one draw an activation."""

    __slots__ = ()

    rho: Fraction
    measure: ClassVar[Measure] = "rho"

    @property
    @abstractmethod
    def l2_sensitivity_squared(self) -> int:
        """Sum of the squares of what one event can move, in squares of the lattice of the noise."""

    @property
    @abstractmethod
    def sigma_squared(self) -> Fraction:
        """At least l2_sensitivity_squared / (2 rho), on the same lattice."""

    @property
    def cost(self) -> Fraction:
        """Rho of one event."""
        return self.rho

    @property
    def node_variance(self) -> float:
        """Variance of one draw, in squared events."""
        return DiscreteGaussian(self.sigma_squared).variance / self.resolution**2

    def node_noise(self, t: int) -> tuple[Fraction, ...]:
        """Return sigma_squared, once for each activation."""
        return (self.sigma_squared,) * t


class _Noise:
    """Draws the noise of one activation, at the door. It has not seen the values.

    Attributes:
        memory: of the counter; once the noise is drawn, the next one.
    """

    def __init__(self, counter: LinearCounter, t: IntArray, state: CounterState, source: NoiseSource) -> None:
        self.law = CounterLaw(counter, t)
        self.memory = {name: array for name, array in state.items() if name not in _COMMON}
        self._before, self._counter, self._t, self._source = self.memory, counter, t, source

    def __call__(self, count: int) -> IntArray:
        if count != self._t.size:
            raise EngineInputError("values must have the width of the state")
        return drawn(self._source, self.law, self._sample)

    def _sample(self, source: NoiseSource) -> IntArray:
        noise, self.memory = self._counter._advance(self._t, self._before, source)
        return noise


_COMMON = {"kind", "activations", "running_sum"}
