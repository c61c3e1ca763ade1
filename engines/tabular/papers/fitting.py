"""What fits a model to noisy marginals: one interface, so that any mode can use any of them.

A fit is post-processing: it sees noisy measurements and earlier fits, never an event. Given the same arguments it gives
the same arrays, bit for bit, on the same machine with the same libraries.

The model is that of maximum entropy near the last one: measured marginals are approached in weighted least squares,
and what no measurement speaks of stays as it was (entropic mirror descent, started from the last potentials).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from engines.tabular.domain import TableDomain
from engines.tabular.papers.beliefs import Beliefs
from engines.tabular.papers.structure import JunctionTree
from engines.tabular.workload import Clique
from schemas.arrays import FloatArray
from schemas.errors import EngineInputError

IMPOSSIBLE = -1e4
"""Log of the weight of a structural zero: its exponential is zero in float64."""


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


class ModelFitter(Protocol):
    """A model of fixed structure. Holds no data; potentials go in and come out as one vector."""

    @property
    def tree(self) -> JunctionTree:
        """The model's structure."""
        ...

    @property
    def marginals(self) -> tuple[Clique, ...]:
        """Wanted marginals that it can be fitted to, in the order in which they were wanted."""
        ...

    def initial(self) -> FloatArray:
        """Potentials of the uniform distribution over possible rows."""
        ...

    def fit(self, potentials: FloatArray, observed: Sequence[Observed], *, total: float) -> FloatArray:
        """Potentials fitted to these measurements, at most one of each marginal, from the given ones.

        Args:
            total: events in the table, public; positive.
        Raises: EngineInputError if a measurement's marginal is not one of `marginals`, or there twice.
        """
        ...

    def beliefs(self, potentials: FloatArray, *, total: float) -> Beliefs:
        """What the model says of every marginal."""
        ...


def starting_potentials(domain: TableDomain, tree: JunctionTree) -> FloatArray:
    """Logarithms of the uniform weights, all cliques' side by side; `IMPOSSIBLE` at structural zeros.

    Raises: EngineInputError if the tree lacks a pair with structural zeros.
    """
    tables = [np.zeros(tree.shape(index)) for index in range(len(tree.cliques))]
    for pair in sorted({(zero.left, zero.right) for zero in domain.impossible}):
        home = tree.home(pair)
        if home is None:
            raise EngineInputError("the model's tree must hold every pair with structural zeros")
        fine = domain.possible_pairs(*pair)
        axes = tuple(size if a in pair else 1 for a, size in zip(tree.cliques[home], tree.shape(home), strict=True))
        tables[home] += np.where(fine, 0.0, IMPOSSIBLE).reshape(axes)
    return np.concatenate([table.ravel() for table in tables])


def tree_for(domain: TableDomain, wanted: Sequence[Clique], *, max_cells: int) -> JunctionTree:
    """The structure of a model of this domain. Raises: EngineInputError if structural zeros alone need more cells."""
    zeros = sorted({(zero.left, zero.right) for zero in domain.impossible})
    return JunctionTree.largest(domain.sizes, wanted, max_cells=max_cells, needed=zeros)


def check_observed(observed: Sequence[Observed], marginals: Sequence[Clique], total: float) -> None:
    """Refuse what cannot be fitted. Raises: EngineInputError."""
    cliques = [each.clique for each in observed]
    if not set(cliques) <= set(marginals) or len(set(cliques)) < len(cliques):
        raise EngineInputError("measurements must be of marginals that the model holds, each of them once")
    if not total > 0 or not all(each.variance > 0 for each in observed):
        raise EngineInputError("the total and all variances must be positive")
