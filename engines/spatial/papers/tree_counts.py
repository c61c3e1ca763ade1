"""From a step's noisy increments to the counts that it releases: all that follows the noise, so none of it costs.

Source: [kumar2024], equations 3.8 and 3.9 (`papers.consistency`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.spatial.papers import consistency
from engines.spatial.partition import Partition
from engines.spatial.placement import Placement
from engines.spatial.points import Counts, node_depths
from engines.spatial.tree import UNRELEASED, Levels, Tree
from schemas.arrays import BoolArray, FloatArray, IntArray


def measured(tree: Tree, partition: Partition, increments: IntArray, *, step: int) -> Tree:
    """The tree with the cells of this step's partition, and what was measured in its leaves added to their C_n.

    Args:
        increments: `(leaves,)` in the order of `partition.leaf_nodes()`, in the tree's unit.
    """
    visited = np.concatenate(partition.nodes)
    tree = tree.with_nodes(visited)
    at = np.searchsorted(tree.nodes, visited)
    own, seen = tree.own.copy(), tree.seen.copy()
    own[at[partition.flat_leaves()]] += increments
    seen[at] = step
    return Tree(tree.nodes, own, tree.below, tree.counts, seen)


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Attributes:

    tree: with consistent counts on `live` cells, the next step's prior, and `UNRELEASED` elsewhere.
    released: counts of the leaves among them. variances: `(nodes of the tree,)` of the noise in their estimates.
    """

    tree: Tree
    released: Counts
    variances: FloatArray


def counted(
    tree: Tree, live: BoolArray, variances: FloatArray, *, placement: Placement, depth: int, resolution: int
) -> Counted:
    """Consistent extension and projection on some of a tree's cells.

    Args:
        live: `(nodes,)` True where a cell is part of this release: a tree itself, from the root.
        variances: `(nodes,)` of C_n, in squared events. depth: of the domain.
        resolution: C_n and C_d are in events / resolution.
    """
    at = np.flatnonzero(live)
    levels = Levels.of(tree.nodes[at])
    own = levels.cut(tree.own[at])
    below = consistency.gathered_from_below(own, levels.cut(tree.below[at]), levels.splits)
    above = consistency.shared_from_above(own, levels.splits)
    estimates = [(a + n + d) / resolution for a, n, d in zip(above, own, below, strict=True)]
    first = [placement.first_child(nodes[i]) for nodes, i in zip(levels.nodes, levels.splits, strict=True)]
    new_below, counts = tree.below.copy(), np.full_like(tree.counts, UNRELEASED)
    new_below[at] = np.concatenate(below)
    counts[at] = np.concatenate(consistency.project(estimates, levels.splits, first))
    leaves = np.concatenate([leaf + start for leaf, start in zip(levels.leaves, levels.starts, strict=True)])
    nodes = tree.nodes[at][leaves]
    # The papers release the leaves' own estimates: floor plus a Bernoulli of the fraction, fixed per cell.
    raw = np.maximum(np.concatenate(estimates)[leaves], 0.0)
    whole = np.floor(raw)
    released = (whole + (placement.fractions(nodes) < raw - whole)).astype(np.int64)
    return Counted(
        Tree(tree.nodes, tree.own, new_below, counts, tree.seen),
        Counts.of(nodes, node_depths(nodes), released, depth=depth),
        _estimate_variances(tree, at, variances),
    )


def _estimate_variances(tree: Tree, live: IntArray, own: FloatArray) -> FloatArray:
    """Variance of C_a + C_n + C_d: below a cell lies all that was ever measured there, above it the live cells."""
    result = np.zeros(len(own))
    everywhere = Levels.of(tree.nodes)
    parts = everywhere.cut(own)
    below = [np.zeros(len(part)) for part in parts]
    for level in reversed(range(len(parts) - 1)):
        below[level][everywhere.splits[level]] = (parts[level + 1] + below[level + 1]).reshape(-1, 2).sum(axis=1)
    levels = Levels.of(tree.nodes[live])
    above = consistency.variance_from_above(levels.cut(own[live]), levels.splits)
    result[live] = np.concatenate(above) + own[live] + np.concatenate(below)[live]
    return result
