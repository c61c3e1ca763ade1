"""What held leaf counters remember: a sparse binary tree as sorted arrays, and how its leaves are divided and merged.

Nodes are heap numbers in the order of `engines.spatial.points.TreeOrder`. Memory: 80 bytes a node, never 2**depth.
Privacy: `pending` counts events that no measurement has seen and is PRIVATE; all else is released or follows from it.
    `split` and `merge` choose by public arrays and move pending counts without reading them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engines.core.noise import check_zero
from engines.core.state import arrays_of, loaded
from engines.spatial.domain.base import WHOLE, SpatialDomain, children_of, first_codes, nodes_to
from engines.spatial.points import Counts, TreeOrder, check_tree, node_depths
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.errors import EngineInputError

NEW = -1
_BELIEFS = ("rate", "rate_variance", "forecast", "doubt")


class HeldTree:
    """Mutable; the engine works on a copy. Attributes, `(nodes,)` each; inner nodes keep `measured` and `counts` only:

    nodes: int64 heap numbers. measured: int64, sum of noisy measurements of the node while it was a leaf.
    parts: int64, variance of `measured` (of a new leaf: of its share) in units of one measurement's variance.
    pending: int64, inserts minus deletes that wait for a measurement; PRIVATE.
    last: int64, step of the last measurement. since: int64, pending events arrived after this step.
    counts: int64, released count, inner nodes' being the sums of their children's; NEW where none was released yet.
    rate, rate_variance: float64, events per step and the variance of that belief.
    forecast, doubt: float64, events expected among the pending ones beyond `rate * (now - last)`, and their variance.
    """

    nodes: IntArray
    measured: IntArray
    parts: IntArray
    pending: IntArray
    last: IntArray
    since: IntArray
    counts: IntArray
    rate: FloatArray
    rate_variance: FloatArray
    forecast: FloatArray
    doubt: FloatArray

    def __init__(
        self, domain: SpatialDomain, arrays: Mapping[str, np.ndarray], *, shares: FloatArray | None = None
    ) -> None:
        self.domain, self.depth = domain, domain.depth
        for name in arrays_of(HeldTree):
            setattr(self, name, arrays[name])
        # `(nodes,)` the first child's share of each inner node; NaN where it was not asked for yet.
        self._shares = np.full(len(self.nodes), np.nan) if shares is None else shares
        self._derive()

    @staticmethod
    def full(domain: SpatialDomain, start: int) -> HeldTree:
        """Return the tree whose leaves are all cells of depth `start`, or finest cells above, empty."""
        nodes = nodes_to(domain, start)
        zeros = {name: np.zeros(len(nodes), entries) for name, entries in arrays_of(HeldTree).items()}
        return HeldTree(domain, zeros | {"nodes": nodes})

    def copy(self) -> HeldTree:
        """Return a tree that can be changed without changing this one."""
        arrays = {name: getattr(self, name).copy() for name in arrays_of(HeldTree)}
        return HeldTree(self.domain, arrays, shares=self._shares.copy())

    @staticmethod
    def of(domain: SpatialDomain, state: Mapping[str, np.ndarray]) -> HeldTree:
        """Return a stored tree. Raises: EngineInputError if arrays are missing, of different lengths, or no tree."""
        arrays = loaded(HeldTree, "tree", state)
        check_tree(arrays["nodes"])
        if int(arrays["nodes"][-1]) >> (domain.depth + 1):
            raise EngineInputError("nodes of the state's tree are deeper than the domain")
        return HeldTree(domain, arrays)

    def _derive(self) -> None:
        """Work out the structure: all of it is public.

        depths, inner, levels: see `TreeOrder`. leaves: `(leaves,)` positions of nodes without children in the order of
        the domain; starts: their first finest cells.
        """
        nodes, tree = self.nodes, TreeOrder.of(self.nodes)
        self.depths, self.inner, self.levels = tree.depths, tree.inner, tree.levels
        leaf = np.ones(len(nodes), np.bool_)
        leaf[self.inner] = False
        at = np.flatnonzero(leaf)
        starts = first_codes(nodes[at], self.depths[at], self.depth)
        order = np.argsort(starts, kind="stable")
        self.leaves: IntArray = at[order]
        self.starts: IntArray = starts[order]
        if not self.domain.halved:
            unknown = self.inner[np.isnan(self._shares[self.inner])]
            self._shares[unknown] = self.domain.left_shares(nodes[unknown], self.depths[unknown]) / WHOLE

    @property
    def shares(self) -> FloatArray | float:
        """The first child's share of each, `(inner nodes,)`."""
        return 0.5 if self.domain.halved else self._shares[self.inner]

    def room(self, at: IntArray) -> IntArray:
        """Return how often nodes can be divided, all parts alike, `(nodes,)`; more often than twice counts as twice."""
        if self.domain.halved:
            return self.depth - self.depths[at]
        nodes, depths = self.nodes[at], self.depths[at]
        once = self.domain.divisible(nodes, depths)
        both = self.domain.divisible(2 * nodes, depths + 1) & self.domain.divisible(2 * nodes + 1, depths + 1)
        return once.astype(np.int64) + (once & both)

    def released(self) -> Counts:
        """Return the released counts of the leaves, in the order of the domain."""
        return Counts(self.nodes[self.leaves], self.depths[self.leaves], self.counts[self.leaves])

    def split(self, at: IntArray, halvings: IntArray, *, now: int) -> None:
        """Divide leaves that were measured just now into 2 or 4 cells, whose rates are shares by measure.

        Args:
            at: `(cells,)` ascending positions. halvings: `(cells,)` 1 or 2; the domain must be deep enough.
        """
        if not len(at):
            return
        check_zero(self.pending[at], "a cell is divided only when all its events have been measured")
        once = self._children(self.nodes[at], self.rate[at], self.rate_variance[at])
        more = np.repeat(halvings > 1, 2)
        twice = self._children(once[0][more], once[1][more], once[2][more])
        new, rate, variance = (np.concatenate(pair) for pair in zip(once, twice, strict=True))
        rate[: len(more)][more] = variance[: len(more)][more] = 0.0
        parts = np.ones(len(new), np.int64)
        parts[: len(more)][more] = 0
        for values in (self.parts, self.rate, self.rate_variance):
            values[at] = 0
        steps = np.full(len(new), now)
        fresh = {"nodes": new, "parts": parts, "last": steps, "since": steps, "rate": rate, "rate_variance": variance}
        order = np.argsort(np.concatenate([self.nodes, new]), kind="stable")
        for name, entries in arrays_of(HeldTree).items():
            start = np.full(len(new), NEW if name == "counts" else 0, entries)
            setattr(self, name, np.concatenate([getattr(self, name), fresh.get(name, start)])[order])
        self._shares = np.concatenate([self._shares, np.full(len(new), np.nan)])[order]
        self._derive()

    def sibling_leaves(self) -> tuple[IntArray, IntArray]:
        """Return positions of the parents whose children are both leaves, and of their left children."""
        leaf = np.zeros(len(self.nodes), np.bool_)
        leaf[self.leaves] = True
        left = 2 * np.arange(len(self.inner)) + 1
        both: BoolArray = leaf[left] & leaf[left + 1]
        return self.inner[both], left[both]

    def merge(self, parents: IntArray, left: IntArray, *, now: int) -> None:
        """Make leaves of parents of two leaves: sums of everything, pending counts too. Positions, as above."""
        if not len(parents):
            return
        right = left + 1
        for child in (left, right):
            steps = now - self.last[child]
            self.forecast[child] += self.rate[child] * steps
            self.doubt[child] += np.abs(self.rate[child]) * steps + steps * steps * self.rate_variance[child]
        for values in (self.measured, self.parts, self.pending, *(getattr(self, name) for name in _BELIEFS)):
            values[parents] += values[left] + values[right]
        self.since[parents] = np.minimum(self.since[left], self.since[right])
        self.last[parents] = now
        keep = np.ones(len(self.nodes), np.bool_)
        keep[left] = keep[right] = False
        for name in arrays_of(HeldTree):
            setattr(self, name, getattr(self, name)[keep])
        self._shares = self._shares[keep]
        self._derive()

    def _children(
        self, nodes: IntArray, rate: FloatArray, variance: FloatArray
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return both children of each node, in pairs, each with its share of the rate."""
        pairs = children_of(nodes)
        if self.domain.halved:
            return pairs, np.repeat(rate / 2, 2), np.repeat(variance / 4 + rate * rate / 8, 2)
        share = self.domain.left_shares(nodes, node_depths(nodes)) / WHOLE
        shares = np.stack([share, 1 - share], axis=1).reshape(-1)
        rates = np.repeat(rate, 2) * shares
        return pairs, rates, np.repeat(variance, 2) * shares * shares + rates * rates / 2
