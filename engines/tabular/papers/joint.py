"""Multiplicative weights on the joint table: the same fit as Private-PGM's, for domains that fit in memory as a whole.

Source: [hardt2012], with
the step length searched for instead of fixed, and all measurements of a fit at once. What a fit promises: `fitting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engines.tabular.domain import TableDomain
from engines.tabular.papers.beliefs import Beliefs
from engines.tabular.papers.fitting import Observed, check_observed, starting_potentials
from engines.tabular.papers.structure import JunctionTree
from engines.tabular.workload import Clique
from schemas.arrays import FloatArray
from schemas.errors import EngineInputError

ITERATIONS = 100
LENGTHEN, SHORTEN = 1.25, 0.5
"""The step after one that went well, and after one that did not."""


@dataclass(frozen=True, slots=True, eq=False)
class JointFit:
    """Implements `fitting.ModelFitter`; the tree has one clique.

    >>> from engines.tabular.attributes import Category
    >>> table = TableDomain(tuple(Category(name=name, values=(0, 1)) for name in "ab"))
    >>> fit = JointFit.over(table, [(0, 1)], max_cells=4)
    >>> noisy = Observed((0, 1), np.array([6.0, 0.0, 0.0, 2.0]), 1.0)
    >>> fit.beliefs(fit.fit(fit.initial(), [noisy], total=8.0), total=8.0).marginal((0, 1)).round(1).tolist()
    [[6.0, 0.0], [0.0, 2.0]]
    """

    domain: TableDomain
    tree: JunctionTree
    marginals: tuple[Clique, ...]

    @staticmethod
    def over(domain: TableDomain, wanted: Sequence[Clique], *, max_cells: int) -> JointFit:
        """Raises: EngineInputError if the whole table has more than `max_cells`."""
        if domain.rows > max_cells:
            raise EngineInputError(
                f"fit = 'joint' needs all {domain.rows:,} combinations of values, more than model_cells = "
                f"{max_cells:,}: use fit = 'pgm', coarser bins, or raise model_cells"
            )
        tree = JunctionTree(domain.sizes, (tuple(range(len(domain.sizes))),), ())
        return JointFit(domain, tree, tuple(wanted))

    def initial(self) -> FloatArray:
        """See `ModelFitter.initial`."""
        return starting_potentials(self.domain, self.tree)

    def fit(self, potentials: FloatArray, observed: Sequence[Observed], *, total: float) -> FloatArray:
        """See `ModelFitter.fit`."""
        check_observed(observed, self.marginals, total)
        if not observed:
            return potentials.copy()
        shape = self.tree.shape(0)
        log_weights = potentials.reshape(shape)
        table = _normalised(log_weights, total)
        loss, slope = _loss(table, observed)
        # The negative entropy of tables with this total is 1/total-strongly convex in L1, so this step cannot be wrong.
        step = 1.0 / (total * sum(1.0 / each.variance for each in observed))
        for _ in range(ITERATIONS):
            tried = log_weights - step * slope
            candidate = _normalised(tried, total)
            tried_loss, tried_slope = _loss(candidate, observed)
            if loss - tried_loss >= 0.5 * step * float(np.vdot(slope, table - candidate)):
                log_weights, table, loss, slope = tried, candidate, tried_loss, tried_slope
                step *= LENGTHEN
            else:
                step *= SHORTEN
        return np.asarray(log_weights - log_weights.max()).ravel()

    def beliefs(self, potentials: FloatArray, *, total: float) -> Beliefs:
        """See `ModelFitter.beliefs`."""
        return Beliefs.of(self.tree, potentials, total=total)


def _normalised(log_weights: FloatArray, total: float) -> FloatArray:
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights * (total / weights.sum()))


def _loss(table: FloatArray, observed: Sequence[Observed]) -> tuple[float, FloatArray]:
    """Weighted squares of what is off, and their derivative by each cell of the table."""
    loss, slope = 0.0, np.zeros_like(table)
    for each in observed:
        axes = tuple(axis for axis in range(table.ndim) if axis not in each.clique)
        sums = table.sum(axis=axes, keepdims=True)
        off = sums - each.counts.reshape(sums.shape)
        loss += 0.5 * float(np.vdot(off, off)) / each.variance
        slope += off / each.variance
    return loss, slope
