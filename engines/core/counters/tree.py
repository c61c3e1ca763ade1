"""Binary tree counters: one noisy sum for each dyadic interval, added up by the binary digits of t.

Guarantee: epsilon-DP for one event, also under adaptive continual release (`linear`): an event lies in at most one
    interval of each level, and there are `levels` of them, so `levels` nodes of scale levels/epsilon.
Source: [kumar2024], algorithm 4 ([dwork2010]; [chan2011]). Departure: levels is
    floor(log2 T) + 1. The listing's scale log2(T)/epsilon is one level short, and at T = 1 adds no noise at all.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from engines.core.counters.linear import (
    Counter,
    LaplaceCounter,
    Measure,
    Memory,
    check_activation,
    check_whole,
    laplace_nodes,
)
from engines.core.noise import DiscreteLaplace, NoiseSource, scale_for
from engines.core.noise.arguments import check_fraction
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeCounter(LaplaceCounter):
    """A binary tree over `horizon` activations.

    | case | what happens |
    |---|---|
    | horizon 1 | one level: the simple counter |
    | activation horizon + 1 | EngineInputError, nothing drawn |
    """

    epsilon: Fraction
    horizon: int

    def __post_init__(self) -> None:
        check_whole("horizon", self.horizon)
        LaplaceCounter.__post_init__(self)

    @property
    def l1_sensitivity(self) -> int:
        """Levels of the tree."""
        return self.horizon.bit_length()

    def _memory(self, width: int) -> dict[str, IntArray]:
        return {"nodes": np.zeros((width, self.l1_sensitivity), dtype=np.int64)}

    def _advance(self, t: IntArray, memory: Memory, source: NoiseSource) -> tuple[IntArray, dict[str, IntArray]]:
        drawn = laplace_nodes(t.size, 1, self.scale, source)[:, 0]
        return dyadic_step(t, memory["nodes"], drawn)

    def variance(self, t: int) -> float:
        """Return the number of ones among the digits of t times the variance of a node."""
        check_activation(t, self.horizon)
        return t.bit_count() * self.node_variance

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


def dyadic_decoder(t: int) -> FloatArray:
    """Return `(t, t)`: the intervals of each prefix, found by taking lowest bits away."""
    rows = np.zeros((t, t))
    for now in range(1, t + 1):
        end = now
        while end:
            rows[now - 1, end - 1] = 1
            end &= end - 1
    return rows


@dataclass(frozen=True, kw_only=True, slots=True)
class HybridCounter(Counter):
    """A binary tree for each epoch 2^j < t < 2^(j+1), and one noisy total for each epoch that is over.

    Guarantee: epsilon-DP for one event over an endless stream, also under adaptive continual release (`linear`). An
        event is in the total of its epoch, a node of scale 1/epsilon_log, and in at most j nodes of its epoch's tree,
        of scale j/epsilon_tree each; epsilon_log + epsilon_tree = epsilon.
    Source: [chan2011], section 3.4 (hybrid mechanism with the logarithmic counter); [kumar2024] section 2.4.1. The
        error grows as (log t)^(3/2) without a horizon.
    Args: log_share: part of epsilon that epochs' totals get; the rest is the trees'. Chan et al. split evenly; a third
        has less mean variance from 100 activations on (docs/engines/counters.md).

    >>> HybridCounter(epsilon=Fraction(1), log_share=Fraction(1, 4)).log_scale
    Fraction(4, 1)
    """

    epsilon: Fraction
    log_share: Fraction = Fraction(1, 3)

    measure: ClassVar[Measure] = "epsilon"
    horizon: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        check_fraction("epsilon", self.epsilon)
        share: object = self.log_share
        if not isinstance(share, Fraction) or not 0 < share < 1:
            raise EngineInputError("log_share must be a Fraction between 0 and 1")
        self.tree_scale(62)
        scale_for(1, self.epsilon * share)

    @property
    def cost(self) -> Fraction:
        """Epsilon of one event."""
        return self.epsilon

    @property
    def log_scale(self) -> Fraction:
        """Scale of the noise of an epoch's total."""
        return scale_for(1, self.epsilon * self.log_share)

    def tree_scale(self, epoch: int) -> Fraction:
        """Scale of the nodes of the tree between activations 2^epoch and 2^(epoch+1), which has `epoch` levels."""
        return scale_for(epoch, self.epsilon - self.epsilon * self.log_share)

    def _memory(self, width: int) -> dict[str, IntArray]:
        return {"nodes": np.zeros((width, 1), dtype=np.int64)}

    def _advance(self, t: IntArray, memory: Memory, source: NoiseSource) -> tuple[IntArray, dict[str, IntArray]]:
        nodes = memory["nodes"]
        missing = int(t.max(initial=1)).bit_length() - nodes.shape[1]
        if missing > 0:
            nodes = np.pad(nodes, ((0, 0), (0, missing)))
        epochs = np.frexp(t)[1].astype(np.int64) - 1
        inside = t - (np.int64(1) << epochs)
        noise, following = np.zeros(t.size, dtype=np.int64), np.zeros_like(nodes)
        # The last activation of an epoch releases its total, in place of all that its tree contributed.
        over = np.flatnonzero(inside == 0)
        noise[over] = laplace_nodes(over.size, 1, self.log_scale, source)[:, 0] - nodes[over].sum(axis=1)
        for epoch in np.unique(epochs[inside > 0]).tolist():
            rows = np.flatnonzero((epochs == epoch) & (inside > 0))
            drawn = laplace_nodes(rows.size, 1, self.tree_scale(epoch), source)[:, 0]
            noise[rows], grown = dyadic_step(inside[rows], nodes[rows], drawn)
            following[rows] = grown["nodes"]
        return noise, {"nodes": following}

    def variance(self, t: int) -> float:
        """Return that of the totals of epochs that are over, plus that of the tree since."""
        check_activation(t, self.horizon)
        if t == 0:
            return 0.0
        epoch = t.bit_length() - 1
        inside = (t - 2**epoch).bit_count()
        tree = inside * DiscreteLaplace(self.tree_scale(epoch)).variance if inside else 0.0
        return (epoch + 1) * DiscreteLaplace(self.log_scale).variance + tree

    def decoder(self, t: int) -> FloatArray:
        """Return ones for the epochs that are over and for the intervals since."""
        rows = np.zeros((t, t))
        for _, end in _epochs(t):
            rows[end - 1 :, end - 1] = 1
            inside = min(2 * end, t + 1) - end - 1
            rows[end : end + inside, end : end + inside] = dyadic_decoder(inside)
        return rows

    def node_noise(self, t: int) -> tuple[Fraction, ...]:
        """Return the scale of each activation's node."""
        return tuple(self.tree_scale(s.bit_length() - 1) if s & (s - 1) else self.log_scale for s in range(1, t + 1))


def _epochs(t: int) -> list[tuple[int, int]]:
    """Return (activations before it, its last activation) of the epochs that are over after t activations."""
    return [(0, 1)] * (t > 0) + [(2**j, 2 ** (j + 1)) for j in range(t.bit_length() - 1)]
