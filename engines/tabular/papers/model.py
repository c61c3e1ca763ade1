"""Graphical models: junction trees of bounded size, which are public and made from sizes alone, and their marginals.

A model that grew with the marginals that happen to be selected would be compiled anew each time and could outgrow any
memory. So its structure is fixed before the first event: every attribute, joined as cheaply as can be, and then as many
wanted marginals as fit, small ones first.
Marginals of the model come from the tables of its maximal cliques, by summing along the tree. In float64 throughout;
post-processing: tables and marginals are released, or follow from what is.
Sources: maximal cliques of a triangulation, and their maximum-weight spanning tree ([jensen1994]); queries
that no clique holds ([koller2009], section 10.3.3).
Units: cells, over all maximal cliques together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from engines.tabular.marginals import Clique, Marginals
from schemas.arrays import FloatArray
from schemas.errors import EngineInputError

_MAX_REFUSALS = 64
"""Marginals that do not fit, one after the other, before larger ones are no longer tried."""


@dataclass(frozen=True, slots=True)
class JunctionTree:
    """A tree of maximal cliques over attributes of these sizes: what two cliques share is in all between them.

    Attributes:
        cliques: ascending, none within another; every attribute is in one at least.
        edges: `(parent, child)` indices of cliques, parents before their children; clique 0 is the root. What an
            edge's cliques share may be nothing: then the model has independent parts.

    >>> tree = JunctionTree.over((2, 3, 4, 5), [(0, 1), (1, 2), (0, 2)])
    >>> tree.cliques, tree.edges, tree.cells
    (((0, 1, 2), (3,)), ((0, 1),), 29)
    """

    sizes: tuple[int, ...]
    cliques: tuple[Clique, ...]
    edges: tuple[tuple[int, int], ...]
    _behind: Mapping[tuple[int, int], frozenset[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        behind: dict[tuple[int, int], frozenset[int]] = {}
        for parent, child in reversed(self.edges):
            below = (behind[child, other] for top, other in self.edges if top == child)
            behind[parent, child] = frozenset(self.cliques[child]).union(*below)
        for parent, child in self.edges:
            around = (behind[parent, other] for other in _beside(self.edges, parent) if other != child)
            behind[child, parent] = frozenset(self.cliques[parent]).union(*around)
        object.__setattr__(self, "_behind", behind)

    @staticmethod
    def over(sizes: Sequence[int], marginals: Iterable[Clique]) -> JunctionTree:
        """Return the tree that holds these marginals, by eliminating the attribute whose clique is smallest."""
        linked: dict[int, set[int]] = {attribute: set() for attribute in range(len(sizes))}
        for marginal in marginals:
            for left, right in combinations(marginal, 2):
                linked[left].add(right)
                linked[right].add(left)
        found: list[Clique] = []
        while linked:
            attribute = min(linked, key=lambda a: (_cells(sizes, linked[a]) * sizes[a], a))
            others = linked.pop(attribute)
            for left, right in combinations(sorted(others), 2):
                linked[left].add(right)
                linked[right].add(left)
            for other in others:
                linked[other].discard(attribute)
            clique = frozenset(others | {attribute})
            if not any(clique <= set(larger) for larger in found):
                found.append(tuple(sorted(clique)))
        cliques = tuple(sorted(found))
        return JunctionTree(tuple(sizes), cliques, _spanning(cliques))

    @staticmethod
    def largest(
        sizes: Sequence[int], wanted: Sequence[Clique], *, max_cells: int, needed: Sequence[Clique] = ()
    ) -> JunctionTree:
        """Return the tree within `max_cells` that holds what is needed and, of what is wanted, a spanning part and the
        smallest.

        Raises: EngineInputError if what is needed does not fit.
        """
        chosen = list(needed)
        tree = JunctionTree.over(sizes, chosen)
        if tree.cells > max_cells:
            raise EngineInputError(
                f"the model needs {tree.cells:,} cells, more than model_cells = {max_cells:,}: use coarser bins, "
                "fewer values or structural zeros, or raise model_cells"
            )
        part = list(range(len(sizes)))
        for clique in tree.cliques:
            _join(part, clique)
        refused = 0
        ascending = sorted(wanted, key=lambda clique: (_cells(sizes, clique), clique))
        for joins in (True, False):
            for clique in ascending:
                if joins and len({part[attribute] for attribute in clique}) < len(clique):
                    continue
                if tree.holds(clique):
                    continue
                larger = JunctionTree.over(sizes, [*chosen, clique])
                if larger.cells <= max_cells:
                    chosen.append(clique)
                    tree, refused = larger, 0
                    _join(part, clique)
                elif not joins:
                    refused += 1
                if refused == _MAX_REFUSALS:
                    return tree
        return tree

    @property
    def cells(self) -> int:
        return sum(_cells(self.sizes, clique) for clique in self.cliques)

    def holds(self, marginal: Clique) -> bool:
        """Return whether the marginal is one of a maximal clique."""
        return self.home(marginal) is not None

    def home(self, marginal: Clique) -> int | None:
        """Return the index of the smallest maximal clique that holds a marginal; None if it has to be computed."""
        homes = [i for i, clique in enumerate(self.cliques) if set(marginal) <= set(clique)]
        return min(homes, key=lambda i: (_cells(self.sizes, self.cliques[i]), i), default=None)

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of a maximal clique's table."""
        return tuple(self.sizes[attribute] for attribute in self.cliques[index])

    def cut(self, vector: FloatArray) -> list[FloatArray]:
        """Return the table of each maximal clique, of their cells side by side; views."""
        shapes = [self.shape(index) for index in range(len(self.cliques))]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(vector, ends[:-1]), shapes, strict=True)]

    def neighbours(self, index: int) -> list[int]:
        return _beside(self.edges, index)

    def behind(self, at: int, index: int) -> frozenset[int]:
        """Return the attributes of clique `index`, and of all cliques that its neighbour `at` reaches through it."""
        return self._behind[at, index]

    def shared(self, left: int, right: int) -> Clique:
        """Return the attributes that two cliques have in common."""
        return tuple(sorted(set(self.cliques[left]) & set(self.cliques[right])))


