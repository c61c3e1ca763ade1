"""Merging the blocks of one stream, and knowing when a step is complete.

A step closes when every source partition has ticked it; counts and event times never close one, because then one
person's event could move another's. The blocks topic gives one order for all partitions, so a step always closes at
the same block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from schemas.blocks import Block, Folded
from schemas.errors import GapError, SourceError
from schemas.releases import GENESIS


class BlockMerge:
    """Keeps pending events by step, and how far each source partition has come.

    Attributes:
        position: offset of the blocks topic from which to read on; earlier blocks are already in here.
        ticks: `(partitions,)` last closed step of each source partition, -1 before any.
        live_from: `(partitions,)` first step closed by the wall clock where a replay went live; None elsewhere.
        digests: `(partitions,)` of the last block of each.
    """

    def __init__(self, stream: str, source_partitions: int, words: int) -> None:
        self.stream = stream
        self.words = words
        self.position = 0
        self.next_offsets = [0] * source_partitions
        self.ticks = [-1] * source_partitions
        self.floors: list[int | None] = [None] * source_partitions
        self.live_from: list[int | None] = [None] * source_partitions
        self.digests = [GENESIS] * source_partitions
        self._pending: dict[int, Folded] = {}
        self._surplus: Counter[int] = Counter()

    def fold(self, offset: int, block: Block) -> None:
        """Take in the block at `offset` of the blocks topic; one already taken in is passed over.

        Raises: GapError if the source offsets of the block do not continue where its partition stopped, or it follows
            another block than the last one; ForkError if some of them were in a block before: somebody else writes
            here; SourceError if the partition is one that is being added.
        """
        if offset < self.position:
            return
        if block.stream != self.stream or block.partition < 0:
            raise GapError(f"stream {self.stream}: block of source partition {block.partition} does not belong here")
        if block.partition >= len(self.ticks):
            raise SourceError(
                f"stream {self.stream}: there is a block of source partition {block.partition}, and the stream is read "
                f"as one of {len(self.ticks)}: partitions are being added to its source, or were while this worker "
                "ran. Stop all workers, run privstream topics CONFIG --add-partitions again, which completes it, and "
                "start them"
            )
        expected = self.next_offsets[block.partition]
        if block.lo < expected and block.hi >= block.lo:
            raise block.overlap_error(expected)
        if block.lo != expected or block.hi < block.lo:
            raise GapError(
                f"stream {self.stream}, source partition {block.partition}: block covers offsets "
                f"{block.lo} to {block.hi}, but {expected} comes next"
            )
        block.check_follows(self.digests[block.partition])
        closed = self.ticks[block.partition]
        if block.tick < closed or any(step <= closed for step in (*block.steps, *block.surplus)):
            raise GapError(f"stream {self.stream}, source partition {block.partition}: a block reopens a closed step")
        if self.live_from[block.partition] not in (None, block.live_from):
            raise GapError(
                f"stream {self.stream}, source partition {block.partition}: a block is not live as those before it"
            )
        self.live_from[block.partition] = block.live_from
        self.next_offsets[block.partition] = block.hi
        self.digests[block.partition] = block.digest
        self.ticks[block.partition] = block.tick
        self.floors[block.partition] = block.floor
        self.position = offset + 1
        for step, events in block.steps.items():
            pending = self._pending.get(step)
            self._pending[step] = events if pending is None else pending.merge(events)
        self._surplus.update(block.surplus)

    @property
    def closed_to(self) -> int:
        """The last step that no further event can join, -1 before any."""
        return min(self.ticks)

    def closed(self, step: int) -> bool:
        """Return whether no further event can join `step`."""
        return self.closed_to >= step

    def events(self, step: int) -> int:
        """Return how many events a step has by now. Private."""
        pending = self._pending.get(step)
        return 0 if pending is None else int(pending.counts.sum())

    def take(self, step: int) -> Folded:
        """Return the events of a closed step, which leave the merge."""
        return self._pending.pop(step, None) or Folded.empty(self.words)

    def take_surplus(self, step: int) -> int:
        """Return the surplus of a closed step (`agents.protocol.ingest.bounds`), which leaves the merge. Private."""
        return self._surplus.pop(step, 0)

    @property
    def floor(self) -> int:
        """The offset below which blocks are needed neither here nor to restore any partition's contribution bounds."""
        return min([self.position, *(floor for floor in self.floors if floor is not None)])

    def progress(self) -> dict[str, Any]:
        """Return the JSON-able part of the state."""
        live = {} if set(self.live_from) == {None} else {"live_from": list(self.live_from)}
        return {
            **live,
            "position": self.position,
            "next_offsets": list(self.next_offsets),
            "ticks": list(self.ticks),
            "floors": list(self.floors),
            "digests": list(self.digests),
            "pending": sorted(self._pending),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the array part of the state: pending events of steps that are still open. Private."""
        arrays: dict[str, np.ndarray] = {}
        for step in sorted(self._pending):
            arrays[f"pending/{step}/keys"] = self._pending[step].keys
            arrays[f"pending/{step}/counts"] = self._pending[step].counts
        if self._surplus:
            arrays["pending/surplus"] = np.array(sorted(self._surplus.items()), np.int64)
        return arrays

    def restore(self, progress: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Go on where `progress` and `arrays` were taken. Partitions that were added since have closed nothing: no step
        ends before their first blocks are folded, which say what the partitions had closed whose users they got.

        Raises: GapError if there were more source partitions.
        """
        added = len(self.ticks) - len(progress["ticks"])
        if added < 0:
            raise GapError(
                f"stream {self.stream}: stored state knows {len(progress['ticks'])} source partitions, "
                f"the topic has {len(self.ticks)}; a source topic loses none"
            )
        self.position = progress["position"]
        self.next_offsets = [*progress["next_offsets"], *[0] * added]
        self.ticks = [*progress["ticks"], *[-1] * added]
        self.floors = [*progress["floors"], *[None] * added]
        self.digests = [*progress["digests"], *[GENESIS] * added]
        self.live_from = [*progress.get("live_from", [None] * len(progress["ticks"])), *[None] * added]
        self._pending = {
            step: Folded(arrays[f"pending/{step}/keys"], arrays[f"pending/{step}/counts"])
            for step in progress["pending"]
        }
        surplus = arrays.get("pending/surplus", np.zeros((0, 2), np.int64))
        self._surplus = Counter(dict(surplus.tolist()))
