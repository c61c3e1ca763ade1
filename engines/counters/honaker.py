"""The binary tree with Honaker's estimate from below: same nodes, same noise, about 40 % less variance.

A node of height l estimates its interval, and so do the nodes below it together. With D_l = 2^(l+1) - 1 the estimate of
least variance from a node and all below it is N_l / D_l, where N_l = 2^l * node + N_left + N_right: heights enter with
weights that are inverse to their variances. Its variance is 2^l / D_l times that of a node, near one half.

Guarantee: epsilon-DP for one event, also under adaptive continual release (`linear`): an event lies in one interval of
    each of `levels` levels, of scale levels/epsilon. The estimate is post-processing.
Source: [honaker2015] (estimation from below).
Units: sums are multiples of 2^-16 events. What is rounded is the noise part alone, and since the sums of the data are
    whole that is the same as rounding the estimate. D_l is odd, so nothing lies half-way: the noise stays symmetric
    and the estimate unbiased. Rounding moves a sum by less than levels * 2^-17 events; `variance` leaves it out.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from engines.counters.contract import check_activation
from engines.counters.draws import check_cost, check_whole, laplace_nodes
from engines.counters.linear import LaplaceCounter, Memory
from engines.noise import NoiseSource, scale_for
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError

_LARGEST_NOISE = 2**20
"""No draw exceeds this many scales: `noise.digits.MAX_GEOMETRIC`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HonakerConfig:
    """The recipe: how many activations there may be."""

    horizon: int

    def calibrate(self, epsilon: Fraction, /) -> "HonakerCounter":
        """Return the counter that spends `epsilon` on one event.

        Raises: EngineInputError if epsilon is not a positive Fraction, horizon is not a positive whole number, or
            epsilon is so small for this horizon that weighted sums of noise could leave int64.

        >>> HonakerConfig(horizon=100).calibrate(Fraction(1)).scale
        Fraction(7, 1)
        """
        return HonakerCounter(epsilon=epsilon, horizon=self.horizon)


@dataclass(frozen=True, kw_only=True, slots=True)
class HonakerCounter(LaplaceCounter):
    """A binary tree over `horizon` activations, estimated from below; holds a budget and no data."""

    epsilon: Fraction
    horizon: int

    resolution: ClassVar[int] = 2**16

    def __post_init__(self) -> None:
        check_whole("horizon", self.horizon)
        check_cost("epsilon", self.epsilon)
        levels = self.l1_sensitivity
        # N_l adds `levels` heights with 2^l draws' worth each.
        if self.scale * _LARGEST_NOISE * levels * 2**levels * 2 >= 2**62:
            raise EngineInputError("epsilon is too small for this horizon: weighted noise could leave int64")

    @property
    def l1_sensitivity(self) -> int:
        """Levels of the tree."""
        return self.horizon.bit_length()

    @property
    def scale(self) -> Fraction:
        """levels/epsilon, rounded up where its terms are too long for exact noise."""
        return scale_for(self.l1_sensitivity, self.epsilon)

    def _memory(self, width: int) -> dict[str, IntArray]:
        # For each interval of [1, t]: the noise in N_l.
        return {"numerators": np.zeros((width, self.l1_sensitivity), dtype=np.int64)}

    def _advance(self, t: IntArray, memory: Memory, source: NoiseSource) -> tuple[IntArray, dict[str, IntArray]]:
        before = memory["numerators"]
        following = before.copy()
        lowest = np.bitwise_count((t & -t) - 1).astype(np.int64)
        closed = np.zeros(t.size, dtype=np.int64)
        # An interval of height l ends with t, and so do its right halves of every lesser height.
        for level in range(int(lowest.max(initial=-1)) + 1):
            rows = np.flatnonzero(lowest >= level)
            drawn = laplace_nodes(rows.size, 1, self.scale, source)[:, 0]
            closed[rows] += drawn << level
            if level:
                closed[rows] += before[rows, level - 1]
                following[rows, level - 1] = 0
            ends = rows[lowest[rows] == level]
            following[ends, level] = closed[ends]
        return self._estimates(following) - self._estimates(before), {"numerators": following}

    def _estimates(self, numerators: IntArray) -> IntArray:
        """Return `(width,)` the noise of the running sum in units of 1/resolution, each interval rounded."""
        divisors = 2 ** np.arange(1, numerators.shape[1] + 1) - 1
        whole, rest = np.divmod(numerators, divisors)
        nearest = (2 * rest * self.resolution + divisors) // (2 * divisors)
        estimates: IntArray = (whole * self.resolution + nearest).sum(axis=1)
        return estimates

    def variance(self, t: int) -> float:
        """Return the sum over the intervals of [1, t] of 2^l / (2^(l+1) - 1) times the variance of a node."""
        check_activation(t, self.horizon)
        heights = (level for level in range(t.bit_length()) if t >> level & 1)
        return sum(float(Fraction(2**level, 2 ** (level + 1) - 1)) for level in heights) * self.node_variance

    def strategy(self, t: int) -> IntArray:
        """Return a row for each interval, shorter ones first where several end together."""
        intervals = _intervals(t)
        rows = np.zeros((len(intervals), t), dtype=np.int64)
        for row, (end, level) in enumerate(intervals):
            rows[row, end - 2**level : end] = 1
        return rows

    def decoder(self, t: int) -> FloatArray:
        """Return 2^h / (2^(l+1) - 1) for a node of height h within an interval of [1, t] of height l."""
        intervals = _intervals(t)
        rows = np.zeros((t, len(intervals)))
        for now in range(1, t + 1):
            end = now
            while end:
                top = (end & -end).bit_length() - 1
                for column, (last, level) in enumerate(intervals):
                    if end - 2**top < last <= end and level <= top:
                        rows[now - 1, column] = 2**level / (2 ** (top + 1) - 1)
                end &= end - 1
        return rows


def _intervals(t: int) -> list[tuple[int, int]]:
    """Return (end, height) of all dyadic intervals in [1, t], in the order in which they end."""
    return [(end, level) for end in range(1, t + 1) for level in range((end & -end).bit_length())]
