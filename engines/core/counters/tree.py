"""The binary tree counter: one noisy sum for each dyadic interval, added up by the binary digits of t.

Guarantee: epsilon-DP for one event, also under adaptive continual release (`linear`): an event lies in at most one
    interval of each level, and there are `levels` of them, so `levels` nodes of scale levels/epsilon.
Source: [kumar2024], algorithm 4 ([dwork2010]; [chan2011]). Departure: levels is
    floor(log2 T) + 1. The listing's scale log2(T)/epsilon is one level short, and at T = 1 adds no noise at all.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.counters.contract import check_activation
from engines.core.counters.draws import check_cost, check_whole, laplace_nodes
from engines.core.counters.linear import LaplaceCounter, Memory
from engines.core.noise import NoiseSource, scale_for
from schemas.arrays import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeConfig:
    """The recipe: how many activations there may be."""

    horizon: int

    def calibrate(self, epsilon: Fraction, /) -> "TreeCounter":
        """Return the counter that spends `epsilon` on one event.

        Raises: EngineInputError if epsilon is not a positive Fraction, or horizon is not a positive whole number.

        >>> TreeConfig(horizon=100).calibrate(Fraction(1)).scale
        Fraction(7, 1)
        """
        return TreeCounter(epsilon=epsilon, horizon=self.horizon)


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeCounter(LaplaceCounter):
    """A binary tree over `horizon` activations; holds a budget and no data.

    | case | what happens |
    |---|---|
    | horizon 1 | one level: the simple counter |
    | activation horizon + 1 | EngineInputError, nothing drawn |
    """

    epsilon: Fraction
    horizon: int

    def __post_init__(self) -> None:
        check_whole("horizon", self.horizon)
        check_cost("epsilon", self.epsilon)
        scale_for(self.l1_sensitivity, self.epsilon)

    @property
    def l1_sensitivity(self) -> int:
        """Levels of the tree."""
        return self.horizon.bit_length()

    @property
    def scale(self) -> Fraction:
        """levels/epsilon, rounded up where its terms are too long for exact noise."""
        return scale_for(self.l1_sensitivity, self.epsilon)

    def _memory(self, width: int) -> dict[str, IntArray]:
        return {"nodes": np.zeros((width, self.l1_sensitivity), dtype=np.int64)}

    def _advance(self, t: IntArray, memory: Memory, source: NoiseSource) -> tuple[IntArray, dict[str, IntArray]]:
        drawn = laplace_nodes(t.size, 1, self.scale, source)[:, 0]
        return dyadic_step(t, memory["nodes"], drawn)

    def variance(self, t: int) -> float:
        """Return the number of ones among the digits of t times the variance of a node."""
        check_activation(t, self.horizon)
        return t.bit_count() * self.node_variance

    def strategy(self, t: int) -> IntArray:
        """Return a row for each activation: the interval that it ends."""
        return dyadic_strategy(t)

    def decoder(self, t: int) -> FloatArray:
        """Return ones for the intervals that make up [1, t]."""
        return dyadic_decoder(t)


def dyadic_step(t: IntArray, nodes: IntArray, drawn: IntArray) -> tuple[IntArray, dict[str, IntArray]]:
    """Put `drawn` where t ends an interval, in place of the shorter ones that it covers.

    Args:
        t: `(width,)` activation numbers from 1; where it is 0, nothing is kept and nothing is added but `-nodes`.
        nodes: `(width, levels)` noise of the intervals that make up [1, t - 1].
        drawn: `(width,)`.
    Returns: `(width,)` what the noise of the running sum grows by; and the next nodes.
    """
    levels = np.arange(nodes.shape[1])
    lowest = np.bitwise_count((t & -t) - 1).astype(np.int64)[:, np.newaxis]
    following = np.where(levels < lowest, 0, nodes)
    following = np.where((levels == lowest) & (t > 0)[:, np.newaxis], drawn[:, np.newaxis], following)
    return following.sum(axis=1) - nodes.sum(axis=1), {"nodes": following}


def dyadic_strategy(t: int) -> IntArray:
    """Return `(t, t)`: row s - 1 covers (s - lowest bit of s, s]."""
    rows = np.zeros((t, t), dtype=np.int64)
    for end in range(1, t + 1):
        rows[end - 1, end - (end & -end) : end] = 1
    return rows


def dyadic_decoder(t: int) -> FloatArray:
    """Return `(t, t)`: the intervals of each prefix, found by taking lowest bits away."""
    rows = np.zeros((t, t))
    for now in range(1, t + 1):
        end = now
        while end:
            rows[now - 1, end - 1] = 1
            end &= end - 1
    return rows
