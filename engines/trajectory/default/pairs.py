"""How many trips go from each cell to each cell: marginals first, then whatever pairs of blocks and cells add.

Post-processing of released histograms, but for the choice it makes possible: `heavy` block pairs are worth a
measurement cell by cell, and are chosen from released values.
Method: iterative proportional fitting (IPF) to starts, ends and classes of distance; block pairs, shrunk towards that
by a moment estimate of how far they really are from it; IPF again; then the same for cell pairs of heavy blocks.
All `(cells, cells)` matrices are in block order (`Blocks.order`), rows are starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.core.noise import NoiseSource
from engines.trajectory.chance import systematic
from engines.trajectory.default.estimates import Maps
from engines.trajectory.default.questions import classes
from engines.trajectory.grid import Blocks
from engines.trajectory.histograms import Noisy
from schemas.arrays import FloatArray, IntArray

HEAVY = 10.0
"""Deviations of a cell pair's noise that a block pair must hold to be measured cell by cell."""
OWN_SPREAD = 0.1
"""Variance of a pair around its expectation, per expected trip, whatever the moments say."""
_TINY = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class PairFit:
    """The margins that a pair matrix has to keep: starts and ends by cell, hops by class."""

    blocks: Blocks
    starts: FloatArray
    ends: FloatArray
    hops: FloatArray
    classes: IntArray

    @staticmethod
    def of(maps: Maps, hops: FloatArray, blocks: Blocks, *, lower: tuple[int, ...]) -> PairFit:
        """`hops` is trips by class of distance, whose lower ends are `lower`."""
        order = blocks.order
        distance = blocks.grid.hops(order[:, None], order[None, :])
        return PairFit(blocks, maps.starts[order], maps.ends[order], hops, classes(distance, lower).reshape(-1))

    def first(self) -> FloatArray:
        """Return pairs as the margins alone have them."""
        return self._fitted(np.outer(self.starts, self.ends) / self.starts.sum(), rounds=8)

    def _fitted(self, pairs: FloatArray, *, rounds: int, with_hops: bool = True) -> FloatArray:
        for _ in range(rounds):
            if with_hops:
                found = np.bincount(self.classes, pairs.reshape(-1), minlength=len(self.hops))
                pairs = pairs * ((self.hops + 1e-9) / (found + 1e-9))[self.classes].reshape(pairs.shape)
            pairs = pairs * (self.starts / np.maximum(pairs.sum(axis=1), _TINY))[:, None]
            pairs = pairs * (self.ends / np.maximum(pairs.sum(axis=0), _TINY))[None, :]
        return pairs

    def with_blocks(self, pairs: FloatArray, noisy: Noisy) -> FloatArray:
        """Let pairs also follow the measured block pairs, as far as those are more than noise."""
        before = self.blocks.sums(pairs)
        after = _shrunk(noisy.values.reshape(*before.shape), before, variance=noisy.variance, floor=0.1)
        return self._fitted(pairs * self.blocks.spread(after / np.maximum(before, _TINY)), rounds=3)

    def heavy(self, pairs: FloatArray, *, deviation: float) -> IntArray:
        """Return the pairs that deserve a closer look, `(heavy,)` ascending: start block * blocks + end block."""
        return np.flatnonzero(self.blocks.sums(pairs).reshape(-1) > HEAVY * deviation)

    def with_cells(self, pairs: FloatArray, heavy: IntArray, noisy: Noisy) -> FloatArray:
        """Let pairs also follow the measured cell pairs of heavy blocks."""
        if not len(heavy):
            return pairs
        per = self.blocks.cells
        view = pairs.copy().reshape(self.blocks.count, per, self.blocks.count, per)
        start, end = heavy // self.blocks.count, heavy % self.blocks.count
        before = view[start, :, end, :].reshape(len(heavy), per * per)
        after = _shrunk(noisy.values.reshape(*before.shape), before, variance=noisy.variance, floor=0.05)
        view[start, :, end, :] = after.reshape(len(heavy), per, per)
        return self._fitted(view.reshape(pairs.shape), rounds=3, with_hops=False)

    def sample(self, pairs: FloatArray, total: float, noise: NoiseSource) -> tuple[IntArray, IntArray]:
        """Draw start and end cells of some `total` trips; numbers of blocks and cells come out within one of theirs."""
        count, per = self.blocks.count, self.blocks.cells
        by_block = pairs.reshape(count, per, count, per).transpose(0, 2, 1, 3).reshape(-1)
        copies = systematic(by_block * (total / by_block.sum()), noise)
        chosen = np.repeat(np.flatnonzero(copies), copies[copies > 0])
        pair, inside = chosen // (per * per), chosen % (per * per)
        order = self.blocks.order
        return order[pair // count * per + inside // per], order[pair % count * per + inside % per]


def _shrunk(noisy: FloatArray, expected: FloatArray, *, variance: float, floor: float) -> FloatArray:
    """Move expected values towards noisy ones, never below `floor` times themselves."""
    residual = noisy - expected
    spread = ((residual * residual - variance) * expected).sum() / max((expected**3).sum(), _TINY)
    real = np.minimum(max(spread, 0.0) * expected**2, 1e18) + OWN_SPREAD * expected
    moved: FloatArray = np.maximum(expected + real / (real + variance) * residual, floor * expected)
    return moved
