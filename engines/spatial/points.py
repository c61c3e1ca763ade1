"""Synthetic points as a public function of released leaf counts, and the difference of two releases.

The k-th point of a cell (k = 0, 1, ...) goes to the child that `Placement.child_of` says, by the children's measure,
and is the next one there; in a finest cell its position is a fixed function of cell and index. So the first n points of
a cell, seen in a descendant, are the first points of that descendant: on the common refinement of two partitions two
releases differ by differences of prefixes. Points stay put when leaves split or merge, the fewest possible come and go,
and no state holds a point.

Post-processing of released counts: costs no privacy. Cost: leaves, plus changed points times depth as they are read.
Nothing here is noise and nothing protects anybody: `Placement` is a fixed public function of the stream's name.
Source: ours; docs/notes/0005-points-are-a-function-of-counts.md. Words are splitmix64 ([steele2014]) under a key from
SHA-256; positions are Kronecker sequences (the R2 sequence).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from engines.core.many_records import Change, FixedIds, MadeWhenRead, ManyRecords, RecordColumns
from engines.core.words import GAMMA, fractions, mixed
from engines.spatial.domain.base import SpatialDomain, first_shares
from schemas.arrays import BoolArray, FloatArray, IntArray, WordArray
from schemas.errors import EngineInputError

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
# 2**64 / p and 2**64 / p**2 with p the plastic number: the multiples fill the unit square evenly.
_R2_X, _R2_Y = np.uint64(0xC13FA9A902A6328F), np.uint64(0x91E10DA5C79E7B1D)


@dataclass(frozen=True, slots=True)
class Placement:
    """Public random-looking constants of one stream's cells.

    Args:
        name: of the stream; two streams place their points differently.
        domain: whose cells share their points by measure; without one, all cells halve them.
    """

    name: str
    domain: SpatialDomain | None = None
    _key: WordArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha256(b"privstream/points/1\0" + self.name.encode()).digest()
        object.__setattr__(self, "_key", np.frombuffer(digest[:16], "<u8").astype(np.uint64))

    def words(self, nodes: IntArray) -> WordArray:
        """Return one uniform-looking word per heap number, `(nodes,)`."""
        return mixed(nodes.astype(np.uint64) * GAMMA + self._key[:1])

    def first_child(self, nodes: IntArray) -> IntArray:
        """Return which child takes points 0, 2, 4, ... of a cell of equal halves, or an odd one: `(nodes,)` 0 or 1."""
        return (self.words(nodes) & np.uint64(1)).astype(np.int64)

    def divisible(self, nodes: IntArray, depths: IntArray) -> BoolArray:
        """Tell which cells above the finest level have children, `(nodes,)`."""
        if self.domain is None or self.domain.halved:
            return np.ones(len(nodes), np.bool_)
        return self.domain.divisible(nodes, depths)

    def first_of(self, nodes: IntArray, depths: IntArray, counts: IntArray) -> IntArray:
        """Return how many of a cell's first `counts` points go to its first child, `(nodes,)`: see `first_shares`."""
        if self.domain is None or self.domain.halved:
            return (counts + 1 - self.first_child(nodes)) >> 1
        return self._shared(nodes, depths, counts)[0]

    def child_of(self, nodes: IntArray, depths: IntArray, indices: IntArray) -> tuple[IntArray, IntArray]:
        """Return the child, 0 or 1, that a cell's point of this index goes to, and its index there; `(nodes,)` each."""
        if self.domain is None or self.domain.halved:
            return (indices & 1) ^ self.first_child(nodes), indices >> 1
        before, after = self._shared(nodes, depths, indices)
        second = 1 - (after - before)
        return second, np.where(second == 1, indices - before, before)

    def _shared(self, nodes: IntArray, depths: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
        """Count how many of the first `counts`, and of one more, go to the first child."""
        assert self.domain is not None
        return first_shares(counts, self.domain.left_shares(nodes, depths), self.words(nodes))

    def fractions(self, nodes: IntArray) -> FloatArray:
        """Return `(nodes,)` in [0, 1), fixed per cell: they round fractional counts so that the average is right."""
        return fractions(self.words(nodes))

    def positions(self, nodes: IntArray, indices: IntArray) -> tuple[FloatArray, FloatArray]:
        """Place the points with these indices in their finest cells: x and y, `(points,)` each, in [0, 1)."""
        start = self.words(nodes)
        turns = indices.astype(np.uint64)
        x = start + turns * _R2_X
        y = mixed(start ^ self._key[1:]) + turns * _R2_Y
        return fractions(x), fractions(y)


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Released integer counts on a partition of the domain into leaves.

    Attributes:
        nodes: `(leaves,)` int64 heap numbers, in the order of the domain.
        depths: `(leaves,)` int64.
        counts: `(leaves,)` int64, not negative.
    """

    nodes: IntArray
    depths: IntArray
    counts: IntArray

    @staticmethod
    def nothing() -> Counts:
        """Return the whole domain as one empty leaf."""
        return Counts(np.ones(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64))

    @staticmethod
    def of(nodes: IntArray, depths: IntArray, counts: IntArray, *, depth: int) -> Counts:
        """Sort leaves into the order of the domain."""
        order = np.argsort(nodes << (depth - depths), kind="stable")
        return Counts(nodes[order], depths[order], counts[order])

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def finest(self, placement: Placement) -> Counts:
        """Return the counts of finest cells: those in which the points lie."""
        nodes, depths, counts = self.nodes, self.depths, self.counts
        while (inner := placement.divisible(nodes, depths)).any():
            at, level, many = nodes[inner], depths[inner] + 1, counts[inner]
            first = placement.first_of(at, level - 1, many)
            nodes = np.concatenate([nodes[~inner], 2 * at, 2 * at + 1])
            depths = np.concatenate([depths[~inner], level, level])
            counts = np.concatenate([counts[~inner], first, many - first])
        return Counts(nodes, depths, counts)


def node_depths(nodes: IntArray) -> IntArray:
    """Return the depths of heap numbers below 2**53, `(nodes,)` int64."""
    return np.frexp(nodes.astype(np.float64))[1].astype(np.int64) - 1


@dataclass(frozen=True, slots=True, eq=False)
class TreeOrder:
    """Where the nodes of a sparse binary tree are, which are in ascending order, siblings together, parents present.

    So the children of the i-th inner node are the nodes 2i + 1 and 2i + 2, and each level is one slice.

    Attributes:
        depths: `(nodes,)`. inner: `(inner nodes,)` positions of nodes with children.
        levels: for each level but the last, the range of its inner nodes in `inner`.
    """

    depths: IntArray
    inner: IntArray
    levels: list[tuple[int, int]]

    @staticmethod
    def of(nodes: IntArray) -> TreeOrder:
        depths, inner = node_depths(nodes), np.searchsorted(nodes, nodes[1::2] >> 1)
        bounds = np.searchsorted(depths[inner], np.arange(int(depths[-1]) + 1)).tolist()
        return TreeOrder(depths, inner, list(pairwise(bounds)))

    def down(self) -> list[tuple[IntArray, slice]]:
        """Return positions of the inner nodes of each level from the root down, and of their children, in pairs."""
        return [(self.inner[first:end], slice(2 * first + 1, 2 * end + 1)) for first, end in self.levels]


def check_tree(nodes: IntArray) -> None:
    """Refuse what is not the nodes of a tree, see `TreeOrder`. Raises: EngineInputError."""
    if nodes.ndim != 1 or len(nodes) % 2 == 0 or nodes[0] != 1 or (np.diff(nodes) <= 0).any():
        raise EngineInputError("the state holds no tree: its nodes do not ascend from the root")
    if (nodes[1::2] % 2).any() or (nodes[2::2] != nodes[1::2] + 1).any() or not np.isin(nodes >> 1, nodes)[1:].all():
        raise EngineInputError("nodes of the state's tree lack a sibling or a parent")


@dataclass(frozen=True, slots=True, eq=False)
class Prefixes:
    """Points first .. last - 1 of some cells, cell by cell. Memory: cells, however many points.

    Attributes: `(cells,)` int64 each.
        nodes: heap numbers, of any depth. last: see above. ends: how many points this cell and all before have.
    """

    nodes: IntArray
    last: IntArray
    ends: IntArray
    placement: Placement
    depth: int

    @staticmethod
    def of(placement: Placement, nodes: IntArray, first: IntArray, last: IntArray, *, depth: int) -> Prefixes:
        """Make the points of cells of a domain of this depth."""
        return Prefixes(nodes, last, np.cumsum(last - first), placement, depth)

    @property
    def total(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def finest(self, rows: range) -> tuple[IntArray, IntArray]:
        """Return finest cells of some of the points, as heap numbers, and indices there; `(rows,)` int64 each."""
        place = np.arange(rows.start, rows.stop, rows.step)
        cell = np.searchsorted(self.ends, place, side="right")
        indices = self.last[cell] - (self.ends[cell] - place)
        return _descend(self.placement, self.nodes[cell], indices, depth=self.depth)


class PointRecords(ManyRecords):
    """Synthetic records of points, made when they are read."""

    def __init__(self, domain: SpatialDomain, points: Prefixes) -> None:
        self._domain, self._points = domain, points

    def __len__(self) -> int:
        return self._points.total

    def part(self, rows: range) -> RecordColumns:
        nodes, indices = self._points.finest(rows)
        columns = self._domain.placed(self._points.placement, nodes, indices)
        return RecordColumns(
            _texts(nodes, indices, depth=self._domain.depth),
            dict(zip(self._domain.record_fields, columns, strict=True)),
        )

    @property
    def nodes(self) -> IntArray:
        """Heap numbers of the finest cells that they lie in, `(points,)` int64."""
        return self._points.finest(range(len(self)))[0]

    def coordinates(self) -> tuple[np.ndarray, ...]:
        """Return the records' fields, column by column: of all points at once."""
        columns = self._domain.placed(self._points.placement, *self._points.finest(range(len(self))))
        return tuple(np.array(column) for column in columns)


class PointIds(MadeWhenRead[str]):
    """Ids of points, made when they are read: finest cell in hexadecimal, "-", index in hexadecimal."""

    def __init__(self, points: Prefixes) -> None:
        self._points = points

    def __len__(self) -> int:
        return self._points.total

    def made(self, rows: range) -> FixedIds:
        return _texts(*self._points.finest(rows), depth=self._points.depth)


def _texts(nodes: IntArray, indices: IntArray, *, depth: int) -> FixedIds:
    """Write ids as `PointIds` says, digit by digit, all of them at once."""
    digits, codes = -(-depth // 4), nodes - (1 << depth)
    most = max(-(-int(indices.max(initial=0)).bit_length() // 4), 1)
    sizes = np.ones(len(indices), np.int64)
    for more in range(1, most):
        sizes += indices >> 4 * more > 0
    cells = np.zeros((len(nodes), digits + 1 + most), np.uint8)
    for place in range(digits):
        cells[:, place] = _HEX[(codes >> 4 * (digits - 1 - place)) & 15]
    cells[:, digits] = ord("-")
    for place in range(most):
        shift = 4 * (sizes - 1 - place)
        digit = _HEX[(indices >> np.maximum(shift, 0)) & 15]
        cells[:, digits + 1 + place] = np.where(shift >= 0, digit, 0)
    return FixedIds(cells.view(f"S{cells.shape[1]}").ravel())


def prefix_in(
    placement: Placement, nodes: IntArray, depths: IntArray, counts: IntArray, *, cells: IntArray, cell_depths: IntArray
) -> IntArray:
    """Count those of the first `counts` points of `nodes` that lie in `cells`, at or below them; `(nodes,)` each."""
    counts = counts.copy()
    rows = np.flatnonzero(depths < cell_depths)
    level, at = depths[rows], nodes[rows]
    while rows.size:
        bit = (cells[rows] >> (cell_depths[rows] - level - 1)) & 1
        first = placement.first_of(at, level, counts[rows])
        counts[rows] = np.where(bit == 0, first, counts[rows] - first)
        at, level = 2 * at + bit, level + 1
        more = level < cell_depths[rows]
        rows, at, level = rows[more], at[more], level[more]
    return counts


def _descend(placement: Placement, nodes: IntArray, indices: IntArray, *, depth: int) -> tuple[IntArray, IntArray]:
    """Return the finest cells of points of any cells, and their indices there."""
    nodes, indices = nodes.copy(), indices.copy()
    low = np.int64(1) << depth
    rows = np.flatnonzero(nodes < low)
    at, k = nodes[rows], indices[rows]
    level = node_depths(at)
    while rows.size:
        second, k = placement.child_of(at, level, k)
        at, level = 2 * at + second, level + 1
        done = at >= low
        if done.any():
            nodes[rows[done]], indices[rows[done]] = at[done], k[done]
            rows, at, k, level = rows[~done], at[~done], k[~done], level[~done]
    return nodes, indices


def difference(
    domain: SpatialDomain, placement: Placement, *, before: Counts, after: Counts
) -> tuple[PointRecords, PointIds]:
    """Return the points that appear and the ids that go when released counts change from `before` to `after`.

    >>> from engines.spatial.domain.box import BoxDomain
    >>> box, nothing = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth=2), Counts.nothing()
    >>> two = Counts(np.array([2, 3]), np.array([1, 1]), np.array([1, 0]))
    >>> added, removed = difference(box, Placement("docs"), before=nothing, after=two)
    >>> list(added), list(removed)
    ([SyntheticRecord(id='1-0', fields={'x': 0.1995, 'y': 0.7014}, step=None, weight=None)], [])
    """
    starts = before.nodes << (domain.depth - before.depths)
    starts_after = after.nodes << (domain.depth - after.depths)
    union = np.union1d(starts, starts_after)
    i = np.searchsorted(starts, union, side="right") - 1
    j = np.searchsorted(starts_after, union, side="right") - 1
    depths = np.maximum(before.depths[i], after.depths[j])
    cells = union >> (domain.depth - depths)
    was = prefix_in(placement, before.nodes[i], before.depths[i], before.counts[i], cells=cells, cell_depths=depths)
    now = prefix_in(placement, after.nodes[j], after.depths[j], after.counts[j], cells=cells, cell_depths=depths)
    grown, shrunk = now > was, now < was
    new = Prefixes.of(placement, cells[grown], was[grown], now[grown], depth=domain.depth)
    old = Prefixes.of(placement, cells[shrunk], now[shrunk], was[shrunk], depth=domain.depth)
    return PointRecords(domain, new), PointIds(old)


@dataclass(frozen=True, slots=True, eq=False)
class CellRecords(ManyRecords):
    """One synthetic record for each of some cells, made when it is read.

    It lies at the first point of its cell, which never moves, and its id is the cell's: the heap number in hexadecimal.

    Attributes:
        nodes: `(cells,)` int64 heap numbers. weights: `(cells,)` int64, how many points each cell has.
    """

    domain: SpatialDomain
    placement: Placement
    nodes: IntArray
    weights: IntArray

    def __len__(self) -> int:
        return len(self.nodes)

    def part(self, rows: range) -> RecordColumns:
        at = slice(rows.start, rows.stop, rows.step)
        nodes, first = self.nodes[at], np.zeros(len(self.nodes[at]), np.int64)
        columns = self.domain.placed(self.placement, *_descend(self.placement, nodes, first, depth=self.domain.depth))
        return RecordColumns(
            cell_ids(nodes),
            dict(zip(self.domain.record_fields, columns, strict=True)),
            weights=self.weights[at].tolist(),
        )


def cell_ids(nodes: IntArray) -> list[str]:
    """Return the ids of weighted records of cells."""
    return [f"{node:x}" for node in nodes.tolist()]


def _weights(domain: SpatialDomain, placement: Placement, counts: Counts) -> Counts:
    """Return the cells that have a weighted record: leaves, or what is below them where records name finest cells."""
    cells = counts.finest(placement) if domain.named else counts
    (there,) = np.nonzero(cells.counts)
    there = there[np.argsort(cells.nodes[there])]
    return Counts(cells.nodes[there], cells.depths[there], cells.counts[there])


def change(domain: SpatialDomain, placement: Placement, *, before: Counts, after: Counts, weighted: bool) -> Change:
    """Return how the synthetic records change with released counts: points, or weighted records of cells.

    >>> from engines.spatial.domain.box import BoxDomain
    >>> box, nothing = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth=2), Counts.nothing()
    >>> five = Counts(np.array([2, 3]), np.array([1, 1]), np.array([5, 0]))
    >>> found = change(box, Placement("docs"), before=nothing, after=five, weighted=True)
    >>> list(found.added), found.total, found.weight
    ([SyntheticRecord(id='2', fields={'x': 0.1995, 'y': 0.7014}, step=None, weight=5)], 1, 5)
    """
    if not weighted:
        added, removed = difference(domain, placement, before=before, after=after)
        return Change(added, removed, after.total, None)
    old, new = (_weights(domain, placement, counts) for counts in (before, after))
    at = np.minimum(np.searchsorted(old.nodes, new.nodes), max(len(old.nodes) - 1, 0))
    same = (
        (old.nodes[at] == new.nodes) & (old.counts[at] == new.counts)
        if len(old.nodes)
        else np.zeros(len(new.nodes), np.bool_)
    )
    records = CellRecords(domain, placement, new.nodes[~same], new.counts[~same])
    gone = np.setdiff1d(old.nodes, new.nodes, assume_unique=True)
    return Change(records, cell_ids(gone), len(new.nodes), new.total)
