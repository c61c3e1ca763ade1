"""Many tables of the same number of axes at once: side sums, shrinkage and proportional fitting, as flat vectors.

A side of a table is what is left after summing over one axis: of a pair its two one-way marginals, of a marginal of
three its pairs. Post-processing; sums run in a fixed order.
Sources: iterative proportional fitting ([deming1940]); moment estimates of the prior variance as in empirical
Bayes ([efron1973]; [paule1982]).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engines.tabular.growing.recipe import PURE
from engines.tabular.marginals import Marginals
from schemas.arrays import FloatArray, IntArray

_LEAST = 1e-9
_ROUNDS = 3
_CAUTION = 4.0
"""How many of its own variances a moment estimate, squared, is weighed against."""
_SMALLEST = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """Tables with `ways` axes each, over a layout of tables with one axis less.

    Attributes:
        layout: of the tables. below: of their sides.
        groups: for each axis `(cells,)`, the side cell of each cell once this axis is summed over.
        sources: for each axis `(side cells,)`, the cell of `below` that a side cell is.
        freedom: `(tables,)` share of the cells that remains when all sides are known.
    """

    layout: Marginals
    below: Marginals
    groups: tuple[IntArray, ...]
    sources: tuple[IntArray, ...]
    freedom: FloatArray

    @staticmethod
    def of(layout: Marginals, below: Marginals) -> Sides:
        """Args: layout: cliques of one size, whose sides all are cliques of `below`."""
        places = {clique: index for index, clique in enumerate(below.cliques)}
        ways = len(layout.cliques[0]) if layout.cliques else 0
        groups: list[list[IntArray]] = [[] for _ in range(ways)]
        sources: list[list[IntArray]] = [[] for _ in range(ways)]
        for axis in range(ways):
            start = 0
            for index, clique in enumerate(layout.cliques):
                shape = layout.shape(index)
                side = shape[:axis] + shape[axis + 1 :]
                cells = int(np.prod(side))
                numbers = np.expand_dims(np.arange(start, start + cells).reshape(side), axis)
                groups[axis].append(np.broadcast_to(numbers, shape).ravel())
                place = places[clique[:axis] + clique[axis + 1 :]]
                sources[axis].append(np.arange(below.offsets[place], below.offsets[place + 1]))
                start += cells
        freedom = [np.prod([size - 1 for size in layout.shape(i)]) / layout.lengths[i] for i in range(len(layout))]
        return Sides(
            layout,
            below,
            tuple(np.concatenate(parts) for parts in groups),
            tuple(np.concatenate(parts) for parts in sources),
            np.array(freedom),
        )

    def targets(self, below: FloatArray) -> list[FloatArray]:
        """What the sides are to be, for each axis, given the tables below."""
        return [below[source] for source in self.sources]

    def centred(self, tables: FloatArray) -> FloatArray:
        """What remains of tables without their sides: mean zero along every axis."""
        for group, source in zip(self.groups, self.sources, strict=True):
            sizes = np.bincount(group, minlength=len(source))
            tables = tables - (np.bincount(group, tables, len(source)) / sizes)[group]
        return tables

    def rake(
        self, tables: FloatArray, targets: Sequence[FloatArray], *, rounds: int, tolerance: float = 1e-3
    ) -> FloatArray:
        """Iterative proportional fitting of non-negative tables to their sides."""
        for _ in range(rounds):
            worst = 0.0
            for group, target in zip(self.groups, targets, strict=True):
                factors = target / np.maximum(np.bincount(group, tables, len(target)), _LEAST * 1e-3)
                tables = tables * factors[group]
                worst = max(worst, float(np.abs(factors - 1).max(initial=0.0)))
            if worst < tolerance:
                break
        return tables

    def posterior(
        self, noisy: FloatArray, prior: FloatArray, variances: FloatArray, *, kurtosis: float = PURE.kurtosis
    ) -> FloatArray:
        """Empirical Bayes: prior plus the believed part of the residual's interaction, cell by cell.

        A cell's true residual is taken to have variance tau^2 w, where w is the prior to the power 5/4 (likely cells
        deviate more), scaled to mean 1 in each table; tau^2 comes from weighted moments, in three rounds, and is
        lowered as far as noise alone gives such moments: a marginal that noise hides stays at its prior.

        Args:
            variances: `(tables,)` of the noise of one cell.
            kurtosis: of that noise, see `Recipe`.
        """
        layout = self.layout
        residual = self.centred(noisy - prior)
        likely = np.maximum(prior, _LEAST)
        w = likely * np.sqrt(np.sqrt(likely))
        w = w / layout.spread(layout.sums(w) / layout.lengths)
        noise = variances * self.freedom
        every = layout.spread(noise)
        excess = residual * residual - every
        tau2, trust = np.maximum(layout.sums(w * excess) / layout.sums(w * w), 0.0), w
        for _ in range(_ROUNDS):
            trust = 1 / (layout.spread(tau2) * w + every + _LEAST)
            trust = trust * trust * w
            tau2 = np.maximum(layout.sums(trust * excess) / layout.sums(trust * w), 0.0)
        doubt = trust * every
        doubt = kurtosis * layout.sums(doubt * doubt) / np.maximum(layout.sums(trust * w), _SMALLEST) ** 2
        squared = tau2 * tau2
        tau2 = tau2 * (squared / (squared + _CAUTION * doubt + _SMALLEST))
        signal = layout.spread(tau2) * w
        believed: FloatArray = prior + signal / (signal + every) * residual
        return believed
