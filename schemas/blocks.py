"""A block: the aggregate of one range of source offsets of one partition. Private.

One record carries the folded events, the increments of the contribution bounds and the ticks of `[lo, hi)`, so that
they are committed atomically. The blocks of a source partition cover its offsets without gap or overlap, because a
folded block cannot be trimmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import orjson

from schemas.arrays import IntArray, KeyArray
from schemas.errors import ForkError, GapError
from schemas.releases import GENESIS, sha256
from schemas.wire import Kind, decode, encode

Tally = Mapping[str, Mapping[str, int]]
"""Number of records by `Reason` name and by the configured field at fault ("" for the record as a whole)."""


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """A multiset of encoded events: distinct keys in ascending order, each with a count.

    Attributes:
        keys: `(rows, words)` uint64; the domain defines what a key means (spatial: cell and operation).
        counts: `(rows,)` int64, positive.
    """

    keys: KeyArray
    counts: IntArray

    @staticmethod
    def empty(words: int) -> Folded:
        """Return no events, with keys of so many words."""
        return Folded(np.zeros((0, words), np.uint64), np.zeros(0, np.int64))

    @staticmethod
    def from_keys(keys: KeyArray, counts: IntArray | None = None) -> Folded:
        """Return the multiset of these keys, in any order.

        Args:
            keys: `(rows, words)`; equal keys are merged.
            counts: `(rows,)`, added up for equal keys; None means 1 for each key.
        """
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
        """Return the union of the multisets: counts of equal keys are added up."""
        parts = [part for part in (self, *others) if len(part.counts)]
        if len(parts) == 0:
            return self
        if len(parts) == 1:
            return parts[0]
        return Folded.from_keys(np.concatenate([p.keys for p in parts]), np.concatenate([p.counts for p in parts]))

    @property
    def total(self) -> int:
        """Number of events."""
        return int(self.counts.sum())


_ALWAYS = ("stream", "partition", "lo", "hi", "tick", "counts", "floor")
_ABSENT = {"refused": {}, "totals": {}, "began": 0, "partitions": 0, "copied": None, "live_from": None, "after": None}
"""Default values, which the header of a block leaves out."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One block; see the module. Offsets are those of the source partition, and `hi` is the next offset to read.

    Attributes:
        tick: last step closed on this partition by records before `hi` (or by the wall clock at `hi`); -1 before any.
        steps: accepted events of this block, by step.
        surplus: number of events that a bound refused and that are counted all the same, by step; empty if there are
            none.
        users: `(rows, 3)` uint64: two words of the keyed hash of a user, and the period (0 if the bound never renews);
            under `max_per_step` the step instead of the period.
        increments: `(rows,)` int64: charges of that user in this block.
        counts: number of records by `Reason` name, `ACCEPTED` included.
        floor: offset of the blocks topic from which the bounds of this partition can be restored; older blocks may be
            deleted.
        snapshots: `(256,)` int64: for each bucket of the bounds the source offset up to which its latest snapshot
            counts, a snapshot in the transaction of this block included; 0 if the bucket never needed one. `(0,)` if
            nothing is bounded.
        refused: the refused records among `counts`, also by field.
        totals: everything that was ever counted on this partition, up to `hi`; for operators, because blocks are
            deleted.
        began: source offset at which the stream began to read this partition; earlier records had been deleted.
        partitions: number of source partitions over which users have been placed since partitions were added; 0 if
            none were added.
        copied: of an added partition: offset, on the partition from which its users moved, up to which the initial
            bounds count; None if the bounds began empty.
        live_from: first step that the wall clock and not a replay closes, once the partition has gone live; None
            before that, and always None for a stream that runs by the wall clock from its start.
        sources: of a partition with copies of several source partitions that are replayed: the last step that each has
            closed there, and its `live_from`.
        after: digest of the partition's block before it, `GENESIS` of the first. Ingest always says it; None: whoever
            made the block does not know.
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
    sources: tuple[tuple[int, int | None], ...] = ()
    after: str | None = None

    def encode(self) -> bytes:
        """Return the block as the value of a record."""
        return encode(Kind.BLOCK, *self._content())

    @property
    def digest(self) -> str:
        """SHA-256 of what it says, `after` included: of all blocks of its partition up to it."""
        header, arrays = self._content()
        named = ((f"{name} {a.dtype} {a.shape}".encode(), a.tobytes()) for name, a in sorted(arrays.items()))
        return sha256(orjson.dumps(header, option=orjson.OPT_SORT_KEYS), *chain.from_iterable(named))

    def _content(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        steps = sorted(self.steps)
        header = {name: getattr(self, name) for name in _ALWAYS} | {"steps": steps}
        header |= {name: value for name, absent in _ABSENT.items() if (value := getattr(self, name)) != absent}
        if self.sources:
            header["sources"] = list(map(list, self.sources))
        arrays: dict[str, np.ndarray] = {"users": self.users, "increments": self.increments}
        if len(self.snapshots):
            arrays["snapshots"] = self.snapshots
        if self.surplus:
            numbers = np.array(sorted(self.surplus.items()), np.int64)
            arrays["surplus_steps"], arrays["surplus_counts"] = numbers[:, 0].copy(), numbers[:, 1].copy()
        for step in steps:
            arrays[f"keys/{step}"] = self.steps[step].keys
            arrays[f"counts/{step}"] = self.steps[step].counts
        return header, arrays

    def check_follows(self, digest: str) -> None:
        """Check that the partition's block before it is the one with this digest.

        A partition may begin several times, as one that is added does where the command is given again: as long as no
        offset is in a block, nobody is charged.
        Raises: GapError: offsets may fit all the same, if blocks and what goes with them were put back.
        """
        begins = self.after == GENESIS and self.lo == 0
        if not begins and self.after not in (None, digest):
            raise GapError(
                f"stream {self.stream}, source partition {self.partition}: a block from offset {self.lo} on follows "
                "another block than the one that was taken in last. Blocks, contribution bounds and offsets of the "
                "group are of an earlier moment than the answers, and have forgotten whom these have counted"
            )

    def overlap_error(self, expected: int) -> ForkError:
        """Return the error to raise if earlier blocks already contain source offsets of this block below `expected`."""
        return ForkError(
            f"stream {self.stream}, source partition {self.partition}: a block covers offsets {self.lo} to {self.hi}, "
            f"and offsets below {expected} are in earlier blocks. Another process writes blocks of this stream: a copy "
            "of the job, a mirror of its topics, or a copy that was put back"
        )

    @staticmethod
    def decode(data: bytes) -> Block:
        """Return the block in the value of a record. Raises: WireError."""
        header, arrays = decode(Kind.BLOCK, data)
        steps = {step: Folded(arrays[f"keys/{step}"], arrays[f"counts/{step}"]) for step in header.pop("steps")}
        rest: dict[str, Any] = {name: arrays[name] for name in ("users", "increments", "snapshots") if name in arrays}
        if "surplus_steps" in arrays:
            pairs = zip(arrays["surplus_steps"].tolist(), arrays["surplus_counts"].tolist(), strict=True)
            rest["surplus"] = dict(pairs)
        if "sources" in header:
            header["sources"] = tuple((tick, live_from) for tick, live_from in header["sources"])
        return Block(**header, **rest, steps=steps)
