"""The simple counter: fresh discrete Laplace noise on every activation.

Guarantee: epsilon-DP for one event, over any number of activations, also under adaptive continual release: each
    event is in exactly one increment, which is a Laplace mechanism of its own whatever the earlier ones showed.
Source: [kumar2024], algorithm 2. Error grows as sqrt(t): the right counter where activations are few.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from engines.core.counters.linear import LaplaceCounter, Memory, check_activation, laplace_nodes
from engines.core.noise import NoiseSource
from schemas.arrays import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, slots=True)
class SimpleCounter(LaplaceCounter):
    """A counter of scale 1/epsilon. Raises: EngineInputError if epsilon is below 2**-41.

    | case | what happens |
    |---|---|
    | width 0 | an empty increment, no noise drawn |
    | all values zero | noise all the same: whether there were events is private |
    | values that sum beyond int64 | increment and sum are taken modulo 2**64: no error, as it would tell of them |

    >>> from engines.core.noise import seeded
    >>> counter = SimpleCounter(epsilon=Fraction(1))
    >>> increment, state = counter.step(np.array([100, 0]), counter.initial(2), seeded(1).child("docs"))
    >>> increment, counter.running_sum(state)
    (array([103,  -1]), array([103,  -1]))
    """

    epsilon: Fraction

    l1_sensitivity: ClassVar[int] = 1
    horizon: ClassVar[int | None] = None

    def _memory(self, width: int) -> dict[str, IntArray]:
        return {}

    def _advance(self, t: IntArray, memory: Memory, source: NoiseSource) -> tuple[IntArray, dict[str, IntArray]]:
        return laplace_nodes(t.size, 1, self.scale, source)[:, 0], {}

    def variance(self, t: int) -> float:
        """Return t times the variance of one draw."""
        check_activation(t, self.horizon)
        return t * self.node_variance

    def decoder(self, t: int) -> FloatArray:
        """Return the lower triangle of ones."""
        return np.tri(t)