def _beside(edges: Sequence[tuple[int, int]], index: int) -> list[int]:
    return [right if left == index else left for left, right in edges if index in (left, right)]


def _cells(sizes: Sequence[int], attributes: Iterable[int]) -> int:
    return math.prod(sizes[attribute] for attribute in attributes)


def _join(part: list[int], clique: Clique) -> None:
    joined = {part[attribute] for attribute in clique}
    part[:] = [min(joined) if label in joined else label for label in part]


def _spanning(cliques: Sequence[Clique]) -> tuple[tuple[int, int], ...]:
    """Return the tree whose edges share as many attributes as possible, by Prim's algorithm."""
    edges: list[tuple[int, int]] = []
    outside = set(range(1, len(cliques)))
    best = {child: (len(set(cliques[0]) & set(cliques[child])), 0) for child in outside}
    while outside:
        child = max(outside, key=lambda c: (best[c][0], -c))
        outside.discard(child)
        edges.append((best[child][1], child))
        for other in outside:
            shared = len(set(cliques[child]) & set(cliques[other]))
            if shared > best[other][0]:
                best[other] = (shared, child)
    return tuple(edges)


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
        """Return the distribution whose logarithm is the sum of these tables, all cliques' side by side and up to a
        constant: by message passing in logarithms, up to the root and down again.
        """
        logs = [table.copy() for table in tree.cut(potentials)]
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
        """Return the table of any marginal, whether or not a maximal clique holds it."""
        home = self.tree.home(wanted)
        if home is not None:
            return _summed(self.tables[home], self.tree.cliques[home], wanted)
        root = next(i for i, clique in enumerate(self.tree.cliques) if wanted[0] in clique)
        kept, table = self._gathered(root, None, frozenset(wanted))
        return _einsum([table, kept], wanted)

    def vector(self, layout: Marginals) -> FloatArray:
        """Return all marginals of a layout, side by side."""
        if not len(layout):
            return np.zeros(0)
        return np.concatenate([self.marginal(clique).ravel() for clique in layout.cliques])

    def _gathered(self, at: int, came_from: int | None, wanted: frozenset[int]) -> tuple[Clique, FloatArray]:
        """Return wanted attributes at and behind clique `at`, jointly with what it shares with the clique asking.

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
    """Multiply tables, each given before its attributes, and sum over all attributes but those kept, in their order."""
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
    """Return the table of some of a clique's attributes in a shape that can be added to one of all."""
    shape = iter(table.shape)
    return table.reshape([next(shape) if attribute in attributes else 1 for attribute in clique])
