"""Marginals of a graphical model from the tables of its maximal cliques, by summing along its junction tree.

Post-processing: tables and marginals are released, or follow from what is. In float64 throughout.
Source: [koller2009], section 10.3.3 (out-of-clique queries).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engines.tabular.marginals import Marginals
from engines.tabular.papers.structure import JunctionTree
from engines.tabular.workload import Clique
from schemas.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Beliefs:
    """A distribution, times a total, as the tables of maximal cliques.

    Attributes:
        tables: one for each clique of `tree`, of its shape, consistent where cliques overlap.
        total: sum of each table.

    >>> tree = JunctionTree.over((2, 2, 2), [(0, 1), (1, 2)])
    >>> chain = Beliefs(tree, (np.array([[3.0, 0.0], [0.0, 1.0]]), np.array([[3.0, 0.0], [0.0, 1.0]])), 4.0)
    >>> chain.marginal((0, 2)).tolist()
    [[3.0, 0.0], [0.0, 1.0]]
    """

    tree: JunctionTree
    tables: tuple[FloatArray, ...]
    total: float

    @staticmethod
    def of(tree: JunctionTree, potentials: FloatArray, *, total: float) -> Beliefs:
        """The distribution whose logarithm is the sum of these tables, all cliques' side by side, up to a constant.

        Message passing in logarithms, up to the root and down again.
        """
        shapes = [tree.shape(index) for index in range(len(tree.cliques))]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        logs = [part.reshape(shape).copy() for part, shape in zip(np.split(potentials, ends[:-1]), shapes, strict=True)]
        up: dict[int, FloatArray] = {}
        for parent, child in reversed(tree.edges):
            up[child] = _log_sums(logs[child], tree.cliques[child], tree.shared(parent, child))
            logs[parent] += _aligned(up[child], tree.shared(parent, child), tree.cliques[parent])
        for parent, child in tree.edges:
            shared = tree.shared(parent, child)
            down = _log_sums(logs[parent], tree.cliques[parent], shared) - up[child]
            logs[child] += _aligned(down, shared, tree.cliques[child])
        tables = [np.exp(table - table.max()) for table in logs]
        return Beliefs(tree, tuple(table * (total / table.sum()) for table in tables), total)

    def marginal(self, wanted: Clique) -> FloatArray:
        """The table of any marginal, whether or not a maximal clique holds it."""
        home = self.tree.home(wanted)
        if home is not None:
            return _summed(self.tables[home], self.tree.cliques[home], wanted)
        root = next(i for i, clique in enumerate(self.tree.cliques) if wanted[0] in clique)
        kept, table = self._gathered(root, None, frozenset(wanted))
        return _einsum([table, kept], wanted)

    def vector(self, layout: Marginals) -> FloatArray:
        """All marginals of a layout, side by side."""
        if not len(layout):
            return np.zeros(0)
        return np.concatenate([self.marginal(clique).ravel() for clique in layout.cliques])

    def _gathered(self, at: int, came_from: int | None, wanted: frozenset[int]) -> tuple[Clique, FloatArray]:
        """Wanted attributes at and behind clique `at`, jointly with what it shares with the clique asking.

        Given what is shared, what lies behind is independent of the rest: it comes as a conditional table.
        """
        clique = self.tree.cliques[at]
        shared = () if came_from is None else self.tree.shared(at, came_from)
        parts: list[Any] = [self.tables[at], clique]
        found = set(clique)
        for other in self.tree.neighbours(at):
            if other != came_from and self.tree.behind(at, other) & (wanted - set(clique)):
                kept, table = self._gathered(other, at, wanted - set(clique))
                parts += [table, kept]
                found |= set(kept)
        # A root sums to the total; further tables are conditional on what they share, so they keep it.
        kept = tuple(sorted(found & wanted | set(shared)))
        table = _einsum(parts, kept)
        if came_from is not None:
            alone = _summed(self.tables[at], clique, shared)
            shape = tuple(self.tree.sizes[a] if a in shared else 1 for a in kept)
            divisor = alone.reshape(shape)
            table = np.divide(table, divisor, out=np.zeros_like(table), where=divisor > 0)
        return kept, table


def _einsum(parts: Sequence[Any], kept: Clique) -> FloatArray:
    """Tables and their attributes in turn: multiplied, and summed over all attributes but those kept, in this order."""
    einsum: Any = np.einsum
    arguments = [list(part) if isinstance(part, tuple) else part for part in parts]
    return np.asarray(einsum(*arguments, list(kept), optimize="greedy"), np.float64)


def _summed(table: FloatArray, clique: Sequence[int], wanted: Clique) -> FloatArray:
    axes = tuple(axis for axis, attribute in enumerate(clique) if attribute not in wanted)
    return np.asarray(table.sum(axis=axes))


def _log_sums(logs: FloatArray, clique: Clique, kept: Clique) -> FloatArray:
    axes = tuple(axis for axis, attribute in enumerate(clique) if attribute not in kept)
    top = logs.max(axis=axes, keepdims=True)
    return np.asarray(np.log(np.exp(logs - top).sum(axis=axes)) + top.sum(axis=axes))


def _aligned(table: FloatArray, attributes: Clique, clique: Clique) -> FloatArray:
    """The table of some of a clique's attributes, to be added to one of all."""
    shape = iter(table.shape)
    return table.reshape([next(shape) if attribute in attributes else 1 for attribute in clique])
