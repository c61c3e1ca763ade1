"""The optimal counter: of those with Laplace noise and a known horizon, the one of least mean variance.

Most of an event is counted in a node of its own, the rest in a few nodes that add up activations with weights: shares
that an optimiser chose, so that running sums up to the horizon have the least mean variance. At T = 100 that is 35.4 at
epsilon 1, where `kary` has 56.3.

Guarantee: epsilon-DP for one event, also under adaptive continual release: theorem C (head of `linear`). A column of
    the strategy S adds up to `l1_sensitivity`, in integers, and each node has noise of that over epsilon as scale. The
    release is a function f of noisy nodes with f(S x + z) = resolution (running sums of x) + f(z) to the last bit
    (lemma of `strategies`), so the noises that explain a transcript with an event are those that explain it without,
    shifted by a column of S. That f rounds, and is not quite linear, changes nothing; nor that nodes hold values yet to
    come.
Source: [mckenna2018].
Memory: f_t needs the noise of nodes of activations yet to come, since these correct the nodes that add up. So all
    noise is drawn at the first activation, and what is left of the T increments of f(z) is the state: 8 T bytes for
    each coordinate; an increment is dropped when it is released.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np

from engines.counters.contract import check_activation
from engines.counters.draws import check_cost, check_whole, laplace_nodes
from engines.counters.linear import LaplaceCounter, Memory
from engines.counters.optimal.strategies import COARSEST, DIGEST, RESOLUTION, Strategy, coarse_for, strategy_for
from engines.noise import NoiseSource, scale_for
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError

LEAST_EPSILON = Fraction(1, 2**COARSEST)
"""Of a counter: below it noise could leave int64."""
_CERTAIN = 2**12
"""No uniform source gives Laplace noise of this many scales: its probability is below exp(-4000)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimalConfig:
    """The recipe: how many activations there may be, up to the longest stored strategy: 1024."""

    horizon: int

    def calibrate(self, epsilon: Fraction, /) -> "OptimalCounter":
        """Return the counter that spends `epsilon` on one event.

        Raises: EngineInputError if epsilon is not a positive Fraction or is below 2^-14, or horizon is not a positive
            whole number up to 1024.

        >>> counter = OptimalConfig(horizon=100).calibrate(Fraction(1))
        >>> counter.scale, round(counter.variance(100), 1)
        (Fraction(4096, 1), 50.3)
        """
        return OptimalCounter(epsilon=epsilon, horizon=self.horizon)


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimalCounter(LaplaceCounter):
    """An optimised strategy over `horizon` activations; holds a budget and no data.

    Attributes:
        digest: of the stored strategies; in `kind`, so that states of other strategies are refused.
    """

    epsilon: Fraction
    horizon: int
    digest: str = DIGEST

    resolution: ClassVar[int] = RESOLUTION

    def __post_init__(self) -> None:
        check_whole("horizon", self.horizon)
        check_cost("epsilon", self.epsilon)
        if self.epsilon < LEAST_EPSILON:
            raise EngineInputError("epsilon is too small: noise could leave int64")
        strategy_for(self.horizon)

    @property
    def l1_sensitivity(self) -> int:
        """What a column of the strategy adds up to."""
        return self._strategy.lattice

    @property
    def node_resolution(self) -> int:
        """Shares of an event are multiples of one divided by this: the whole event is `l1_sensitivity` of them."""
        return self.l1_sensitivity

    @property
    def scale(self) -> Fraction:
        """l1_sensitivity/epsilon, rounded up where its terms are too long for exact noise."""
        return scale_for(self.l1_sensitivity, self.epsilon)

    @property
    def _strategy(self) -> Strategy:
        return strategy_for(self.horizon)

    def _memory(self, width: int) -> dict[str, IntArray]:
        # What each activation yet to come adds to the noise of the running sum; zeros before the first and when used.
        return {"increments": np.zeros((width, self.horizon), dtype=np.int64)}

    def _advance(self, t: IntArray, memory: Memory, source: NoiseSource) -> tuple[IntArray, dict[str, IntArray]]:
        increments, rows = memory["increments"].copy(), np.arange(t.size)
        first = np.flatnonzero(t == 1)
        if first.size:
            draws = laplace_nodes(first.size, self._strategy.nodes, self.scale, source)
            if int(np.abs(draws).max()) > _CERTAIN * self.scale:
                raise EngineInputError("source is not uniform: its noise is too large")
            noise = self._strategy.noise(draws, coarse_for(self.epsilon))
            increments[first] = np.diff(noise, axis=1, prepend=0)
        released = increments[rows, t - 1]
        increments[rows, t - 1] = 0
        return released, {"increments": increments}

    def variance(self, t: int) -> float:
        """Return the sum of squares of row t of the decoder times the variance of a node; rounding is left out."""
        check_activation(t, self.horizon)
        return float(_squares(self.horizon)[t - 1]) * self.node_variance if t else 0.0

    def strategy(self, t: int) -> IntArray:
        """Return the nodes of all activations up to the horizon, then those that add up; columns beyond t are cut."""
        return self._strategy.matrix(t)

    def decoder(self, t: int) -> FloatArray:
        """Return the weights of least squares: all nodes matter from the first release on."""
        return self._strategy.decoder(t)

    def node_noise(self, t: int) -> tuple[Fraction, ...]:
        """Return the scale, once for each node."""
        return (self.scale,) * self._strategy.nodes


@lru_cache(maxsize=256)
def _squares(horizon: int) -> FloatArray:
    squares: FloatArray = (strategy_for(horizon).decoder(horizon) ** 2).sum(axis=1)
    return squares
