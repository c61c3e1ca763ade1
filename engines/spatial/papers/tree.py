"""The tree of PHDStream: the partition of a step, what is remembered of releases, and consistent counts.

`descend` draws the private partition of a step in one descent from the root, level by level, by `split_bits`. Cost:
nodes visited times the logarithm of events, whatever the history; a node's count is a difference of two positions in
the sorted cell codes.
`Tree` is everything PHDStream remembers of its releases: a sparse tree of public counters, in the order of
`engines.spatial.points.TreeOrder`. It holds released values only.
`counted` makes noisy counts scattered over the tree non-negative integers that add up. Consistent extension: a node's
estimate is C_a + C_n + C_d: its share of what was measured at its ancestors, what was measured at itself, what was
measured below. Projection: from the root down, the children's estimates are moved by equal amounts until they add up to
their parent's count and none is negative (Euclidean projection onto the simplex), rounded to integers.
Source: [kumar2024], equations 3.8 and 3.9 with C_a(root) = 0; the projection is ours. Post-processing of released
values costs no privacy, so floats are allowed there; they are exact below 2**53 / 2**depth events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from engines.core.noise import NoiseSource, check_zero
from engines.core.state import loaded
from engines.spatial.changes import Changes
from engines.spatial.domain.base import children_of, first_codes
from engines.spatial.points import Counts, Placement, TreeOrder, check_tree, node_depths
from engines.spatial.split import SplitRule, split_bits
from schemas.arrays import BoolArray, FloatArray, IntArray

UNRELEASED = -1

Numbers = TypeVar("Numbers", IntArray, FloatArray)


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

    @staticmethod
    def of(state: Mapping[str, np.ndarray]) -> Tree:
        """Return a stored tree. Raises: EngineInputError if arrays are missing, of different lengths, or no tree."""
        tree = Tree(**loaded(Tree, "tree", state))
        check_tree(tree.nodes)
        return tree

    def find(self, nodes: IntArray) -> tuple[IntArray, BoolArray]:
        """Return positions of nodes, or where they would be inserted, and whether they are there; `(nodes,)` each."""
        at = np.searchsorted(self.nodes, nodes)
        there = self.nodes[np.minimum(at, len(self.nodes) - 1)] == nodes
        return at, there


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
        """Return heap numbers and depths of the leaves, `(leaves,)` each, in the order of `net`."""
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
        starts = first_codes(nodes, level, depth)
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
        nodes = children_of(parents)
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


def shared_from_above(own: IntArray | FloatArray, order: TreeOrder, *, share: float = 0.5) -> FloatArray:
    """Return C_a of every node, `(nodes,)`: half of its parent's C_a and C_n; of variances a quarter. `own` is C_n."""
    above = np.zeros(len(own))
    for at, children in order.down():
        above[children] = np.repeat(share * (above[at] + own[at]), 2)
    return above


def gathered_from_below(own: Numbers, below: Numbers, order: TreeOrder) -> Numbers:
    """Return C_d of every node, `(nodes,)`: what was measured at its children and below. Leaves keep `below`."""
    result = below.copy()
    for at, children in reversed(order.down()):
        result[at] = (own[children] + result[children]).reshape(-1, 2).sum(axis=1)
    return result


def project_pair(totals: IntArray, estimates: FloatArray, first_child: IntArray) -> IntArray:
    """Return counts of pairs of children: non-negative integers that add up to `totals`, nearest to their estimates.

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


def project(estimates: FloatArray, first_child: IntArray, order: TreeOrder) -> IntArray:
    """Return non-negative integer counts of a tree, `(nodes,)`, every inner node's being the sum of its children's.

    Args:
        estimates: C_a + C_n + C_d. first_child: `(nodes,)` 0 or 1, see `project_pair`.
    """
    counts = np.zeros(len(estimates), np.int64)
    counts[0] = int(max(estimates[0], 0.0))
    for at, children in order.down():
        counts[children] = project_pair(counts[at], estimates[children], first_child[at])
    return counts


def measured(tree: Tree, partition: Partition, increments: IntArray, *, step: int) -> Tree:
    """Return the tree with the cells of this step's partition, and what was measured in leaves added to their C_n.

    Args:
        increments: `(leaves,)` in the order of `partition.leaf_nodes()`, in the tree's unit.
    """
    at, there = tree.find(partition.nodes)
    nodes = np.insert(tree.nodes, at[~there], partition.nodes[~there])
    starts = ((tree.own, 0), (tree.below, 0), (tree.counts, UNRELEASED), (tree.seen, -1))
    own, below, counts, seen = (np.insert(values, at[~there], start) for values, start in starts)
    at = np.searchsorted(nodes, partition.nodes)
    own[at[partition.leaves]] += increments
    seen[at] = step
    return Tree(nodes, own, below, counts, seen)


def counted(
    tree: Tree, live: BoolArray, variances: FloatArray, *, placement: Placement, depth: int, resolution: int
) -> tuple[Tree, Counts, FloatArray]:
    """Extend consistently and project on some of a tree's cells.

    Args:
        live: `(nodes,)` True where a cell is part of this release: a tree itself, from the root.
        variances: `(nodes,)` of C_n, in squared events. depth: of the domain.
        resolution: C_n and C_d are in events / resolution.
    Returns: the tree with consistent counts on live cells, the next step's prior, and `UNRELEASED` elsewhere; the
        released counts of the leaves among them; and `(nodes,)` variances of the noise in the live cells' estimates.
    """
    at = np.flatnonzero(live)
    nodes, own, order = tree.nodes[at], tree.own[at], TreeOrder.of(tree.nodes[at])
    below = gathered_from_below(own, tree.below[at], order)
    estimates = (shared_from_above(own, order) + own + below) / resolution
    new_below, counts = tree.below.copy(), np.full_like(tree.counts, UNRELEASED)
    new_below[at] = below
    counts[at] = project(estimates, placement.first_child(nodes), order)
    # The papers release the leaves' own estimates: floor plus a Bernoulli of the fraction, fixed per cell.
    leaves = np.setdiff1d(np.arange(len(at)), order.inner)
    raw = np.maximum(estimates[leaves], 0.0)
    whole = np.floor(raw)
    released = (whole + (placement.fractions(nodes[leaves]) < raw - whole)).astype(np.int64)
    # Below a cell lies all that was ever measured there, above it the live cells.
    spread = gathered_from_below(variances, np.zeros(len(variances)), TreeOrder.of(tree.nodes))
    found = np.zeros(len(variances))
    found[at] = shared_from_above(variances[at], order, share=0.25) + variances[at] + spread[at]
    return (
        Tree(tree.nodes, tree.own, new_below, counts, tree.seen),
        Counts.of(nodes[leaves], order.depths[leaves], released, depth=depth),
        found,
    )
