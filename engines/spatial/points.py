"""Synthetic points as a public function of released leaf counts, and the difference of two releases.

The k-th point of a cell (k = 0, 1, ...) goes to the child that `Placement.child_of` says, by the children's measure,
and is the next one there; in a finest cell its position is a fixed function of cell and index. So the first n points of
a cell, seen in a descendant, are the first points of that descendant: on the common refinement of two partitions two
releases differ by differences of prefixes. Points stay put when leaves split or merge, the fewest possible come and go,
and no state holds a point.

Post-processing of released counts: costs no privacy. Cost: leaves, plus changed points times depth as they are read.
Source: ours; docs/notes/0005-points-are-a-function-of-counts.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import eq
from typing import overload

import numpy as np

from engines.core.many_records import PART, ManyRecords, RecordColumns
from engines.spatial.domain import SpatialDomain
from engines.spatial.placement import Placement
from schemas.arrays import IntArray


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
        """The whole domain as one empty leaf."""
        return Counts(np.ones(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64))

    @staticmethod
    def of(nodes: IntArray, depths: IntArray, counts: IntArray, *, depth: int) -> Counts:
        """Sort leaves into the order of the domain."""
        order = np.argsort(nodes << (depth - depths), kind="stable")
        return Counts(nodes[order], depths[order], counts[order])

    @property
    def total(self) -> int:
        return int(self.counts.sum())


def node_depths(nodes: IntArray) -> IntArray:
    """`(nodes,)` int64 depths of heap numbers below 2**53."""
    return np.frexp(nodes.astype(np.float64))[1].astype(np.int64) - 1


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
        """Of cells of a domain of this depth."""
        return Prefixes(nodes, last, np.cumsum(last - first), placement, depth)

    @property
    def total(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def finest(self, rows: range) -> tuple[IntArray, IntArray]:
        """Finest cells of some of the points, as heap numbers, and indices there; `(rows,)` int64 each."""
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
        """See `ManyRecords`."""
        nodes, indices = self._points.finest(rows)
        columns = self._domain.placed(self._points.placement, nodes, indices)
        return RecordColumns(
            _texts(nodes, indices, depth=self._domain.depth),
            dict(zip(self._domain.record_fields, columns, strict=True)),
        )

    @property
    def nodes(self) -> IntArray:
        """`(points,)` int64 heap numbers of the finest cells that they lie in."""
        return self._points.finest(range(len(self)))[0]

    def coordinates(self) -> tuple[np.ndarray, ...]:
        """The records' fields, column by column: of all points at once."""
        columns = self._domain.placed(self._points.placement, *self._points.finest(range(len(self))))
        return tuple(np.array(column) for column in columns)


class PointIds(Sequence[str]):
    """Ids of points, made when they are read: finest cell in hexadecimal, "-", index in hexadecimal."""

    def __init__(self, points: Prefixes, rows: range | None = None) -> None:
        self._points = points
        self._rows = range(points.total) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self._rows), PART):
            rows = self._rows[start : start + PART]
            yield from _texts(*self._points.finest(rows), depth=self._points.depth)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> PointIds: ...

    def __getitem__(self, index: int | slice) -> str | PointIds:
        if isinstance(index, slice):
            return PointIds(self._points, self._rows[index])
        at = self._rows[index]
        return next(iter(PointIds(self._points, range(at, at + 1))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]


def _texts(nodes: IntArray, indices: IntArray, *, depth: int) -> list[str]:
    form = f"%0{-(-depth // 4)}x-%x"
    return [form % pair for pair in zip((nodes - (1 << depth)).tolist(), indices.tolist(), strict=True)]


def prefix_in(
    placement: Placement, nodes: IntArray, depths: IntArray, counts: IntArray, *, cells: IntArray, cell_depths: IntArray
) -> IntArray:
    """How many of the first `counts` points of `nodes` lie in `cells`, below them or themselves; `(nodes,)` each."""
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
    """Finest cell and index there of points of any cells."""
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
    """Points that appear and ids that go when released counts change from `before` to `after`.

    >>> from engines.spatial.domain import BoxDomain
    >>> box, nothing = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth=2), Counts.nothing()
    >>> two = Counts(np.array([2, 3]), np.array([1, 1]), np.array([1, 0]))
    >>> added, removed = difference(box, Placement("docs"), before=nothing, after=two)
    >>> list(added), list(removed)
    ([SyntheticRecord(id='1-0', fields={'x': 0.1995, 'y': 0.7014}, step=None)], [])
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
