"""What blocks of steps were measured to be: the evidence from which tables are fitted. Public; post-processing.

A block covers steps first+1 .. last. Its one-way marginals are an estimate, already improved by the sums of its larger
marginals where those were measured; larger marginals are as measured. A block that a ttl takes a part of counts
by the part that is left; what it has taken whole is remembered apart, as what rows looked like before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from engines.core.contract import State
from engines.core.state import reading
from engines.tabular.contrasts import Contrasts
from engines.tabular.marginals import Marginals
from schemas.arrays import FloatArray, under
from schemas.errors import EngineInputError

_PARTS = ("ones", "ones_variance", "larger", "larger_variance", "larger_net")
KEPT = 0.9
"""Share of what is remembered of expired blocks that stays when more of them expire."""


@dataclass(frozen=True, slots=True, eq=False)
class StepBlock:
    """Attributes:

    first, last: it covers steps first + 1 .. last.
    net: rows that it added, less those that it took, by the released totals.
    ones: `(cells of one-ways,)` estimated net counts, of binary attributes without their sum; ones_variance
        `(attributes,)` of each cell, by which it says as much as it does (`Contrasts.finer`).
    larger: `(cells of larger ones,)` weighted noisy net counts, of differences as `Contrasts.tables` has them; empty
        where they were not measured.
    larger_variance: `(larger marginals,)` of each cell of `larger`.
    larger_net: `(larger marginals,)` what each of `larger` sums to but for noise; empty where they were not measured.
    """

    first: int
    last: int
    net: float
    ones: FloatArray
    ones_variance: FloatArray
    larger: FloatArray
    larger_variance: FloatArray
    larger_net: FloatArray

    @property
    def complete(self) -> bool:
        """Whether the larger marginals were measured."""
        return len(self.larger) > 0

    def weighted(self, share: float) -> StepBlock:
        """Return the part of it that is left, by share."""
        if share == 1.0:
            return self
        scaled = {name: getattr(self, name) * share for name in ("net", "ones", "larger", "larger_net")}
        scaled |= {name: getattr(self, name) * (share * share) for name in ("ones_variance", "larger_variance")}
        return replace(self, **scaled)

    def widened(self, ones: tuple[Marginals, Marginals], larger: tuple[Marginals, Marginals]) -> StepBlock:
        """Return it over layouts with more values, which no row had. Args: ones, larger: before and after."""
        return replace(self, ones=ones[0].widened(self.ones, ones[1]), larger=larger[0].widened(self.larger, larger[1]))

    def arrays(self) -> State:
        return {
            "span": np.array([self.first, self.last], np.int64),
            "net": np.array([self.net]),
            **{name: getattr(self, name).copy() for name in _PARTS},
        }

    @staticmethod
    def of(state: Mapping[str, np.ndarray], prefix: str) -> StepBlock:
        """Return the block whose arrays have names with this prefix. Raises: KeyError if one is missing."""
        first, last = state[f"{prefix}span"].tolist()
        net, *rest = (np.array(state[f"{prefix}{name}"], np.float64) for name in ("net", *_PARTS))
        return StepBlock(first, last, float(net[0]), *rest)


def together(blocks: Sequence[StepBlock]) -> StepBlock:
    """Return one block for several; measured cells and variances add up. At least one block."""
    if len(blocks) == 1:
        return blocks[0]
    complete = [block for block in blocks if block.complete]

    def added(name: str, some: Sequence[StepBlock]) -> Any:
        # In their order, from the first one on: a sum of floats depends on it.
        return reduce(add, (getattr(block, name) for block in some)) if some else np.zeros(0)

    return StepBlock(
        first=min(block.first for block in blocks),
        last=max(block.last for block in blocks),
        **{name: added(name, blocks) for name in ("net", "ones", "ones_variance")},
        **{name: added(name, complete) for name in ("larger", "larger_variance", "larger_net")},
    )


def improved(
    ones: FloatArray,
    ones_variance: FloatArray,
    larger: FloatArray,
    larger_variance: FloatArray,
    *,
    ones_layout: Marginals,
    of_larger: Contrasts,
    partial: Sequence[bool],
) -> tuple[FloatArray, FloatArray]:
    """Return one-way counts and variances, weighted by inverse variance with the sums of the larger marginals.

    A single difference says nothing of one attribute, nor does a `partial` marginal, which leaves rows out. The one-way
    marginal of attribute `a` is marginal `a` of its layout.
    """
    weights = 1 / ones_variance
    sums = ones * ones_layout.spread(weights)
    for index, clique in enumerate(of_larger.marginals.cliques):
        if of_larger.single[index] or partial[index]:
            continue
        table = of_larger.marginals.table(larger, index)
        for axis, attribute in enumerate(clique):
            others = tuple(place for place in range(len(clique)) if place != axis)
            cells = table.size // table.shape[axis]
            weight = 1 / (larger_variance[index] * cells)
            part = slice(ones_layout.offsets[attribute], ones_layout.offsets[attribute + 1])
            sums[part] += table.sum(axis=others) * weight
            weights[attribute] += weight
    return sums / ones_layout.spread(weights), 1 / weights


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Blocks in order of time: settled ones, then those since, of which only the one-way marginals are known yet.

    Args:
        ttl_steps: None merges all settled blocks into one.
        past: settled blocks that a ttl has taken, as one in which older ones count less.
    """

    settled: tuple[StepBlock, ...] = ()
    recent: tuple[StepBlock, ...] = ()
    ttl_steps: int | None = None
    past: StepBlock | None = None

    def with_recent(self, block: StepBlock) -> Evidence:
        """Return what is known after a measurement of one-way marginals."""
        return replace(self, recent=self._merged((*self.recent, block)))

    def settle(self, block: StepBlock) -> Evidence:
        """Return what is known once a block whose measurement is over has replaced the recent ones."""
        return replace(self, settled=self._merged((*self.settled, block)), recent=())

    def _merged(self, blocks: tuple[StepBlock, ...]) -> tuple[StepBlock, ...]:
        return (together(blocks),) if self.ttl_steps is None else blocks

    def widened(self, ones: tuple[Marginals, Marginals], larger: tuple[Marginals, Marginals]) -> Evidence:
        """See `StepBlock.widened`."""
        return replace(
            self,
            settled=tuple(block.widened(ones, larger) for block in self.settled),
            recent=tuple(block.widened(ones, larger) for block in self.recent),
            past=None if self.past is None else self.past.widened(ones, larger),
        )

    def at(self, step: int) -> Evidence:
        """Return what is left of it after this step: blocks wholly past their ttl are past, but for the newest block.

        Recent blocks stay whatever their age: a measurement of larger marginals covers them all.
        """
        if self.ttl_steps is None:
            return self
        past = step - self.ttl_steps
        newest = max((block.last for block in (*self.settled, *self.recent)), default=past)
        gone = [block for block in self.settled if block.last <= past and block.last != newest]
        if not gone:
            return self
        known = [] if self.past is None else [self.past.weighted(KEPT)]
        settled = tuple(block for block in self.settled if block.last > past or block.last == newest)
        return replace(self, settled=settled, past=together([*known, *gone]))

    def sums(self, step: int) -> tuple[StepBlock | None, StepBlock | None]:
        """Return settled and recent blocks, each as one, weighted by what a ttl leaves of them after this step."""
        return self._one(self.settled, step), self._one(self.recent, step)

    def _one(self, blocks: Sequence[StepBlock], step: int) -> StepBlock | None:
        left = [block.weighted(self._share(block, step)) for block in blocks if self._share(block, step) > 0]
        if not left and blocks and (blocks is self.settled or not self.settled):
            # A table that is kept past its ttl still has the shape that was measured last.
            left = [blocks[-1]]
        return together(left) if left else None

    def _share(self, block: StepBlock, step: int) -> float:
        if self.ttl_steps is None:
            return 1.0
        past = step - self.ttl_steps
        return min(max((block.last - max(block.first, past)) / (block.last - block.first), 0.0), 1.0)

    def arrays(self) -> State:
        past = () if self.past is None else (self.past,)
        state: State = {"blocks/count": np.array([len(self.settled), len(self.recent), len(past)], np.int64)}
        for index, block in enumerate((*self.settled, *self.recent, *past)):
            state |= under(f"blocks/{index}/", block.arrays())
        return state

    def restored(self, state: Mapping[str, np.ndarray]) -> Evidence:
        """Return what `arrays` were of. Raises: EngineInputError if some are missing, or do not fit together."""
        with reading():
            settled, recent, past = state["blocks/count"].tolist()
            if settled < 0 or recent < 0 or past not in (0, 1):
                raise EngineInputError("state has impossible numbers of blocks")
            blocks = [StepBlock.of(state, f"blocks/{index}/") for index in range(settled + recent + past)]
        return replace(
            self,
            settled=tuple(blocks[:settled]),
            recent=tuple(blocks[settled : settled + recent]),
            past=blocks[-1] if past else None,
        )
