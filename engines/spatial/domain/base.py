"""What every spatial domain is to the engines: a binary tree of cells with a public measure.

A node is named by its heap number: the root is 1, the children of v are 2v and 2v + 1. Only cells that hold a part of
the domain have a name: where one half of a cell misses the domain, the tree passes over to the other half, so that
engines never see, measure or pay for a structural zero. The finest cells may therefore lie at different depths; a key
holds the code of a finest cell followed by zeros, `depth` bits in all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from engines.core.contract import Columns, ScalarKind
from engines.core.coordinates import coordinates_at_fault
from schemas.arrays import BoolArray, FloatArray, IntArray, KeyArray, ReasonArray, WordArray

SHARE_BITS = 20
WHOLE = 1 << SHARE_BITS
HALF = WHOLE >> 1


def children_of(nodes: IntArray) -> IntArray:
    """Return both children of each node, in pairs, `(2 * nodes,)`; of codes of cells, those of their halves."""
    pairs = np.repeat(2 * nodes, 2)
    pairs[1::2] += 1
    return pairs


def first_codes(nodes: IntArray, depths: IntArray | int, depth: int) -> IntArray:
    """Return the code of the first finest cell below each node, `(nodes,)`, of a domain of this depth."""
    return (nodes << (depth - depths)) - (1 << depth)


def first_shares(counts: IntArray, shares: IntArray, words: WordArray) -> tuple[IntArray, IntArray]:
    """Return how many of a cell's first `counts` points, and of one more, go to its first child, `(nodes,)` each.

    With `w / 2**b` the first child's share it is `(n w + c) >> b`, c fixed per cell by its word: one more or as many
    for one point more, so the first n points of a cell are the first points of its children.
    """
    exact = counts * shares + (words >> np.uint64(64 - SHARE_BITS)).astype(np.int64)
    return exact >> SHARE_BITS, (exact + shares) >> SHARE_BITS


def nodes_to(domain: SpatialDomain, depth: int) -> IntArray:
    """Return all nodes of a depth or less, ascending."""
    level = np.ones(1, np.int64)
    levels = [level]
    for above in range(depth):
        parents = level[domain.divisible(level, np.full(len(level), above))]
        level = children_of(parents)
        levels.append(level)
    return np.concatenate(levels)


class PublicWords(Protocol):
    """Fixed public pseudo-random numbers of a stream's cells, see `engines.spatial.points`."""

    def words(self, nodes: IntArray) -> WordArray:
        """Return one word for each heap number, `(nodes,)`."""
        ...

    def positions(self, nodes: IntArray, indices: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return two numbers in [0, 1) for each point of a cell, `(points,)` each; they fill the unit square evenly."""
        ...


class SpatialDomain(ABC):
    """Implements `engines.core.contract.Domain` too. All of it is public, fixed and a pure function of the
    configuration.

    Attributes:
        halved: True where every cell of depth < `depth` has two children of equal share, so that none need be asked.
        named: True where a synthetic record names its finest cell, so that one record cannot stand for several.
    """

    number_fields: tuple[str, ...] = ()
    text_fields: tuple[str, ...] = ()
    value_fields: Mapping[str, frozenset[ScalarKind]] = MappingProxyType({})
    words = 1
    halved = False
    named = False

    @property
    @abstractmethod
    def depth(self) -> int:
        """Number of bits of a cell's code; no node is deeper."""

    @property
    @abstractmethod
    def identity(self) -> tuple[Any, ...]:
        """Everything that decides what keys and shares mean; a stored state of another identity is refused."""

    @property
    @abstractmethod
    def record_fields(self) -> tuple[str, ...]:
        """Names of the fields of synthetic records, in the order of `placed`."""

    @abstractmethod
    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """See `engines.core.contract.Domain`."""

    @abstractmethod
    def divisible(self, nodes: IntArray, depths: IntArray) -> BoolArray:
        """Tell which nodes have children, `(nodes,)`; False for finest cells and below them."""

    @abstractmethod
    def left_shares(self, nodes: IntArray, depths: IntArray) -> IntArray:
        """Return the first child's share of each node's measure, `(nodes,)`, in `WHOLE` parts: 1 to `WHOLE` - 1.

        Below a finest cell it is `WHOLE`, for a node without children goes on to the left.
        """

    @abstractmethod
    def described(self, nodes: IntArray, depths: IntArray) -> list[dict[str, Any]]:
        """Return what a measurement says of each node's place: `cell` (xmin, ymin, xmax, ymax) or `zones` (names)."""

    @abstractmethod
    def placed(self, public: PublicWords, nodes: IntArray, indices: IntArray) -> Sequence[list[Any]]:
        """Return the fields of points of finest cells, column by column; `encode` gives each point back its own cell.

        Args:
            nodes: `(points,)` heap numbers of depth `depth` (codes of finest cells, followed by zeros).
            indices: `(points,)` which point of the cell.
        """


class PlanarDomain(SpatialDomain):
    """A domain whose events and synthetic records have two coordinates, within `bounds`: xmin, ymin, xmax, ymax."""

    x_field: str
    y_field: str
    bounds: tuple[float, float, float, float]

    @property
    def number_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.x_field, self.y_field)

    @property
    def record_fields(self) -> tuple[str, ...]:
        return (self.x_field, self.y_field)

    def at_fault(self, columns: Columns) -> list[str]:
        return coordinates_at_fault(columns, (self.x_field, self.y_field), self.bounds)

    @abstractmethod
    def points(self, public: PublicWords, nodes: IntArray, indices: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return x and y of some points."""

    def placed(self, public: PublicWords, nodes: IntArray, indices: IntArray) -> Sequence[list[Any]]:
        x, y = self.points(public, nodes, indices)
        return x.tolist(), y.tolist()
