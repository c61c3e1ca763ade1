"""One source partition: records and ticks in, blocks and dead letters out. No Kafka, no clock.

Promises, whatever the batches and blocks into which the same records are cut (tests/protocol/test_ingest_machine.py):
every accepted event is in exactly one step; its step depends only on itself and the ticks before it in its partition;
no user is above the bound; blocks cover all offsets without gap or overlap; a partition goes live once, and stays so.

Life: `load` snapshots and `apply` own blocks; then `take` and `tick`, and now and then `seal` -> transaction ->
`committed`. The state runs ahead of what is committed, so after a failed transaction the machine is thrown away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter

import numpy as np

from agents.protocol.clock import usable_tick
from agents.protocol.formats.reader import SourceRecord
from agents.protocol.ingest.bounds import Bounds, BoundSpec
from agents.protocol.ingest.dead_letters import UNLETTERED, DeadLetter
from agents.protocol.ingest.events import PureFilter, reason_fields
from agents.protocol.ingest.pair_bounds import PairBounds
from agents.protocol.ingest.route import is_plain_copy, lost_records, place_of
from agents.protocol.ingest.snapshots import BucketLog, Snapshot
from agents.protocol.ingest.spec import Readings, SourceSpec
from agents.protocol.ingest.trip_bounds import TripBounds
from agents.protocol.ingest.user_table import BUCKETS
from schemas.arrays import IntArray, KeyArray, rows_by
from schemas.blocks import Block, Folded
from schemas.errors import GapError, SourceError
from schemas.events import LARGEST_JUMP, TICK_HEADER, Reason
from schemas.releases import GENESIS

Refused = Counter[tuple[str, str]]
"""(`Reason` name, field) -> records."""


def nested(refused: Refused) -> dict[str, dict[str, int]]:
    """Return reason -> field -> records.

    >>> nested(Counter({("BAD_TIME", "at"): 2}))
    {'BAD_TIME': {'at': 2}}
    """
    by_reason: dict[str, dict[str, int]] = {}
    for (reason, field), records in refused.items():
        by_reason.setdefault(reason, {})[field] = records
    return by_reason


class PendingBlock:
    """The events, charges and counts of a partition's next block.

    Attributes:
        events: keys of accepted events, and the steps that they join.
        charges: charged rows, and their charges.
        surplus: steps with their surplus (`Bounds`).
        counts: records by `Reason`.
        refused, letters: records that were refused, counted, and as dead letters.
    """

    def __init__(self) -> None:
        self.records = 0
        self.events: list[tuple[KeyArray, IntArray]] = []
        self.charges: list[tuple[KeyArray, IntArray]] = []
        self.surplus: Counter[int] = Counter()
        self.counts = np.zeros(len(Reason), np.int64)
        self.refused: Refused = Counter()
        self.letters: list[DeadLetter] = []

    def count_surplus(self, steps: IntArray) -> None:
        """Count refused events by the steps that they would have joined."""
        numbers, counts = np.unique(steps, return_counts=True)
        self.surplus.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))

    @property
    def named_counts(self) -> dict[str, int]:
        """Records by reason."""
        return {reason.name: int(self.counts[reason]) for reason in Reason if self.counts[reason]}

    @property
    def charged(self) -> tuple[KeyArray, IntArray]:
        """Charged rows, and their charges."""
        if not self.charges:
            return np.zeros((0, 3), np.uint64), np.zeros(0, np.int64)
        rows, charges = zip(*self.charges, strict=True)
        return np.concatenate(rows), np.concatenate(charges)

    def folded(self) -> dict[int, Folded]:
        """Return step -> its events."""
        if not any(len(steps) for _, steps in self.events):
            return {}
        keys, steps = map(np.concatenate, zip(*self.events, strict=True))
        if (steps == steps[0]).all():
            return {int(steps[0]): fold(keys)}
        return {step: fold(keys[rows]) for step, rows in rows_by(steps)}


def fold(keys: KeyArray) -> Folded:
    """Return `Folded.from_keys(keys)`, several times faster where a key is one word: only the values are sorted."""
    if keys.shape[1] != 1 or len(keys) == 0:
        return Folded.from_keys(keys)
    ordered = np.sort(keys[:, 0])
    new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    begins = np.flatnonzero(new)
    return Folded(ordered[begins].reshape(-1, 1), np.diff(np.append(begins, len(ordered))))


MAX_LETTERS = 2_000
_HEADERS, _TIMESTAMP = attrgetter("headers"), attrgetter("timestamp")


class PartitionIngest:
    """The ingest of one source partition; its promises are in the docstring of the module.

    Attributes:
        next_offset: source offset from which to read on.
        ticked: last step closed on this partition, -1 before any.
        live_from: first step closed by the wall clock since a replay went live here; None before, see `live`.
    """

    def __init__(self, spec: SourceSpec, partition: int, readings: Readings | None = None) -> None:
        self.spec = spec
        self.partition = partition
        self.next_offset = 0
        self.ticked = -1
        self.live_from: int | None = None
        self._bounds = None if spec.bounds is None else _bounds_of(spec.bounds)
        self._log = BucketLog(spec.stream, partition, self._bounds)
        self._sources: list[tuple[int, int | None]] = [(-1, None)] * spec.sources
        self._filter = PureFilter(spec, partition)
        self._reason_fields = reason_fields(spec.fields)
        self.decoder = spec.decoder(readings)
        self._most_records = spec.max_block_records
        self._pending = PendingBlock()
        self._uncommitted: np.ndarray | None = None
        self._has_history = False
        self._floor = 0
        self._began = 0
        self._partitions = 0
        self._digest = GENESIS  # of the last block, sealed or applied
        self._sealed = self._state
        self._totals: dict[str, dict[str, int]] = {}

    # --- restoring ------------------------------------------------------------------------------------------------

    @property
    def snapshot_keys(self) -> tuple[bytes, ...]:
        """The records of the bounds topic that `load` takes."""
        if self._bounds is None:
            return ()
        return tuple(BucketLog.key(self.spec.stream, self.partition, bucket) for bucket in range(BUCKETS))

    def load(self, snapshots: Sequence[bytes]) -> None:
        """Take in the latest record of each of `snapshot_keys`, before any block. Raises: WireError, GapError."""
        self._log.load(snapshots)

    def apply(self, block: Block, *, at: int = 0, trimmed_to: int = 0) -> None:
        """Fold one of this partition's committed blocks, in order.

        Args:
            at: its offset in the blocks topic.
            trimmed_to: offset before which blocks were deleted; if any were, the first one seen may begin anywhere.
        Raises: GapError if its source offsets do not continue where the last one stopped, and see `BucketLog`;
            ForkError if some of them are in blocks before it.
        """
        expected = block.lo if trimmed_to and not self._has_history else self.next_offset
        if block.stream == self.spec.stream and block.partition == self.partition and block.lo < expected:
            raise block.overlap_error(expected)
        if block.stream != self.spec.stream or block.partition != self.partition or block.lo != expected:
            raise GapError(
                f"stream {self.spec.stream}, source partition {self.partition}: block of {block.stream}, partition "
                f"{block.partition} covers offsets {block.lo} to {block.hi}, but {expected} comes next"
            )
        if self._has_history:
            block.check_follows(self._digest)
        self._digest = block.digest
        self._floor = block.floor
        if block.live_from is None and self.live_from is not None:
            raise GapError(f"stream {self.spec.stream}, source partition {self.partition}: a block is no longer live")
        self.live_from = block.live_from
        self._sources = list(block.sources) or self._sources
        self._has_history = True
        self._began = block.began
        self._partitions = block.partitions
        if block.totals:
            self._totals = {reason: dict(by_field) for reason, by_field in block.totals.items()}
        self._log.fold(block, at=at)
        self.next_offset, self.ticked = block.hi, block.tick
        self._sealed = self._state
        if self._bounds is not None:
            self._bounds.expire(self.ticked + 1)

    def check_restored(self, *, trimmed_to: int) -> None:
        """Check after the last block that nothing is missing.

        Raises: GapError if blocks or snapshots are missing: users would be forgotten; and see `BucketLog`.
        """
        if self._has_history:
            self._log.check_not_ahead(self.next_offset)
        if self._has_history and trimmed_to > self._floor and not self._log.from_the_first:
            raise GapError(
                f"stream {self.spec.stream}, source partition {self.partition}: blocks before offset {trimmed_to} were "
                f"deleted, but those from {self._floor} on are needed to restore the contribution bounds"
            )
        self._log.check_complete()

    def check_partitions(self) -> None:
        """Check before records are taken in. Raises: SourceError if users are placed among more partitions by now."""
        if self._partitions not in (0, self.spec.partitions):
            raise SourceError(
                f"stream {self.spec.stream}: {self.spec.topic} is read as one of {self.spec.partitions} partitions, "
                f"and its bounds are those of {self._partitions}: some were added. Restart the worker"
            )

    def spread(self, partitions: int) -> None:
        """Place users among so many partitions from the next block on, see `agents.protocol.ingest.added`."""
        self._partitions = partitions

    def begin_as(self, parent: PartitionIngest) -> Iterator[Snapshot]:
        """Begin a partition that is added, for its first block alone: as far ticked, and live, as the one whose users
        it gets, with all their bounds. Returns: what must be committed before that block.
        """
        self.ticked, self.live_from = parent.ticked, parent.live_from
        self._began = parent._began  # its first tick may be of any step where that of the parent may be
        if self.spec.role == "blocks":
            self.spread(self.spec.partitions)
        if parent._bounds is None:
            return iter(())
        self._log.bounds, self._log.copied = parent._bounds, parent.next_offset
        return self._log.copies()

    @property
    def has_history(self) -> bool:
        """Whether this partition has ever committed a block for this stream."""
        return self._has_history

    @property
    def live(self) -> bool:
        """Whether steps are closed by the wall clock here, and by no tick in a record."""
        return not self.spec.replay or self.live_from is not None

    # --- running --------------------------------------------------------------------------------------------------

    def take(self, records: Sequence[SourceRecord]) -> None:
        """Take in the next records. Offsets that are missing hold nothing: transaction markers, or compacted records.

        Raises: GapError if offsets go back.
        """
        if not records:
            return
        # Ascending offsets without a look at each: the ends are at least as far apart as there are records.
        if records[0].offset < self.next_offset or records[-1].offset - records[0].offset < len(records) - 1:
            raise GapError(
                f"stream {self.spec.stream}, source partition {self.partition}: records from offset "
                f"{records[0].offset} to {records[-1].offset}, but {self.next_offset} comes next"
            )
        records = self.decoder.unfold(records)
        reasons = np.zeros(len(records), np.uint8)
        at_fault: dict[int, str] = {}
        ticked, events = self._ticks_of_sources(records, reasons) if self._sources else self._ticks(records, reasons)
        ticks = len(records) - len(events)
        if ticks == 0:
            reasons, at_fault = self._events(records, ticked)
        elif len(events):
            rows = events.tolist()
            reasons[events], found = self._events([records[row] for row in rows], ticked[events])
            at_fault = {rows[row]: field for row, field in found.items()}
        if ticks:
            ticks -= int(np.isin(reasons, (Reason.BAD_TICK, Reason.TICK_TOO_FAR)).sum())
        self._account(records, reasons, at_fault, ticks=ticks)
        self.next_offset = records[-1].offset + 1
        self.tick(min(tick for tick, _ in self._sources) if self._sources else int(ticked[-1]))

    def tick(self, step: int) -> None:
        """Close every step up to `step`: later events join later steps. An earlier tick again does nothing."""
        if step > self.ticked:
            self.ticked = step
            if self._bounds is not None:
                self._bounds.expire(step + 1)

    def advance(self, next_offset: int) -> None:
        """Pass over what is empty up to `next_offset`: only markers of transactions, or records that were compacted
        away.
        """
        self.next_offset = max(self.next_offset, next_offset)

    def resume(self, next_offset: int) -> None:
        """Read on from here; after all blocks were applied. A stream without any begins here."""
        if not self._has_history:
            self._began = next_offset
        self.advance(next_offset)

    def lose(self, next_offset: int) -> None:
        """Count, as offsets, what was there up to `next_offset` and was deleted before it was read."""
        self._pending.counts[Reason.LOST] += max(0, next_offset - self.next_offset)
        self.advance(next_offset)

    def pass_over(self, records: int) -> None:
        """Count records as lost that came at offsets where others were read before, since they cannot be told apart."""
        self._pending.counts[Reason.LOST] += records

    @property
    def pending(self) -> int:
        """Records taken since the last seal."""
        return self._pending.records

    @property
    def room(self) -> int:
        """Records that still fit into the block; seal at 0. Dead letters make it short: each is a record of its own."""
        if len(self._pending.letters) >= MAX_LETTERS:
            return 0
        return max(0, self._most_records - self.pending)

    @property
    def changed(self) -> bool:
        """Whether `seal` would give a block."""
        return self._state != self._sealed

    @property
    def _state(self) -> tuple[int, int, int, int | None]:
        return self.next_offset, self.ticked, self._partitions, self.live_from

    def snapshots(self, budget_bytes: int, *, most: int = BUCKETS) -> list[Snapshot]:
        """Return snapshots of some buckets, to commit with the block that is sealed NEXT: call right before `seal`."""
        if not self.changed:
            return []
        return self._log.write(next_offset=self.next_offset, budget_bytes=budget_bytes, most=most)

    def seal(self) -> tuple[Block | None, list[DeadLetter]]:
        """Return all that was taken since the last seal as one block; None where there was neither record nor tick."""
        if not self.changed:
            return None, []
        gathered, self._pending = self._pending, PendingBlock()
        users, increments = gathered.charged
        counts = gathered.named_counts
        self._total(counts, gathered.refused)
        block = Block(
            stream=self.spec.stream,
            partition=self.partition,
            lo=self._sealed[0],
            hi=self.next_offset,
            tick=self.ticked,
            steps=gathered.folded(),
            surplus=dict(gathered.surplus),
            users=users,
            increments=increments,
            counts=counts,
            refused=nested(gathered.refused),
            totals={reason: dict(by_field) for reason, by_field in self._totals.items()},
            began=self._began,
            live_from=self.live_from,
            floor=self._log.floor(),
            snapshots=self._log.snapshots,
            partitions=self._partitions,
            copied=self._log.copied,
            sources=tuple(self._sources),
            after=self._digest,
        )
        self._sealed, self._digest = self._state, block.digest
        self._uncommitted = self._log.seal()
        return block, gathered.letters

    def committed(self, *, at: int) -> None:
        """Note where on the blocks topic the last sealed block is committed, before the next one is sealed."""
        if self._uncommitted is not None:
            self._log.committed(self._uncommitted, at=at)
            self._uncommitted = None
            self._has_history = True

    @property
    def users(self) -> int:
        """Users held in the bounds. Private: a count."""
        return 0 if self._bounds is None else self._bounds.users

    @property
    def bounds_bytes(self) -> int:
        return 0 if self._bounds is None else self._bounds.nbytes

    # --- inside ---------------------------------------------------------------------------------------------------

    def _ticks(self, records: Sequence[SourceRecord], reasons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the last closed step after each record, and the rows that are events; marks what is no usable tick."""
        ticked = np.full(len(records), self.ticked, np.int64)
        last = self.ticked
        headed = self._headed(records)
        if not headed:  # nearly always
            return ticked, np.arange(len(records))
        events = np.ones(len(records), bool)
        for row in headed:
            if self.spec.routed_from is not None and (lost := lost_records(records[row].headers)) is not None:
                events[row] = False
                self._pending.counts[Reason.LOST] += lost
                continue
            if not (values := [value for name, value in records[row].headers if name == TICK_HEADER]):
                continue
            events[row] = False
            tick = usable_tick(values[-1]) if self.spec.replay else None
            if tick is None or (self.live and tick.live_from is None):
                reasons[row] = Reason.BAD_TICK
            elif self.live:
                pass  # it has gone live before, and is not asked again what is over
            # The ticks before the first one that was seen here may be deleted: then it may be of any step.
            elif tick.last_replayed - last > LARGEST_JUMP and not (last < 0 and self._began > 0):
                reasons[row] = Reason.TICK_TOO_FAR
            else:
                ticked[row] = last = max(last, tick.step)
                self.live_from = tick.live_from
        if not events.all():
            np.maximum.accumulate(ticked, out=ticked)
        return ticked, np.flatnonzero(events)

    def _ticks_of_sources(self, records: Sequence[SourceRecord], reasons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Do as `_ticks` where records are copies of several source partitions, each with ticks of its own.

        An event joins a step by the ticks before it in its source partition, however copies interleave. A step is over
        here, and this partition live, once it is so in all of them.
        """
        ticked = np.full(len(records), self.ticked, np.int64)
        events = np.ones(len(records), bool)
        for row, headers in enumerate(map(_HEADERS, records)):
            if (lost := lost_records(headers)) is not None:
                events[row] = False
                self._pending.counts[Reason.LOST] += lost
            elif (place := place_of(headers)) is not None and place[0] < len(self._sources):
                source, offset = place
                ticked[row] = max(self.ticked, self._sources[source][0])
                if values := [value for name, value in headers if name == TICK_HEADER]:
                    events[row] = False
                    reason = self._tick_of(source, values[-1])
                    # Each partition has a copy of it, and one counts what it refuses.
                    reasons[row] = reason if offset % self.spec.partitions == self.partition else 0
        if self.live_from is None and all(live is not None for _, live in self._sources):
            self.live_from = max(live for _, live in self._sources if live is not None)
        return ticked, np.flatnonzero(events)

    def _tick_of(self, source: int, value: bytes | None) -> int:
        """Take in a tick of a source partition. Returns: why it is refused, 0 where it is not."""
        last, live_from = self._sources[source]
        tick = usable_tick(value)
        if tick is None or (live_from is not None and tick.live_from is None):
            return Reason.BAD_TICK
        if live_from is None:
            if tick.last_replayed - last > LARGEST_JUMP:
                return Reason.TICK_TOO_FAR
            self._sources[source] = max(last, tick.step), tick.live_from
        return 0

    def _headed(self, records: Sequence[SourceRecord]) -> list[int]:
        """Return the rows of records that may be no events, by their headers."""
        if self.spec.routed_from is not None:
            return [row for row, headers in enumerate(map(_HEADERS, records)) if not is_plain_copy(headers)]
        if not any(map(_HEADERS, records)):
            return []
        return [row for row, record in enumerate(records) if record.headers]

    def _events(self, records: Sequence[SourceRecord], ticked: np.ndarray) -> tuple[np.ndarray, dict[int, str]]:
        """Take in events. Returns: their reasons, and by row the field that the record itself names as at fault."""
        decoded, reasons, at_fault = self.decoder.decode_unfolded(records)
        rows = np.flatnonzero(reasons == 0)
        if len(rows) == 0:
            return reasons, at_fault
        timed = records if len(rows) == len(records) else [records[row] for row in rows.tolist()]
        arrivals_us = np.fromiter(map(_TIMESTAMP, timed), np.int64, len(timed)) * 1000
        seen = self._filter.run(decoded, ticked[rows], arrivals_us)
        good = np.flatnonzero(seen.reasons == 0)
        keys, steps = (seen.keys, seen.steps) if len(good) == len(rows) else (seen.keys[good], seen.steps[good])
        if self._bounds is not None and len(good):
            assert seen.hashes is not None
            found = self._bounds.accept(seen.hashes[good], steps, None if seen.parts is None else seen.parts[good])
            if found.admitted is not None:
                keys[:, self.spec.filled.admitted] = found.admitted.view(np.uint64)
            if found.surplus is not None:
                self._pending.count_surplus(steps[found.surplus])
            if not found.accepted.all():
                seen.reasons[good[~found.accepted]] = Reason.OVER_BOUND
                if found.repeated is not None:
                    seen.reasons[good[found.repeated]] = Reason.REPEATED
                keys, steps = keys[found.accepted], steps[found.accepted]
            self._log.charged(found.rows)
            self._pending.charges.append((found.rows, found.charges))
        self._pending.events.append((keys, steps))
        accepted = seen.reasons == 0
        if seen.clipped is not None:
            self._pending.counts[Reason.CLIPPED] += int((seen.clipped & accepted).sum())
        if len(doubted := seen.doubts[accepted & (seen.doubts != 0)]):  # rarely
            self._pending.counts += np.bincount(doubted, minlength=len(Reason))
        for reason, counted in seen.beside.items():
            self._pending.counts[reason] += counted
        reasons[rows] = seen.reasons
        at_fault.update((int(rows[row]), field) for row, field in seen.at_fault.items())
        return reasons, at_fault

    def _account(
        self, records: Sequence[SourceRecord], reasons: np.ndarray, at_fault: dict[int, str], *, ticks: int
    ) -> None:
        counts = np.bincount(reasons, minlength=len(Reason))
        counts[Reason.ACCEPTED] -= ticks
        pending = self._pending
        pending.records += len(records)
        pending.counts += counts
        if counts[Reason.ACCEPTED] + ticks != len(records):
            for row in np.flatnonzero(~np.isin(reasons, [int(reason) for reason in UNLETTERED])).tolist():
                reason = Reason(int(reasons[row]))
                field = self._reason_fields.get(reason) or at_fault.get(row, "")
                pending.refused[reason.name, field] += 1
                if self.spec.dead_letters:
                    pending.letters.append(DeadLetter(self.spec.stream, *self._place(records[row]), reason, field))

    def _place(self, record: SourceRecord) -> tuple[str, int, int]:
        """Return topic, partition and offset of a record as its producer knows it."""
        if self.spec.routed_from is not None and (place := place_of(record.headers)) is not None:
            return self.spec.routed_from, *place
        return self.spec.topic, self.partition, record.offset

    def _total(self, counts: dict[str, int], refused: Refused) -> None:
        split = {reason for reason, _ in refused}
        whole = {(reason, ""): records for reason, records in counts.items() if reason not in split}
        for (reason, field), records in {**refused, **whole}.items():
            totals = self._totals.setdefault(reason, {})
            totals[field] = totals.get(field, 0) + records


def _bounds_of(spec: BoundSpec) -> Bounds:
    """Return bounds of records, of trips, or of pairs."""
    if spec.pairs:
        return PairBounds(spec)
    return Bounds(spec) if spec.trip_life is None else TripBounds(spec)
