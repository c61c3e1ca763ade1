"""Workloads: which marginals a stream is to get right, and how much each of them matters. Public.

A marginal is a clique: a strictly ascending tuple of attribute indices. One event is in one cell of each marginal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise

from schemas.errors import EngineInputError

Clique = tuple[int, ...]

MAX_WAYS = 3
ONE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Workload:
    """Marginals with weights, in ascending order of size and then of attributes.

    Args:
        attributes: how many there are.
        cliques: distinct, of one to three attributes each; at least one.
        weights: positive, one for each clique.
    Raises: EngineInputError.

    >>> Workload.all(3).cliques
    ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))
    """

    attributes: int
    cliques: tuple[Clique, ...]
    weights: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if not self.cliques or len(set(self.cliques)) != len(self.cliques):
            raise EngineInputError("a workload needs marginals, each of them once")
        if len(self.weights) != len(self.cliques) or any(weight <= 0 for weight in self.weights):
            raise EngineInputError("a workload needs one positive weight for each marginal")
        if sorted(self.cliques, key=_order) != list(self.cliques):
            raise EngineInputError("marginals must be in ascending order: use Workload.of()")
        for clique in self.cliques:
            if not 1 <= len(clique) <= MAX_WAYS:
                raise EngineInputError(f"a marginal has 1 to {MAX_WAYS} attributes")
            if any(left >= right for left, right in pairwise(clique)):
                raise EngineInputError("a marginal names each attribute once, in ascending order")
            if clique[0] < 0 or clique[-1] >= self.attributes:
                raise EngineInputError("a marginal names an attribute that the domain lacks")

    @staticmethod
    def all(attributes: int, ways: Iterable[int] = (1, 2)) -> Workload:
        """All marginals of so many attributes each; of a table with one attribute, the one there is."""
        possible = (way for way in sorted(set(ways)) if way <= attributes)
        cliques = [clique for way in possible for clique in combinations(range(attributes), way)]
        return Workload.of(attributes, dict.fromkeys(cliques or [(0,)], ONE))

    @staticmethod
    def of(attributes: int, weights: Mapping[Sequence[int], Fraction]) -> Workload:
        """These marginals with their weights; attributes of a marginal may come in any order."""
        ordered = sorted(((tuple(sorted(clique)), weight) for clique, weight in weights.items()), key=_first)
        return Workload(attributes, tuple(clique for clique, _ in ordered), tuple(weight for _, weight in ordered))

    def select(self, way: int) -> Workload | None:
        """The marginals of so many attributes; None if there are none."""
        chosen = [index for index, clique in enumerate(self.cliques) if len(clique) == way]
        if not chosen:
            return None
        return Workload(
            self.attributes,
            tuple(self.cliques[index] for index in chosen),
            tuple(self.weights[index] for index in chosen),
        )


def _order(clique: Clique) -> tuple[int, Clique]:
    return len(clique), clique


def _first(item: tuple[Clique, Fraction]) -> tuple[int, Clique]:
    return _order(item[0])
