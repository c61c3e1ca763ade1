"""Snapshots of contribution bounds, one of 256 buckets at a time, and which old blocks they make dispensable.

The bounds of a source partition = the latest snapshot of each bucket + the charges of later blocks. A bucket that no
block has charged since its snapshot needs no block at all, however old its snapshot is. So the blocks still needed
begin with the first one that charged a bucket not written since: the floor.

The floor is never above this partition's previous block, so trimming always leaves the last block, which knows the next
offset and the tick.

Each block says up to where the snapshot of each bucket counts. So a bucket is restored only where that is proven, see
`BucketLog.check_complete`: a topic that lost records, all or some or the latest, is noticed.

A partition that was added to the source begins with a copy of another one's bounds: a snapshot of every bucket, which
counts nothing of this partition yet, and says up to where of the other one, as every later snapshot and block does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from agents.protocol.ingest.bounds import Bounds, Kind
from agents.protocol.ingest.user_table import BUCKETS, Counts, Hashes, buckets_of
from schemas import wire
from schemas.arrays import narrowed
from schemas.blocks import Block
from schemas.errors import GapError
from schemas.wire import decode, encode

CLEAN = -1
NO_COPY = -1
UNPROVEN = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One encoded bucket; `key` is what the compacted topic keeps the latest of."""

    key: bytes
    value: bytes


