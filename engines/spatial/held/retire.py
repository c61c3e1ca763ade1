"""Time to live as post-processing: what was measured is taken back, linearly, as the steps it covers grow old.

A measurement of the events of steps a+1 .. b is gone after step b + ttl, and in between as if they had come evenly; in
whole numbers, so that nothing is left over. No expiry is ever measured: an insert with a ttl is one event.
Privacy: released values only, so all of it is free.
Source: ours; docs/notes/0030-held-leaf-counters.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engines.core.contract import State
from engines.core.state import reading
from engines.spatial.held.measure import MeasuredLeaves
from engines.spatial.held.tree import HeldTree
from schemas.arrays import BoolArray, IntArray
from schemas.errors import EngineInputError

_FIELDS = ("nodes", "after", "until", "increments", "parts")
_MOST = 24
"""Windows per node of the tree, on average, before neighbouring ones are joined."""


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Measurements that are still alive. Attributes, `(windows,)` int64 each:

    nodes: heap numbers of the nodes whose `measured` holds them.
    after, until: the events measured came in steps after+1 .. until.
    increments: noisy sums, as measured. parts: how many measurements it is.
    """

    nodes: IntArray
    after: IntArray
    until: IntArray
    increments: IntArray
    parts: IntArray

    @staticmethod
    def none() -> Windows:
        return Windows(*(np.zeros(0, np.int64) for _ in _FIELDS))

    def arrays(self) -> State:
        return {f"windows/{name}": getattr(self, name).copy() for name in _FIELDS}

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> Windows:
        """Raises: EngineInputError if arrays are missing or of different lengths."""
        with reading():
            parts = [np.array(arrays[f"windows/{name}"], np.int64) for name in _FIELDS]
        if len({part.shape for part in parts}) > 1 or parts[0].ndim != 1:
            raise EngineInputError("the state's measurements alive do not fit together")
        return Windows(*parts)

    def _gone(self, oldest: int) -> IntArray:
        """What of each increment is gone when steps up to `oldest` are too old."""
        length = self.until - self.after
        gone: IntArray = self.increments * np.clip(oldest - self.after, 0, length) // length
        return gone

    def with_measured(self, measured: MeasuredLeaves, tree: HeldTree, *, now: int, ttl: int) -> Windows:
        """Remember a measurement just made at `tree`, where a part that came too long ago is gone at once."""
        after = np.minimum(measured.since, now - 1)
        new = Windows(measured.nodes, after, np.full(len(after), now), measured.increments, np.ones_like(after))
        tree.measured[measured.at] -= new._gone(now - ttl)
        both = Windows(*(np.concatenate([getattr(self, name), getattr(new, name)]) for name in _FIELDS))
        return both if len(both.nodes) <= _MOST * len(tree.nodes) else both._joined(now=now, ttl=ttl)

    def _joined(self, *, now: int, ttl: int) -> Windows:
        """Join windows of one node that end in the same sixteenth of the ttl and have not begun to go."""
        order = np.lexsort((self.until, self.nodes))
        rows = self._select(order)
        period = rows.until // max(ttl // 16, 1)
        first = np.ones(len(order), np.bool_)
        first[1:] = (np.diff(rows.nodes) != 0) | (np.diff(period) != 0)
        old = rows.after < now - ttl
        first |= old
        first[1:] |= old[:-1]
        starts = np.flatnonzero(first)
        return Windows(
            rows.nodes[starts],
            np.minimum.reduceat(rows.after, starts),
            np.maximum.reduceat(rows.until, starts),
            np.add.reduceat(rows.increments, starts),
            np.add.reduceat(rows.parts, starts),
        )

    def retired(self, tree: HeldTree, *, now: int, ttl: int) -> Windows:
        """Take back from `tree` what grows too old in step `now`; once a step, before anything is measured."""
        oldest = now - ttl
        ageing = np.flatnonzero(self.after < oldest)
        due = self._select(ageing)
        at = np.searchsorted(tree.nodes, due.nodes)
        np.subtract.at(tree.measured, at, due._gone(oldest) - due._gone(oldest - 1))
        over = due.until <= oldest
        np.subtract.at(tree.parts, at[over], due.parts[over])
        tree.parts[tree.leaves] = np.maximum(tree.parts[tree.leaves], 1)
        tree.parts[tree.inner] = 0
        keep = np.ones(len(self.nodes), np.bool_)
        keep[ageing[over]] = False
        return self._select(keep)

    def moved(self, parents: IntArray) -> Windows:
        """Follow a merge: windows of the children of `parents`, ascending heap numbers, become theirs."""
        if not len(parents):
            return self
        up = self.nodes >> 1
        merged = parents[np.minimum(np.searchsorted(parents, up), len(parents) - 1)] == up
        return Windows(np.where(merged, up, self.nodes), self.after, self.until, self.increments, self.parts)

    def _select(self, which: IntArray | BoolArray) -> Windows:
        return Windows(*(getattr(self, name)[which] for name in _FIELDS))
