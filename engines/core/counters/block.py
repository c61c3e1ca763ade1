"""Block counters: noisy values inside a block, one noisy sum for each block that is over.

Guarantee: epsilon-DP for one event, also under adaptive continual release (`linear`): an event is counted in its own
    activation and in its block, two nodes of scale 2/epsilon.
Source: [kumar2024], algorithm 3 ("Two-Level" of [chan2011]). After t = q B + r activations the variance is
    that of q + r nodes: best with B near sqrt(T). The papers use B = 8.
"""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import ClassVar, Literal

import numpy as np

from engines.core.counters.linear import LaplaceCounter, Memory, check_activation, check_whole, laplace_nodes
from engines.core.noise import NoiseSource
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.errors import EngineInputError

Growth = Literal["paper", "quadrupling"]


class BlockedCounter(LaplaceCounter):
    """Blocks that follow each other, whatever their lengths: those are public and depend on time alone."""

    __slots__ = ()

    horizon: ClassVar[int | None] = None

    @abstractmethod
    def _ends(self, t: IntArray) -> BoolArray:
        """Tell where activation number t is the last of its block."""

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
    """Blocks of `length` activations.

    Raises: EngineInputError if epsilon is not a positive Fraction, or length is not a positive whole number.

    >>> BlockCounter(epsilon=Fraction(1, 2)).scale
    Fraction(4, 1)
    """

    epsilon: Fraction
    length: int = 8

    def __post_init__(self) -> None:
        check_whole("length", self.length)
        LaplaceCounter.__post_init__(self)

    @staticmethod
    def best_length(horizon: int) -> int:
        """Return about sqrt(horizon), the length of blocks that minimises the variance up to there.

        >>> BlockCounter.best_length(100)
        10
        """
        check_whole("horizon", horizon)
        return isqrt(horizon - 1) + 1 if horizon > 1 else 1

    @property
    def l1_sensitivity(self) -> int:
        """Two: value and block; one where every value is a block."""
        return 2 if self.length > 1 else 1

    def _ends(self, t: IntArray) -> BoolArray:
        ends: BoolArray = t % self.length == 0
        return ends

    def _nodes(self, t: int) -> int:
        return sum(divmod(t, self.length))


@dataclass(frozen=True, kw_only=True, slots=True)
class UnboundedBlockCounter(BlockedCounter):
    """Blocks that grow, for streams without a horizon: an event is in two nodes, its activation's and its block's.

    When blocks grow is public: it depends on time alone.

    | growth | partition | its block | variance after t |
    |---|---|---|---|
    | `paper` | 4, 9, 16, ... | 2, 3, 4, ... | t^(2/3): n partitions hold n^3/3 activations in n^2/2 blocks |
    | `quadrupling` | 4, 16, 64, ... | 2, 4, 8, ... | t^(1/2): 2 + 4 + 8 + ... blocks, twice the last partition's |

    So the error of the paper's form, the root of that, grows as t^(1/3) and not as the t^(1/4) that it states.
    Source: [kumar2024], algorithm 15 ([kumar2024c], algorithm 4).
    Raises: EngineInputError if epsilon is not a positive Fraction, or growth is neither of the two.
    """

    epsilon: Fraction
    growth: Growth = "quadrupling"

    l1_sensitivity: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if self.growth not in ("paper", "quadrupling"):
            raise EngineInputError("growth must be paper or quadrupling")
        LaplaceCounter.__post_init__(self)

    def _ends(self, t: IntArray) -> BoolArray:
        starts, lengths = _partitions(self.growth, int(t.max(initial=1)).bit_length())
        partition = np.searchsorted(starts, t, side="left") - 1
        ends: BoolArray = (t - starts[partition]) % lengths[partition] == 0
        return ends


@lru_cache(maxsize=64)
def _partitions(growth: Growth, bits: int) -> tuple[IntArray, IntArray]:
    """Return the activations before each partition, and the length of its blocks, up to 2**bits activations."""
    starts, lengths = [0], [2]
    while starts[-1] + lengths[-1] ** 2 < 2**bits:
        starts.append(starts[-1] + lengths[-1] ** 2)
        lengths.append(lengths[-1] * 2 if growth == "quadrupling" else lengths[-1] + 1)
    return np.array(starts), np.array(lengths)