class BucketLog:
    """Keeps which buckets are written, and from which block on each needs the blocks.

    Args: last_block: offset of this partition's previous block in the blocks topic, None before any.
    """

    def __init__(self, stream: str, partition: int, bounds: Bounds | None) -> None:
        self.stream = stream
        self.partition = partition
        self.bounds = bounds
        self.last_block: int | None = None
        self._written_to = np.zeros(BUCKETS, np.int64)  # source offset up to which the snapshot counts
        self._needs = np.full(BUCKETS, CLEAN, np.int64)  # blocks-topic offset of the first charge after the snapshot
        self._new = np.zeros(BUCKETS, bool)  # charged since the last seal, by the block that is about to be written
        self._first: tuple[int, int] | None = None  # where the first block that was restored stands, and begins
        self._enough = np.full(BUCKETS, UNPROVEN, np.int64)  # a snapshot up to here completes the blocks restored
        self.copied: int | None = None
        """See `Block.copied`."""
        self._copies = np.full(BUCKETS, NO_COPY, np.int64)  # the same, as the snapshot of each bucket says it

    @staticmethod
    def key(stream: str, partition: int, bucket: int) -> bytes:
        return f"{stream}/{partition}/{bucket}".encode()

    def charged(self, users: np.ndarray) -> None:
        """Note the rows that were charged by the block that is being gathered."""
        self._new[buckets_of(users)] = True

    def write(self, *, next_offset: int, budget_bytes: int, most: int = BUCKETS) -> list[Snapshot]:
        """Return snapshots of some buckets, those first that hold the floor back.

        Call before sealing, and commit them with the block: they count everything below `next_offset`, that block too.
        """
        if self.bounds is None:
            return []
        waiting = np.flatnonzero(self._needs != CLEAN)
        waiting = waiting[np.argsort(self._needs[waiting], kind="stable")]
        count = min(most, max(1, budget_bytes // self.bounds.bucket_bytes()))
        snapshots = []
        for bucket in waiting[:count].tolist():
            snapshots.append(Snapshot(self.key(self.stream, self.partition, bucket), self._encode(bucket, next_offset)))
            self._written_to[bucket] = next_offset
            self._needs[bucket] = CLEAN
            self._new[bucket] = False
        return snapshots

    def copies(self) -> Iterator[Snapshot]:
        """Yield every bucket, the empty ones too, as a partition begins with it whose bounds are a copy."""
        for bucket in range(BUCKETS):
            yield Snapshot(self.key(self.stream, self.partition, bucket), self._encode(bucket, 0))

    @property
    def snapshots(self) -> np.ndarray:
        """The source offset up to which the snapshot of each bucket counts, for the block about to be written."""
        return np.zeros(0, np.int64) if self.bounds is None else self._written_to.copy()

    def floor(self) -> int:
        """Return the floor for the block about to be written."""
        if self.last_block is None:
            return 0
        needs = self._needs[self._needs != CLEAN]
        return min(self.last_block, int(needs.min(initial=self.last_block)))

    def seal(self) -> np.ndarray:
        """Return the buckets that the sealed block leaves charged; hand them to `committed`."""
        new = np.flatnonzero(self._new)
        self._new[:] = False
        return new

    def committed(self, charged: np.ndarray, *, at: int) -> None:
        """Note that the sealed block stands at offset `at` of the blocks topic."""
        self.last_block = at
        clean = charged[self._needs[charged] == CLEAN]
        self._needs[clean] = at

    def load(self, snapshots: Iterable[bytes]) -> None:
        """Take in the latest snapshot of each bucket that has one, before any block.

        Raises: WireError; GapError if one is another's.
        """
        bounds = self.bounds
        tables: dict[tuple[Kind, int], dict[int, tuple[Hashes, Counts]]] = defaultdict(dict)
        loaded: set[int] = set()
        for value in snapshots:
            header, arrays = decode(wire.Kind.BOUNDS, value)
            bucket = header["bucket"]
            of_others = (header["stream"], header["partition"]) != (self.stream, self.partition)
            if of_others or bounds is None or bucket in loaded:
                raise GapError(f"stream {self.stream}, source partition {self.partition}: a snapshot of other bounds")
            loaded.add(bucket)
            self._written_to[bucket] = header["upto"]
            self._copies[bucket] = header.get("copied", NO_COPY)
            kinds: tuple[Kind, Kind] = "period", "step"
            for kind in kinds:
                for slot in header[f"{kind}s"]:
                    tables[kind, slot][bucket] = arrays[f"{kind}_users/{slot}"], arrays[f"{kind}_counts/{slot}"]
        if bounds is not None:
            for (kind, slot), buckets in tables.items():
                bounds.fill(kind, slot, buckets)

    def fold(self, block: Block, *, at: int) -> None:
        """Take in a later block of this partition; what its snapshots already count is passed over.

        Raises: GapError if a snapshot ends within the block: it was committed without the one that belongs to it, and
            which of this one's charges it counts is not known.
        """
        if self._first is None:
            self._first = at, block.lo
        self.copied = block.copied
        if len(block.snapshots) == BUCKETS and block.floor >= self._first[0]:
            np.minimum(self._enough, block.snapshots, out=self._enough)
        if self.bounds is not None and len(block.users):
            buckets = buckets_of(block.users)
            if bool(((block.lo < self._written_to[buckets]) & (self._written_to[buckets] < block.hi)).any()):
                raise self._torn(block.hi)
            later = block.lo >= self._written_to[buckets]
            self.bounds.add(block.users[later], block.increments[later])
            self.committed(np.unique(buckets[later]), at=at)
        self.last_block = at

    @property
    def from_the_first(self) -> bool:
        """Whether the blocks restored begin with the partition's first one. What was deleted before it is of others: a
        stream may be added to a job whose old blocks are gone, and its first block cannot know its own place.
        """
        return self._first is not None and self._first[1] == 0

    def check_not_ahead(self, next_offset: int) -> None:
        """Check it after the last block. Raises: GapError if a snapshot counts records that are in no block."""
        if int(self._written_to.max()) > next_offset:
            raise self._torn(next_offset)

    def check_complete(self) -> None:
        """Check after the last block that every bucket holds all charges of its users.

        Proof, for a bucket whose snapshot counts all source offsets below `s` (0: there is none). The folded blocks
        have no gap. Where they begin at `s` or below, they hold what the snapshot does not. Else one of them says: a
        snapshot up to `m` was committed, and what was charged from `m` on is in blocks from its floor on. Where
        `m <= s` and the floor is not below the first folded block, that is all folded or in the snapshot.
        Where the partition began with a copy, a snapshot of the bucket must be there that rests on that very copy.

        Raises: GapError if it is not so for one of them: records of the bounds topic are gone.
        """
        if self.bounds is None:
            return
        if self._first is None:
            if self._written_to.any() or (self._copies != NO_COPY).any():
                raise self._lost("snapshots of its contribution bounds are there, and no block is")
            return
        if self.copied is not None and (self._copies != self.copied).any():
            raise self._lost(
                "the bounds topic has lost bounds that were copied when partitions were added to the source"
            )
        if bool(((self._written_to < self._first[1]) & (self._written_to < self._enough)).any()):
            raise self._lost(
                "the bounds topic has lost snapshots (deleted and made again, cut by retention, or put back from an "
                "older copy), and the blocks they stood for are deleted"
            )

    def _lost(self, what: str) -> GapError:
        return GapError(
            f"stream {self.stream}, source partition {self.partition}: {what}. Going on would forget who is at the "
            "bound, and count users again. Restore the private topics as they were, all of one moment; else start the "
            "stream anew under another name: what was released counts for the same people (explain --earlier)"
        )

    def _torn(self, end: int) -> GapError:
        return GapError(
            f"stream {self.stream}, source partition {self.partition}: a snapshot of the contribution bounds was "
            f"committed without its block (blocks reach offset {end}), so who is at the bound is not known. Start the "
            "stream anew under another name; what was released counts for the same people (explain --earlier)"
        )

    def _encode(self, bucket: int, upto: int) -> bytes:
        assert self.bounds is not None
        header = {"stream": self.stream, "partition": self.partition, "bucket": bucket, "upto": upto}
        header |= {} if self.copied is None else {"copied": self.copied}
        arrays: dict[str, np.ndarray] = {}
        slots: dict[Kind, list[int]] = {"period": [], "step": []}
        for kind, slot, table in self.bounds.tables():
            users, counts = table.bucket(bucket)
            if len(users) == 0:  # as of most of many small tables
                continue
            arrays[f"{kind}_users/{slot}"] = users
            arrays[f"{kind}_counts/{slot}"] = narrowed(counts, np.uint32)
            slots[kind].append(slot)
        return encode(wire.Kind.BOUNDS, {**header, "periods": slots["period"], "steps": slots["step"]}, arrays)
