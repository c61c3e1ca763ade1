"""Junction trees: which marginals one graphical model of bounded size can hold. Public: made from sizes alone.

A model that grew with the marginals that happen to be selected would be compiled anew each time and could outgrow any
memory. So its structure is fixed before the first event: every attribute, joined as cheaply as can be, and then as many
wanted marginals as fit, small ones first.
Source: maximal cliques of a triangulation, and their maximum-weight spanning tree ([jensen1994]).
Units: cells, over all maximal cliques together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from engines.tabular.workload import Clique
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
        """The tree that holds these marginals, by eliminating the attribute whose clique is smallest."""
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
        """The tree within `max_cells` that holds what is needed and, of what is wanted, a spanning part and the
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
        """True if the marginal is one of a maximal clique."""
        return self.home(marginal) is not None

    def home(self, marginal: Clique) -> int | None:
        """The index of the smallest maximal clique that holds a marginal; None if it has to be computed."""
        homes = [i for i, clique in enumerate(self.cliques) if set(marginal) <= set(clique)]
        return min(homes, key=lambda i: (_cells(self.sizes, self.cliques[i]), i), default=None)

    def shape(self, index: int) -> tuple[int, ...]:
        """Of a maximal clique's table."""
        return tuple(self.sizes[attribute] for attribute in self.cliques[index])

    def neighbours(self, index: int) -> list[int]:
        return _beside(self.edges, index)

    def behind(self, at: int, index: int) -> frozenset[int]:
        """Attributes of clique `index` and of all cliques that are reached from its neighbour `at` through it."""
        return self._behind[at, index]

    def shared(self, left: int, right: int) -> Clique:
        """Attributes that two cliques have in common."""
        return tuple(sorted(set(self.cliques[left]) & set(self.cliques[right])))


def _beside(edges: Sequence[tuple[int, int]], index: int) -> list[int]:
    return [right if left == index else left for left, right in edges if index in (left, right)]


def _cells(sizes: Sequence[int], attributes: Iterable[int]) -> int:
    return math.prod(sizes[attribute] for attribute in attributes)


def _join(part: list[int], clique: Clique) -> None:
    joined = {part[attribute] for attribute in clique}
    part[:] = [min(joined) if label in joined else label for label in part]


def _spanning(cliques: Sequence[Clique]) -> tuple[tuple[int, int], ...]:
    """Prim's algorithm: the tree whose edges share as many attributes as possible."""
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
