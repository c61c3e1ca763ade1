"""The tree of PHDStream: the partition of a step, what is remembered of releases, and consistent counts.

`descend` draws the private partition of a step in one descent from the root, level by level, by `split_bits`. Cost:
nodes visited times the logarithm of events, whatever the history; a node's count is a difference of two positions in
the sorted cell codes.
`Tree` is everything PHDStream remembers of its releases: a sparse tree of public counters, as sorted arrays. Nodes are
heap numbers in ascending order, siblings always together, parents always present. It holds released values only.
`counted` makes noisy counts scattered over the tree non-negative integers that add up. Consistent extension: a node's
estimate is C_a + C_n + C_d: its share of what was measured at its ancestors, what was measured at itself, what was
measured below. Projection: from the root down, the children's estimates are moved by equal amounts until they add up to
their parent's count and none is negative (Euclidean projection onto the simplex), rounded to integers.
Source: [kumar2024], equations 3.8 and 3.9 with C_a(root) = 0; the projection is ours. Post-processing of released
values costs no privacy, so floats are allowed there; they are exact below 2**53 / 2**depth events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from engines.core.noise import NoiseSource, check_zero
from engines.core.state import reading
from engines.spatial.changes import Changes
from engines.spatial.points import Counts, Placement, node_depths
from engines.spatial.split import SplitRule, split_bits
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.errors import EngineInputError

UNRELEASED = -1

Scalar = TypeVar("Scalar", bound=np.generic)
Numbers = TypeVar("Numbers", IntArray, FloatArray)

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
        starts: position of each level's first node in the tree, but for the root's.
    """

    nodes: list[IntArray]
    splits: list[IntArray]
    starts: IntArray

    @staticmethod
    def of(nodes: IntArray) -> Levels:
        """Args: nodes: `(nodes,)` ascending heap numbers of a tree, siblings together."""
        depth = int(nodes[-1]).bit_length()
        bounds = np.searchsorted(nodes, np.int64(1) << np.arange(1, depth))
        levels = np.split(nodes, bounds)
        splits = [np.searchsorted(low, high[::2] >> 1) for low, high in pairwise(levels)]
        splits.append(np.zeros(0, np.int64))
        return Levels(levels, splits, bounds)

    def cut(self, values: npt.NDArray[Scalar]) -> list[npt.NDArray[Scalar]]:
        """The values of a tree's nodes, level by level."""
        return np.split(values, self.starts)


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """The cells that a step's descent visited; public but for `net`.

    Attributes:
        nodes: `(nodes,)` heap numbers, ascending. leaves: `(leaves,)` positions of those that were not split.
        net: `(leaves,)` int64, inserts minus deletes of each leaf; PRIVATE.
    """

    nodes: IntArray
    leaves: IntArray
    net: IntArray

    def leaf_nodes(self) -> tuple[IntArray, IntArray]:
        """Heap numbers and depths of the leaves, `(leaves,)` each, in the order of `net`."""
        nodes = self.nodes[self.leaves]
        return nodes, node_depths(nodes)


def descend(
    changes: Changes,
    tree: Tree,
    *,
    depth: int,
    threshold: int,
    rule: SplitRule,
    placement: Placement,
    noise: NoiseSource,
) -> Partition:
    """Draw the partition of one release.

    Args:
        tree: the last release, whose counts are the prior; below its leaves the prior is shared by measure.
        threshold: events; public.
    Privacy: `rule.epsilon` for one event. The prior is released and adds up, so no child's score is above its parent's.
    """
    nodes = np.ones(1, np.int64)
    prior = tree.counts[:1]
    above = np.zeros(0, np.int64)
    levels: list[IntArray] = []
    divided: list[BoolArray] = []
    nets: list[IntArray] = []
    for level in range(depth + 1):
        bits = np.zeros(len(nodes), np.bool_)
        starts = (nodes << (depth - level)) - (1 << depth)
        ends = starts + (1 << (depth - level))
        moved = changes.moved(starts, ends)
        if level:
            # What the proof of PrivTree rests on: nothing is negative (`split_bits`), so no child is above its parent.
            check_zero(moved[0::2] + moved[1::2] - above, "changes of the two halves of a cell add up to its own")
        if level < depth:
            may = placement.divisible(nodes, np.full(len(nodes), level))
            bits[may] = split_bits(
                prior[may],
                moved[may],
                depth=level,
                threshold=threshold,
                rule=rule,
                noise=noise.child("partition", level),
            )
        levels.append(nodes)
        divided.append(bits)
        nets.append(changes.net(starts[~bits], ends[~bits]))
        if not bits.any():
            break
        parents, above = nodes[bits], moved[bits]
        nodes = np.repeat(2 * parents, 2)
        nodes[1::2] += 1
        prior = _prior_of_children(tree, parents, prior[bits], level=level, placement=placement)
    return Partition(np.concatenate(levels), np.flatnonzero(~np.concatenate(divided)), np.concatenate(nets))


