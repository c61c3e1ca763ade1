"""One descent from the root: the private partition of a step, level by level, by `split_bits`.

Cost: nodes visited times the logarithm of events, whatever the history. A node's count is a difference of two positions
in the sorted cell codes. `Changes` gives counts of public ranges of cells and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.core.noise import NoiseSource, aggregate, check_zero
from engines.spatial.placement import Placement
from engines.spatial.split import SplitRule, split_bits
from engines.spatial.tree import UNRELEASED, Tree
from schemas.arrays import BoolArray, IntArray
from schemas.blocks import Folded


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """The private events of one release, sorted by cell.

    Attributes:
        codes: `(rows,)` int64 finest cells, ascending.
        moves: `(rows + 1,)` int64, how many events, inserted or deleted, lie before a row.
        gains: `(rows + 1,)` int64, inserts minus deletes before a row.
    """

    codes: IntArray
    moves: IntArray
    gains: IntArray

    @staticmethod
    @aggregate
    def of(events: Folded) -> Changes:
        keys = events.keys[:, 0]
        signs = 1 - 2 * (keys & np.uint64(1)).astype(np.int64)
        moves, gains = np.zeros(len(keys) + 1, np.int64), np.zeros(len(keys) + 1, np.int64)
        np.cumsum(events.counts, out=moves[1:])
        np.cumsum(events.counts * signs, out=gains[1:])
        return Changes((keys >> np.uint64(1)).astype(np.int64), moves, gains)

    @aggregate
    def net(self, starts: IntArray, ends: IntArray) -> IntArray:
        """Inserts minus deletes of the finest cells from `starts[i]` to before `ends[i]`, `(ranges,)` int64; private.

        One event moves it by one in the ranges that hold its cell.
        """
        return self.gains[np.searchsorted(self.codes, ends)] - self.gains[np.searchsorted(self.codes, starts)]

    @aggregate
    def moved(self, starts: IntArray, ends: IntArray) -> IntArray:
        """Inserts plus deletes of ranges of cells, as `net` has them; private."""
        return self.moves[np.searchsorted(self.codes, ends)] - self.moves[np.searchsorted(self.codes, starts)]

    @aggregate
    def net_between(self, edges: IntArray) -> IntArray:
        """`net` of the ranges between ascending edges, `(edges - 1,)`; private."""
        gains: IntArray = np.diff(self.gains[np.searchsorted(self.codes, edges)])
        return gains


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """The visited tree, level by level; public but for `net`.

    Attributes:
        nodes: heap numbers of each level, ascending.
        splits: positions of the split nodes in each level; their children, in pairs, are the next level.
        leaves: positions of the leaves in each level.
        net: `(leaves,)` int64, inserts minus deletes of each leaf, in the order of the levels; PRIVATE.
    """

    nodes: list[IntArray]
    splits: list[IntArray]
    leaves: list[IntArray]
    net: IntArray

    def leaf_nodes(self) -> tuple[IntArray, IntArray]:
        """Heap numbers and depths of the leaves, `(leaves,)` each, in the order of `net`."""
        nodes = np.concatenate([level[leaf] for level, leaf in zip(self.nodes, self.leaves, strict=True)])
        return nodes, np.repeat(np.arange(len(self.leaves)), [len(leaf) for leaf in self.leaves])

    def flat_leaves(self) -> IntArray:
        """Positions of the leaves among all visited nodes, level after level."""
        offset, flat = 0, []
        for level, leaf in zip(self.nodes, self.leaves, strict=True):
            flat.append(leaf + offset)
            offset += len(level)
        return np.concatenate(flat)


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
    splits: list[IntArray] = []
    leaves: list[IntArray] = []
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
        split, leaf = np.flatnonzero(bits), np.flatnonzero(~bits)
        levels.append(nodes)
        splits.append(split)
        leaves.append(leaf)
        nets.append(changes.net(starts[leaf], ends[leaf]))
        if not len(split):
            break
        parents, above = nodes[split], moved[split]
        nodes = np.repeat(2 * parents, 2)
        nodes[1::2] += 1
        prior = _prior_of_children(tree, parents, prior[split], level=level, placement=placement)
    return Partition(levels, splits, leaves, np.concatenate(nets))


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
