"""Unbounded block counters: blocks that grow, for streams without a horizon.

Guarantee: epsilon-DP for one event, also under adaptive continual release (`linear`): an event is counted in its own
    activation and in its block, two nodes of scale 2/epsilon. When blocks grow is public: it depends on time alone.
Source: [kumar2024], algorithm 15 ([kumar2024c], algorithm 4).

| growth | partition | its block | variance after t |
|---|---|---|---|
| `paper` | 4, 9, 16, ... | 2, 3, 4, ... | t^(2/3): n partitions hold n^3/3 activations in n^2/2 blocks |
| `quadrupling` | 4, 16, 64, ... | 2, 4, 8, ... | t^(1/2): 2 + 4 + 8 + ... blocks, twice those of the last partition |

So the error of the paper's form, the root of that, grows as t^(1/3) and not as the t^(1/4) that it states.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from engines.core.counters.block import BlockedCounter
from engines.core.counters.draws import check_cost
from engines.core.noise import scale_for
from schemas.arrays import BoolArray, IntArray
from schemas.errors import EngineInputError

Growth = Literal["paper", "quadrupling"]


@dataclass(frozen=True, kw_only=True, slots=True)
class UnboundedBlockConfig:
    """The recipe: how blocks grow."""

    growth: Growth = "quadrupling"

    def calibrate(self, epsilon: Fraction, /) -> "UnboundedBlockCounter":
        """Return the counter that spends `epsilon` on one event.

        Raises: EngineInputError if epsilon is not a positive Fraction, or growth is neither of the two.

        >>> UnboundedBlockConfig().calibrate(Fraction(1)).horizon is None
        True
        """
        return UnboundedBlockCounter(epsilon=epsilon, growth=self.growth)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnboundedBlockCounter(BlockedCounter):
    """Blocks that grow; holds a budget and no data."""

    epsilon: Fraction
    growth: Growth

    l1_sensitivity: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if self.growth not in ("paper", "quadrupling"):
            raise EngineInputError("growth must be paper or quadrupling")
        check_cost("epsilon", self.epsilon)
        scale_for(self.l1_sensitivity, self.epsilon)

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