def _prior_of_children(
    tree: Tree, parents: IntArray, counts: IntArray, *, level: int, placement: Placement
) -> IntArray:
    first = placement.first_of(parents, np.full(len(parents), level), counts)
    prior = np.stack([first, counts - first], axis=1).reshape(-1)
    at, there = tree.find(2 * parents)
    at = np.minimum(at, len(tree.nodes) - 1)
    known: BoolArray = there & (tree.counts[at] != UNRELEASED)
    first = at[known]
    prior[0::2][known] = tree.counts[first]
    prior[1::2][known] = tree.counts[first + 1]
    return prior


def shared_from_above(
    own: Sequence[IntArray] | Sequence[FloatArray], splits: Sequence[IntArray], *, share: float = 0.5
) -> list[FloatArray]:
    """C_a of every node: half of its parent's C_a and C_n; of variances, a quarter.

    Args:
        own: C_n level by level, `(nodes of the level,)` each. The children of the i-th split node of a level are
            entries 2i and 2i + 1 of the next.
        splits: positions of the split nodes, level by level.
    """
    above: list[FloatArray] = [np.zeros(len(own[0]))]
    for level in range(len(own) - 1):
        split = splits[level]
        above.append(np.repeat(share * (above[level][split] + own[level][split]), 2))
    return above


def gathered_from_below(own: Sequence[Numbers], below: Sequence[Numbers], splits: Sequence[IntArray]) -> list[Numbers]:
    """C_d of every node: what its children measured and have below them. Leaves keep theirs.

    Args:
        own, splits: as above. below: C_d before, level by level; left as it is.
    """
    result = [level.copy() for level in below]
    for level in reversed(range(len(own) - 1)):
        children = (own[level + 1] + result[level + 1]).reshape(-1, 2)
        result[level][splits[level]] = children.sum(axis=1)
    return result


def project_pair(totals: IntArray, estimates: FloatArray, first_child: IntArray) -> IntArray:
    """Counts of pairs of children, nearest to their estimates among non-negative integers that add up to `totals`.

    Args:
        totals: `(cells,)` int64, not negative. estimates: `(2 * cells,)` in pairs. first_child: `(cells,)` 0 or 1, who
            takes the odd one when both children are equally near.
    Returns: `(2 * cells,)` int64.

    >>> project_pair(np.array([10, 3]), np.array([4.0, 8.0, -7.0, 2.0]), np.array([0, 0])).tolist()
    [3, 7, 0, 3]
    """
    left = 0.5 * (totals + estimates[0::2] - estimates[1::2])
    whole = np.floor(left)
    rest = left - whole
    up = (rest > 0.5) | ((rest == 0.5) & (first_child == 0))
    pairs = np.empty((len(totals), 2), np.int64)
    pairs[:, 0] = np.clip(whole + up, 0, totals).astype(np.int64)
    pairs[:, 1] = totals - pairs[:, 0]
    return pairs.reshape(-1)


def project(
    estimates: Sequence[FloatArray], splits: Sequence[IntArray], first_child: Sequence[IntArray]
) -> list[IntArray]:
    """Non-negative integer counts of a whole tree, level by level, every split node's being the sum of its children's.

    Args:
        estimates: C_a + C_n + C_d, level by level. splits: as above. first_child: per split node of each level, 0 or 1.
    """
    counts = [np.maximum(estimates[0], 0).astype(np.int64)]
    for level in range(len(estimates) - 1):
        counts.append(project_pair(counts[level][splits[level]], estimates[level + 1], first_child[level]))
    return counts


def measured(tree: Tree, partition: Partition, increments: IntArray, *, step: int) -> Tree:
    """The tree with the cells of this step's partition, and what was measured in its leaves added to their C_n.

    Args:
        increments: `(leaves,)` in the order of `partition.leaf_nodes()`, in the tree's unit.
    """
    tree = tree.with_nodes(partition.nodes)
    at = np.searchsorted(tree.nodes, partition.nodes)
    own, seen = tree.own.copy(), tree.seen.copy()
    own[at[partition.leaves]] += increments
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
    below = gathered_from_below(own, levels.cut(tree.below[at]), levels.splits)
    above = shared_from_above(own, levels.splits)
    estimates = [(a + n + d) / resolution for a, n, d in zip(above, own, below, strict=True)]
    first = [placement.first_child(nodes[i]) for nodes, i in zip(levels.nodes, levels.splits, strict=True)]
    new_below, counts = tree.below.copy(), np.full_like(tree.counts, UNRELEASED)
    new_below[at] = np.concatenate(below)
    counts[at] = np.concatenate(project(estimates, levels.splits, first))
    leaves = np.flatnonzero(~np.isin(2 * tree.nodes[at], tree.nodes[at]))
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
    below = gathered_from_below(parts, [np.zeros(len(part)) for part in parts], everywhere.splits)
    levels = Levels.of(tree.nodes[live])
    above = shared_from_above(levels.cut(own[live]), levels.splits, share=0.25)
    result[live] = np.concatenate(above) + own[live] + np.concatenate(below)[live]
    return result
