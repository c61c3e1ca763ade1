"""Everything PHDStream remembers of its releases: a sparse tree of public counters, as sorted arrays.

Nodes are heap numbers in ascending order, siblings always together, parents always present. Holds released values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from engines.core.state import reading
from schemas.arrays import BoolArray, IntArray
from schemas.errors import EngineInputError

UNRELEASED = -1

Scalar = TypeVar("Scalar", bound=np.generic)

_FIELDS = ("nodes", "own", "below", "counts", "seen")


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Attributes, `(nodes,)` int64 each:

    nodes: heap numbers, ascending.
    own: C_n, sum of the node's own noisy measurements. below: C_d, the same of all its descendants.
    counts: G+, the node's consistent count in the last release, or UNRELEASED where it was no part of that.
    seen: step when the node was last visited by a partition; -1 never.
    """

    nodes: IntArray
    own: IntArray
    below: IntArray
    counts: IntArray
    seen: IntArray

    @staticmethod
    def root() -> Tree:
        zero = np.zeros(1, np.int64)
        return Tree(np.ones(1, np.int64), zero, zero, zero, zero - 1)

    def arrays(self) -> dict[str, IntArray]:
        return {f"tree/{name}": getattr(self, name).copy() for name in _FIELDS}

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> Tree:
        """Raises: EngineInputError if arrays are missing, of different lengths, or not a tree."""
        with reading():
            parts = [np.array(arrays[f"tree/{name}"], dtype=np.int64) for name in _FIELDS]
        nodes = parts[0]
        if len({part.shape for part in parts}) > 1 or nodes.ndim != 1 or len(nodes) == 0 or nodes[0] != 1:
            raise EngineInputError("state holds no tree")
        if (np.diff(nodes) <= 0).any():
            raise EngineInputError("nodes of the state's tree are not ascending")
        return Tree(*parts)

    def find(self, nodes: IntArray) -> tuple[IntArray, BoolArray]:
        """Positions of nodes, or where they would have to be inserted, and whether they are there; `(nodes,)` each."""
        at = np.searchsorted(self.nodes, nodes)
        there = self.nodes[np.minimum(at, len(self.nodes) - 1)] == nodes
        return at, there

    def with_nodes(self, nodes: IntArray) -> Tree:
        """The tree that has these ascending nodes too, with zeros where they are new."""
        at, there = self.find(nodes)
        if there.all():
            return self
        at, new = at[~there], nodes[~there]
        zero = np.zeros(len(new), np.int64)
        return Tree(
            nodes=np.insert(self.nodes, at, new),
            own=np.insert(self.own, at, zero),
            below=np.insert(self.below, at, zero),
            counts=np.insert(self.counts, at, zero + UNRELEASED),
            seen=np.insert(self.seen, at, zero - 1),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """A tree's nodes level by level.

    Attributes:
        nodes: heap numbers of each level, ascending.
        splits: positions in their level of the nodes with children, which are, in pairs, the next level.
        leaves: positions in their level of the others.
        starts: position of each level's first node in the tree.
    """

    nodes: list[IntArray]
    splits: list[IntArray]
    leaves: list[IntArray]
    starts: list[int]

    @staticmethod
    def of(nodes: IntArray) -> Levels:
        """Args: nodes: `(nodes,)` ascending heap numbers of a tree, siblings together."""
        depth = int(nodes[-1]).bit_length()
        bounds = np.searchsorted(nodes, np.int64(1) << np.arange(1, depth))
        levels = np.split(nodes, bounds)
        splits = [np.searchsorted(low, high[::2] >> 1) for low, high in pairwise(levels)]
        splits.append(np.zeros(0, np.int64))
        leaves = []
        for level, split in zip(levels, splits, strict=True):
            leaf = np.ones(len(level), np.bool_)
            leaf[split] = False
            leaves.append(np.flatnonzero(leaf))
        return Levels(levels, splits, leaves, [0, *bounds.tolist()])

    def cut(self, values: npt.NDArray[Scalar]) -> list[npt.NDArray[Scalar]]:
        """The values of a tree's nodes, level by level."""
        return np.split(values, self.starts[1:])
