"""A block: what one range of source offsets of one partition amounts to. Private.

One record carries the folded events, the contribution bounds' increments and the ticks of `[lo, hi)`, so that they are
atomic. Blocks of a source partition cover its offsets without gap or overlap: a folded block cannot be trimmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schemas.arrays import IntArray, KeyArray
from schemas.errors import ForkError
from schemas.wire import Kind, decode, encode

Tally = Mapping[str, Mapping[str, int]]
"""`Reason` name -> configured field of the raw events that it is about ("" for the record as a whole) -> records."""


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """A multiset of encoded events: distinct keys in ascending order, each with a count.

    Attributes:
        keys: `(rows, words)` uint64; what a key means is the domain's affair (spatial: cell and operation).
        counts: `(rows,)` int64, positive.
    """

    keys: KeyArray
    counts: IntArray

    @staticmethod
    def empty(words: int) -> Folded:
        return Folded(np.zeros((0, words), np.uint64), np.zeros(0, np.int64))

    @staticmethod
    def of(keys: KeyArray, counts: IntArray | None = None) -> Folded:
        """Sort, merge equal keys and add up their counts (1 each when absent). `keys` is `(rows, words)`."""
        if counts is None:
            counts = np.ones(len(keys), np.int64)
        if len(keys) == 0:
            return Folded(keys.reshape(0, keys.shape[1]), counts[:0])
        order = np.argsort(keys[:, 0], kind="stable") if keys.shape[1] == 1 else np.lexsort(keys.T[::-1])
        ordered = keys[order]
        new = np.empty(len(ordered), bool)
        new[0] = True
        np.any(ordered[1:] != ordered[:-1], axis=1, out=new[1:])
        starts = np.flatnonzero(new)
        return Folded(ordered[starts], np.add.reduceat(counts[order], starts).astype(np.int64))

    def merge(self, *others: Folded) -> Folded:
        parts = [part for part in (self, *others) if len(part.counts)]
        if len(parts) == 0:
            return self
        if len(parts) == 1:
            return parts[0]
        return Folded.of(np.concatenate([p.keys for p in parts]), np.concatenate([p.counts for p in parts]))

    @property
    def total(self) -> int:
        return int(self.counts.sum())


_ALWAYS = ("stream", "partition", "lo", "hi", "tick", "counts", "floor")
_ABSENT = {"refused": {}, "totals": {}, "began": 0, "partitions": 0, "copied": None, "live_from": None}
"""What the header of a block leaves out where it is so."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One block, see the module. Offsets are of the source partition; `hi` is the next offset to read.

    Attributes:
        tick: last step closed on this partition by records before `hi` (or by the wall clock at `hi`); -1 before any.
        steps: step -> its accepted events in this block.
        surplus: step -> events refused by a bound that are counted for it; empty where none are.
        users: `(rows, 3)` uint64: two words of the keyed hash, and the period (0 when the bound never renews); under
            `max_per_step` the step instead.
        increments: `(rows,)` int64, charges of that user in this block.
        counts: `Reason` name -> records, including `ACCEPTED`.
        floor: offset of the blocks topic from which this partition's bounds can be restored (older blocks may go).
        snapshots: `(256,)` int64: for each bucket of the bounds the source offset up to which its latest snapshot
            counts, that of this block's transaction included; 0 where none was ever needed. `(0,)` where nothing is
            bounded.
        refused: those of `counts` that were refused, by field too.
        totals: all that was ever counted on this partition, up to `hi`; for operators, who see blocks come and go.
        began: source offset at which the stream began to read this partition; what was before it had been deleted.
        partitions: of the source, among which users have been placed since partitions were added to it; 0: none were.
        copied: of a partition that was added, offset of the one whose users came here, up to which the bounds count
            that it began with; None where they began empty.
        live_from: first step that is closed by the wall clock and not by a replay, once the partition has gone live;
            None before, and for ever where the clock is on the wall from the start.
    """

    stream: str
    partition: int
    lo: int
    hi: int
    tick: int
    steps: Mapping[int, Folded]
    users: KeyArray = field(default_factory=lambda: np.zeros((0, 3), np.uint64))
    increments: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: Mapping[str, int] = field(default_factory=dict)
    floor: int = 0
    snapshots: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    refused: Tally = field(default_factory=dict)
    totals: Tally = field(default_factory=dict)
    began: int = 0
    live_from: int | None = None
    surplus: Mapping[int, int] = field(default_factory=dict)
    partitions: int = 0
    copied: int | None = None

    def encode(self) -> bytes:
        steps = sorted(self.steps)
        header = {name: getattr(self, name) for name in _ALWAYS} | {"steps": steps}
        header |= {name: value for name, absent in _ABSENT.items() if (value := getattr(self, name)) != absent}
        arrays: dict[str, np.ndarray] = {"users": self.users, "increments": self.increments}
        if len(self.snapshots):
            arrays["snapshots"] = self.snapshots
        if self.surplus:
            numbers = np.array(sorted(self.surplus.items()), np.int64)
            arrays["surplus_steps"], arrays["surplus_counts"] = numbers[:, 0].copy(), numbers[:, 1].copy()
        for step in steps:
            arrays[f"keys/{step}"] = self.steps[step].keys
            arrays[f"counts/{step}"] = self.steps[step].counts
        return encode(Kind.BLOCK, header, arrays)

    def taken_in_twice(self, expected: int) -> ForkError:
        """Return what to raise where source offsets of this block below `expected` are in blocks before it."""
        return ForkError(
            f"stream {self.stream}, source partition {self.partition}: a block covers offsets {self.lo} to {self.hi}, "
            f"and those below {expected} are in blocks before it. Another process writes blocks of this stream: a copy "
            "of the job, a mirror of its topics, or a copy that was put back"
        )

    @staticmethod
    def decode(data: bytes) -> Block:
        """Return the block that bytes hold. Raises: WireError."""
        header, arrays = decode(Kind.BLOCK, data)
        steps = {step: Folded(arrays[f"keys/{step}"], arrays[f"counts/{step}"]) for step in header.pop("steps")}
        more: dict[str, Any] = {name: arrays[name] for name in ("users", "increments", "snapshots") if name in arrays}
        if "surplus_steps" in arrays:
            pairs = zip(arrays["surplus_steps"].tolist(), arrays["surplus_counts"].tolist(), strict=True)
            more["surplus"] = dict(pairs)
        return Block(**header, **more, steps=steps)
