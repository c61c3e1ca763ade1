"""The block counter: noisy values inside a block, one noisy sum for each block that is over.

Guarantee: epsilon-DP for one event, also under adaptive continual release (`linear`): an event is counted in its own
    activation and in its block, two nodes of scale 2/epsilon.
Source: [kumar2024], algorithm 3 ("Two-Level" of [chan2011]). After t = q B + r activations the variance is
    that of q + r nodes: best with B near sqrt(T). The papers use B = 8.
"""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import ClassVar

import numpy as np

from engines.core.counters.contract import check_activation
from engines.core.counters.draws import check_cost, check_whole, laplace_nodes
from engines.core.counters.linear import LaplaceCounter, Memory
from engines.core.noise import NoiseSource, scale_for
from schemas.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockConfig:
    """The recipe: activations in a block."""

    length: int = 8

    @classmethod
    def for_horizon(cls, horizon: int) -> "BlockConfig":
        """Return blocks of about sqrt(horizon), the length that minimises the variance up to there.

        >>> BlockConfig.for_horizon(100)
        BlockConfig(length=10)
        """
        check_whole("horizon", horizon)
        return cls(length=isqrt(horizon - 1) + 1 if horizon > 1 else 1)

    def calibrate(self, epsilon: Fraction, /) -> "BlockCounter":
        """Return the counter that spends `epsilon` on one event.

        Raises: EngineInputError if epsilon is not a positive Fraction, or length is not a positive whole number.

        >>> BlockConfig().calibrate(Fraction(1, 2)).scale
        Fraction(4, 1)
        """
        return BlockCounter(epsilon=epsilon, length=self.length)


class BlockedCounter(LaplaceCounter):
    """Blocks that follow each other, whatever their lengths: those are public and depend on time alone."""

    __slots__ = ()

    horizon: ClassVar[int | None] = None

    @abstractmethod
    def _ends(self, t: IntArray) -> BoolArray:
        """True where activation number t is the last of its block."""

    @property
    def scale(self) -> Fraction:
        """l1_sensitivity / epsilon, rounded up where its terms are too long for exact noise."""
        return scale_for(self.l1_sensitivity, self.epsilon)

    def _memory(self, width: int) -> dict[str, IntArray]:
        zeros = np.zeros(width, dtype=np.int64)
        return {"in_block": zeros}

    def _advance(self, t: IntArray, memory: Memory, source: NoiseSource) -> tuple[IntArray, dict[str, IntArray]]:
        # The last value of a block needs no node of its own: the sum of its block is released then.
        drawn = laplace_nodes(t.size, 1, self.scale, source)[:, 0]
        ends, inside = self._ends(t), memory["in_block"]
        return np.where(ends, drawn - inside, drawn), {"in_block": np.where(ends, 0, inside + drawn)}

    def _nodes(self, t: int) -> int:
        """Number of nodes in the running sum: blocks that are over, and values since."""
        ends = np.flatnonzero(self._ends(np.arange(1, t + 1)))
        return int(ends.size + (t - 1 - ends[-1] if ends.size else t))

    def variance(self, t: int) -> float:
        """Return the number of nodes in the sum times the variance of one."""
        check_activation(t, self.horizon)
        return self._nodes(t) * self.node_variance

    def strategy(self, t: int) -> IntArray:
        """Return a row for each activation: its block where it ends one, else its value."""
        rows = np.eye(t, dtype=np.int64)
        start = 0
        for end in np.flatnonzero(self._ends(np.arange(1, t + 1))).tolist():
            rows[end, start : end + 1] = 1
            start = end + 1
        return rows

    def decoder(self, t: int) -> FloatArray:
        """Return ones for the blocks that are over and the values since."""
        rows = np.zeros((t, t))
        blocks: list[int] = []
        start = 0
        for now, ends in enumerate(self._ends(np.arange(1, t + 1))):
            if ends:
                blocks.append(now)
                start = now + 1
            rows[now, blocks] = 1
            rows[now, start : now + 1] = 1
        return rows


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockCounter(BlockedCounter):
    """Blocks of one length; holds a budget and no data.

    >>> BlockConfig(length=10).calibrate(Fraction(1)).l1_sensitivity
    2
    """

    epsilon: Fraction
    length: int

    def __post_init__(self) -> None:
        check_whole("length", self.length)
        check_cost("epsilon", self.epsilon)
        scale_for(self.l1_sensitivity, self.epsilon)

    @property
    def l1_sensitivity(self) -> int:
        """Two: value and block; one where every value is a block."""
        return 2 if self.length > 1 else 1

    def _ends(self, t: IntArray) -> BoolArray:
        ends: BoolArray = t % self.length == 0
        return ends

    def _nodes(self, t: int) -> int:
        return sum(divmod(t, self.length))
