"""What fits a model to noisy marginals: one interface, so that any mode can use any of them.

A fit is post-processing: it sees noisy measurements and earlier fits, never an event. Given the same arguments it gives
the same arrays, bit for bit, on the same machine with the same libraries.

The model is that of maximum entropy near the last one: measured marginals are approached in weighted least squares,
and what no measurement speaks of stays as it was (entropic mirror descent, started from the last potentials).
Private-PGM fits so any junction tree (`pgm`); multiplicative weights on the joint table ([hardt2012], with the step
length searched for instead of fixed, and all measurements of a fit at once), domains that fit in memory as a whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engines.tabular.domain import TableDomain
from engines.tabular.marginals import Clique
from engines.tabular.papers.model import Beliefs, JunctionTree
from schemas.arrays import FloatArray
from schemas.errors import EngineInputError

IMPOSSIBLE = -1e4
"""Log of the weight of a structural zero: its exponential is zero in float64."""
ITERATIONS = 100
LENGTHEN, SHORTEN = 1.25, 0.5
"""The step after one that went well, and after one that did not."""


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """A noisy marginal. Attributes:

    clique: what it is of.
    counts: its table, noisy, in events; flat or of its shape.
    variance: of one cell.
    """

    clique: Clique
    counts: FloatArray
    variance: float


@dataclass(frozen=True, slots=True, eq=False)
class ModelFitter(ABC):
    """A model of fixed structure. Holds no data; potentials go in and come out as one vector.

    Attributes:
        domain: what a row is.
        tree: the model's structure.
        marginals: wanted marginals that it can be fitted to, in the order in which they were wanted.
    """

    domain: TableDomain
    tree: JunctionTree
    marginals: tuple[Clique, ...]

    def initial(self) -> FloatArray:
        """Return potentials of the uniform distribution over possible rows, all cliques' side by side; `IMPOSSIBLE` at
        structural zeros.

        Raises: EngineInputError if the tree lacks a pair with structural zeros.
        """
        tree = self.tree
        tables = [np.zeros(tree.shape(index)) for index in range(len(tree.cliques))]
        for pair in _zeros(self.domain):
            home = tree.home(pair)
            if home is None:
                raise EngineInputError("the model's tree must hold every pair with structural zeros")
            fine = self.domain.possible_pairs(*pair)
            axes = tuple(size if a in pair else 1 for a, size in zip(tree.cliques[home], tree.shape(home), strict=True))
            tables[home] += np.where(fine, 0.0, IMPOSSIBLE).reshape(axes)
        return np.concatenate([table.ravel() for table in tables])

    def fit(self, potentials: FloatArray, observed: Sequence[Observed], *, total: float) -> FloatArray:
        """Return potentials fitted to these measurements, at most one of each marginal, from the given ones.

        Args:
            total: events in the table, public; positive.
        Raises: EngineInputError if a measurement's marginal is not one of `marginals`, or there twice.
        """
        cliques = [each.clique for each in observed]
        if not set(cliques) <= set(self.marginals) or len(set(cliques)) < len(cliques):
            raise EngineInputError("measurements must be of marginals that the model holds, each of them once")
        if not total > 0 or not all(each.variance > 0 for each in observed):
            raise EngineInputError("the total and all variances must be positive")
        return self._fitted(potentials, observed, total) if observed else potentials.copy()

    @abstractmethod
    def _fitted(self, potentials: FloatArray, observed: Sequence[Observed], total: float) -> FloatArray: ...

    def beliefs(self, potentials: FloatArray, *, total: float) -> Beliefs:
        """Return what the model says of every marginal."""
        return Beliefs.of(self.tree, potentials, total=total)


def _zeros(domain: TableDomain) -> list[Clique]:
    """Return the pairs of attributes with structural zeros."""
    return sorted({(zero.left, zero.right) for zero in domain.impossible})


def tree_for(domain: TableDomain, wanted: Sequence[Clique], *, max_cells: int) -> JunctionTree:
    """Return a model's structure. Raises: EngineInputError if structural zeros alone need more cells."""
    return JunctionTree.largest(domain.sizes, wanted, max_cells=max_cells, needed=_zeros(domain))


@dataclass(frozen=True, slots=True, eq=False)
class JointFit(ModelFitter):
    """Fits the joint table: the tree has one clique.

    >>> from engines.tabular.domain import Category
    >>> table = TableDomain(tuple(Category(field=name, values=(0, 1)) for name in "ab"))
    >>> fit = JointFit.over(table, [(0, 1)], max_cells=4)
    >>> noisy = Observed((0, 1), np.array([6.0, 0.0, 0.0, 2.0]), 1.0)
    >>> fit.beliefs(fit.fit(fit.initial(), [noisy], total=8.0), total=8.0).marginal((0, 1)).round(1).tolist()
    [[6.0, 0.0], [0.0, 2.0]]
    """

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

    def _fitted(self, potentials: FloatArray, observed: Sequence[Observed], total: float) -> FloatArray:
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


def _normalised(log_weights: FloatArray, total: float) -> FloatArray:
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights * (total / weights.sum()))


def _loss(table: FloatArray, observed: Sequence[Observed]) -> tuple[float, FloatArray]:
    """Return weighted squares of what is off, and their derivative by each cell of the table."""
    loss, slope = 0.0, np.zeros_like(table)
    for each in observed:
        axes = tuple(axis for axis in range(table.ndim) if axis not in each.clique)
        sums = table.sum(axis=axes, keepdims=True)
        off = sums - each.counts.reshape(sums.shape)
        loss += 0.5 * float(np.vdot(off, off)) / each.variance
        slope += off / each.variance
    return loss, slope
