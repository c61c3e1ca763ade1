"""The task of one source partition: its fenced producer, its state machines, one transaction after the other.

A transaction holds a block for each stream that reads the partition, their bound snapshots and dead letters, and the
source offset: all of it or nothing. While it runs, the machines already take the next records.

Where the job routes the users of a stream itself, a source partition has a router of it among its machines: in place of
a block, the transaction has copies for the routed topic, and how far they reach.

A stream whose machine fails is left out; the others go on, and beside their offset each transaction says up to where
the blocks of every stream reach (`agents.protocol.ingest.places`), so that a stream that was left out for a while goes
on where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from agents.kafka.clients import close_client, fenced_producer
from agents.kafka.lifecycle.stops import Part, Stops, StreamStoppedError, alone
from agents.protocol.formats.contract import SchemaRef
from agents.protocol.ingest.dead_letters import DeadLetter
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.places import NEW, OTHERS, Places
from agents.protocol.ingest.route import PartitionRoute
from agents.protocol.ingest.spec import Readings, SourceSpec
from agents.protocol.partitioner import bounds_partition, home_partition
from agents.worker.failpoints import failpoint
from agents.worker.ingest.counters import IngestCounters, SealedBlock, SealedHop
from agents.worker.ingest.records import OFFSET, bytes_of, from_offset, value_bytes
from agents.worker.metrics import FENCES
from agents.worker.trimming import Deletions
from schemas.config import Config
from schemas.topics import Topics

log = logging.getLogger(__name__)

Machine = PartitionIngest | PartitionRoute


class AwaitedTicks:
    """Ends of steps that have their place in a source partition, and wait for the records before it: for each machine.

    The wall clock places them for streams that are replayed, too: whether they hold there is decided where the records
    before them are read, by whether the partition has gone live among these. So the place of each is where the
    partition ended when the step was over, however far behind reading was.
    """

    def __init__(self, machines: Sequence[PartitionIngest]) -> None:
        self._waiting: dict[PartitionIngest, deque[tuple[int, int]]] = {machine: deque() for machine in machines}
        self._void: dict[PartitionIngest, int] = {}

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    def leave_out(self, machine: PartitionIngest) -> None:
        del self._waiting[machine]

    def asked(self, machine: PartitionIngest) -> int:
        """Return the last step whose end has its place; one that was void is not placed again before it goes live."""
        waiting = self._waiting[machine]
        void = -1 if machine.live else self._void.get(machine, -1)
        return max(machine.ticked, void, waiting[-1][0] if waiting else -1)

    def put(self, machine: PartitionIngest, step: int, offset: int) -> None:
        """Note that steps up to `step` are over, and that the partition ended at `offset` when that was noticed."""
        if machine not in self._waiting:
            return  # left out meanwhile
        waiting = self._waiting[machine]
        if step > self.asked(machine):
            waiting.append((step, max(offset, waiting[-1][1]) if waiting else offset))

    def places(self) -> Iterator[int]:
        """Yield the next place of each machine that waits for one."""
        return (waiting[0][1] for waiting in self._waiting.values() if waiting)

    def reached(self, machine: PartitionIngest, offset: int) -> Iterator[int]:
        """Yield the steps that end now that the machine has taken in all records below `offset`."""
        waiting = self._waiting[machine]
        while waiting and offset >= waiting[0][1]:
            step, _ = waiting.popleft()
            if machine.live:
                yield step
            else:
                self._void[machine] = step


LEAST_SNAPSHOT_BYTES = 4 << 10
MOST_SNAPSHOTS = 32
LEAST_SLICE = 1_000  # below, the cost of a slice is no longer that of its records
LEAST_SLICE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """Sizes and times of ingest; none of them changes a result, only when it comes.

    Attributes:
        poll_records: records asked of Kafka at once.
        slice_records: records worked on without giving way to anything else, of all machines of a source together: a
            slice must stay far below 0.5 s, or heartbeats of everything in this process are late.
        slice_bytes: the same of what they take: one may be a megabyte, and a thousandth of that in a batch.
        flush_s, flush_share_s, flush_most_s: how long a record waits for its block to fill: at least, for each
            partition that the worker has, and at most. Many quiet partitions cost it transactions alone. The end of a
            step waits for none of these, and what is to be routed for the first alone: nobody knows its step yet.
    """

    poll_records: int = 20_000
    slice_records: int = 20_000
    slice_bytes: int = 4 << 20
    flush_s: float = 1.0
    flush_share_s: float = 0.1
    flush_most_s: float = 30.0
    poll_timeout_ms: int = 200

    def flush_wait_s(self, partitions: int) -> float:
        """Return how long a record waits for its block to fill where the worker has so many partitions."""
        return max(self.flush_s, min(self.flush_share_s * partitions, self.flush_most_s))


class SourceTask:
    """The task of one source partition, as the module says.

    Life: `fence`, the machines are restored, then `take` and `reached`, each followed by `flush_if_due`; `close` once.
    """

    def __init__(
        self,
        config: Config,
        source: TopicPartition,
        specs: Sequence[SourceSpec],
        *,
        options: IngestOptions,
        counters: IngestCounters,
        stops: Stops | None = None,
        deletions: Deletions | None = None,
    ) -> None:
        self._stops = Stops.of(spec.stream for spec in specs) if stops is None else stops
        self.source = source
        self._readings: Readings = {}
        self.machines: list[Machine] = [
            (PartitionRoute if spec.role == "route" else PartitionIngest)(spec, source.partition, self._readings)
            for spec in specs
        ]
        self.position = 0
        """Source offset up to which records were read; a machine that was ahead of the others passes some over."""
        self.places = Places()
        """Up to where the committed blocks of each stream reach, of those too that have no machine here."""
        self.wanted: frozenset[SchemaRef] = frozenset()
        """Schemas without which the next record cannot be read."""
        self.absent: frozenset[SchemaRef] = frozenset()
        """Those of which the registry has said that there is none, since records below `_asked_to` were there."""
        self._asked_to = 0
        self.closed = False
        self.fenced_s = 0.0
        """When it was, by a clock that does not jump."""
        self.awaited = AwaitedTicks(self.clocked)
        routed = any(spec.routed_from is not None for spec in specs)
        self._deletions = deletions if routed else None
        self.committed = 0
        """Source offset up to which everything is in committed blocks."""
        self._config = config
        self._topics = config.topics
        self._options = options
        self._counters = counters
        self._producer: AIOKafkaProducer | None = None
        self._running: asyncio.Task[None] | None = None
        self._oldest_s: float | None = None  # when the oldest record that is not yet sealed came
        self._ticked = False
        self._overfull = False
        self.explained = 0
        """Source offset up to which it is known why offsets hold no record."""
        self.went_back_from = 0
        """Where this stood when the source was last found to have lost its tail."""
        self._cut_at: int | None = None  # where the source ended then: records behind it are new

    def __str__(self) -> str:
        return f"{self.source.topic}-{self.source.partition}"

    @property
    def producer(self) -> AIOKafkaProducer:
        assert self._producer is not None, "fenced first"
        return self._producer

    @property
    def replayed(self) -> bool:
        """Whether steps are closed by ticks among the records."""
        return not all(machine.live for machine in self.clocked)

    @property
    def clocked(self) -> list[PartitionIngest]:
        """The machines that close steps."""
        return [machine for machine in self.machines if isinstance(machine, PartitionIngest)]

    async def fence(self) -> None:
        """End whatever a former task has under way; from now on nobody else can commit for this partition."""
        transactional_id = f"{self._config.job.name}-ingest-{self.source.topic}-{self.source.partition}"
        self._producer = await fenced_producer(self._config.kafka, transactional_id)
        self.fenced_s = time.monotonic()
        FENCES.labels("ingest").inc()

    @property
    def next_offset(self) -> int:
        """The offset that is committed: what is below it is in blocks of the streams that are furthest."""
        return max((machine.next_offset for machine in self.machines), default=self.position)

    @contextlib.contextmanager
    def serving(self, machine: Machine) -> Iterator[None]:
        """Do work of one machine, from which nothing is sent: where it fails, its stream is left out here.

        Raises: the error, if nothing is left to do in this job.
        """
        try:
            with alone(machine.spec.stream):
                yield
        except StreamStoppedError as stopped:
            self.leave_out(machine)
            part = part_of(machine.spec)
            self._stops.add(
                machine.spec.stream, part, None if part == "audit" else self.source.partition, stopped.cause
            )

    def restored(self, committed: int | None, left_out: Sequence[Machine], *, begin: int = 0) -> None:
        """Begin where the machines that are left go on, with the group at `committed`.

        Of one that failed just now, or stopped before, the place is what the group says, never what its blocks do. Of
        one that never had a block it is noted where it begins: where new ones do now, so that it misses nothing later.
        """
        noted = bool(self.places)
        if committed is not None and not noted:
            self.places[OTHERS] = committed
        for machine in left_out:
            name = machine.spec.name
            if OTHERS in self.places and (machine.has_history or not noted):
                self.places.setdefault(name, self.places[OTHERS])
            elif not machine.has_history and name not in self.places:
                self.places.setdefault(NEW + name, begin)
        ends = {machine.spec.name: machine.next_offset for machine in self.machines if machine.has_history}
        begins = {NEW + machine.spec.name: machine.next_offset for machine in self.machines if not machine.has_history}
        self.places = Places({**self.places.with_blocks(ends), **begins})
        self.committed = self.next_offset

    def leave_out_stopped(self) -> None:
        """Leave out what has stopped elsewhere in this process, or here before a rebalance."""
        for machine in list(self.machines):
            stream, part = machine.spec.stream, part_of(machine.spec)
            if any(self._stops.has(stream, part, at) for at in (None, self.source.partition)):
                self.leave_out(machine)

    def leave_out(self, machine: Machine) -> None:
        """Do no more for this machine's stream on this partition. Its place stays that of its last committed block."""
        if machine in self.machines:
            self.machines.remove(machine)
            if isinstance(machine, PartitionIngest):
                self.awaited.leave_out(machine)

    async def take(self, records: Sequence[Any]) -> None:
        """Take in fetched records, giving way to other work between slices."""
        records = self._unseen(records)
        position = 0
        while position < len(records) and not self.closed and self.machines:
            count = min(self._slice_records(), *(machine.room for machine in self.machines))
            if count == 0:
                await self.flush()
                continue
            count = self._up_to_tick(records, position, self._up_to_bytes(records, position, count))
            count = self._readable(records, position, count)
            if count == 0:
                return
            taken = records[position : position + count]
            for machine in list(self.machines):
                before = machine.ticked
                with self.serving(machine):
                    machine.take(from_offset(taken, machine.next_offset))
                self._ticked |= before != machine.ticked
            for reading in self._readings.values():
                reading.forget()
            if taken:
                self.position = taken[-1].offset + 1
            if self._oldest_s is None:
                self._oldest_s = time.monotonic()
            position += count
            if position < len(records):
                await asyncio.sleep(0)

    def _slice_records(self) -> int:
        """Return how many records a slice has: fewer where many machines take in each slice one after the other before
        anything else has its turn.
        """
        most = self._options.slice_records
        return max(most // self._weight, min(most, LEAST_SLICE))

    @property
    def _weight(self) -> int:
        """About what a record costs all machines together, beside one machine and a record of JSON."""
        return sum(machine.decoder.weight for machine in self.machines)

    def _up_to_bytes(self, records: Sequence[Any], position: int, count: int) -> int:
        """Return how many of the next records have no more bytes than a slice may; one at least."""
        most = self._options.slice_bytes
        most = max(most // self._weight, min(most, LEAST_SLICE_BYTES))
        part = records[position : position + count]
        # Of a record of JSON nothing is read but the value: each look takes a hundredth of the time for one.
        size_of = value_bytes if self._weight == len(self.machines) else bytes_of
        if size_of(part) <= most:
            return count
        return max(1, bisect_right(list(itertools.accumulate(size_of([each]) for each in part)), most))

    def _up_to_tick(self, records: Sequence[Any], position: int, count: int) -> int:
        """Make the ticks that stand before the next record, and stop before the next one. A tick stands at its offset
        however Kafka cuts the fetch, which depends on the size of other people's records.
        """
        self.reached(records[position].offset)
        for place in self.awaited.places():
            end = min(position + count, len(records))
            count = bisect_left(records, place, position, end, key=OFFSET) - position
        return count

    def _readable(self, records: Sequence[Any], position: int, count: int) -> int:
        """Return how many of the next records can be read with the schemas that are known; notes those that are not."""
        if records[position].offset >= self._asked_to:
            self.absent, self._asked_to = frozenset(), records[-1].offset + 1
        end = min(position + count, len(records))
        count = bisect_left(records, self._asked_to, position, end, key=OFFSET) - position
        part = records[position : position + count]
        found = [machine.decoder.missing(part, self.absent) for machine in self.machines]
        self.wanted = frozenset().union(*(refs for _, refs in found))
        return min((fit for fit, _ in found), default=count)

    def _unseen(self, records: Sequence[Any]) -> Sequence[Any]:
        """Return records that are not taken in yet. New ones at offsets that were read before are counted as lost."""
        if self._cut_at is not None:
            new = from_offset(records, self._cut_at)
            for machine in self.machines:
                machine.pass_over(len(new) - len(from_offset(new, machine.next_offset)))
        return from_offset(records, self.position)

    def went_back(self, end: int) -> None:
        """Note that the source was read up to `position` and has lost its tail; it ends at `end` by now."""
        self.went_back_from = self.position
        self._cut_at = end

    def lose(self, until: int) -> None:
        """Count, and say, what was not taken in of source records below `until`, which are no longer there."""
        begin = self.position
        if until <= begin or self.closed:
            return
        log.error(
            "ingest of %s: source offsets %d to %d were deleted before they were read. The events there are lost, and "
            "counted as LOST. What to do: keep the source for longer than the longest outage and lag (retention.ms, "
            'retention.bytes; docs/operations.md, "Records were deleted before they were read")',
            self, begin, until - 1,
        )  # fmt: skip
        for machine in self.machines:
            machine.lose(until)
        self.position = until
        if self._oldest_s is None:  # committed even if nothing ever follows
            self._oldest_s = time.monotonic()

    def reached(self, position: int) -> None:
        """Make the ticks that are due now that all records below `position` are taken in, more by a machine ahead."""
        self.position = max(self.position, position)
        for machine in self.clocked:
            with self.serving(machine):
                for step in self.awaited.reached(machine, max(self.position, machine.next_offset)):
                    machine.advance(self.position)
                    machine.tick(step)
                    self._ticked = True
        if self._ticked:  # one offset is committed for all machines
            for each in self.machines:
                each.advance(self.position)

    def flush_wait_s(self, partitions: int) -> float:
        """Return how long a record waits here for its block to fill where the worker has so many partitions."""
        routes = any(isinstance(machine, PartitionRoute) for machine in self.machines)
        return self._options.flush_s if routes else self._options.flush_wait_s(partitions)

    def due(self, partitions: int) -> bool:
        """Return whether to commit or to hear how the last commit ended.

        A block is committed when it is full, when a step has ended, or when a record has waited long enough.
        Args: partitions: how many the worker has.
        """
        ended = self._running is not None and self._running.done()  # a failure must be noticed if nothing ever follows
        if ended or any(machine.room == 0 for machine in self.machines):
            return True
        waited = self._oldest_s is not None and time.monotonic() - self._oldest_s >= self.flush_wait_s(partitions)
        return (self._ticked or waited) and self._running is None

    async def flush_if_due(self, partitions: int = 1) -> None:
        """Commit what is due."""
        if self._running is not None and self._running.done():
            await self.settled()
        if self.due(partitions):
            await self.flush()

    async def flush(self) -> None:
        """Start the transaction with everything taken in so far; waits for the one before. Raises: its error."""
        await self.settled()
        if self.closed:
            return
        sealed = []
        for machine in list(self.machines):
            with self.serving(machine):
                if (each := self._seal(machine)) is not None:
                    sealed.append(each)
        self._oldest_s, self._ticked = None, False
        if sealed:
            self._running = asyncio.create_task(self._commit(sealed, self.next_offset))

    async def settled(self) -> None:
        """Wait for the running transaction. Raises: its error, unless the partition was given up meanwhile."""
        running = self._running
        if running is None:
            return
        try:
            await asyncio.shield(running)
        except Exception:
            if not self.closed:
                raise
            log.info("ingest of %s: dropped with its last transaction", self)
        if self._running is running:
            self._running = None

    async def close(self) -> None:
        """Give the partition up: finish the running transaction, take nothing more."""
        self.closed = True
        if self._running is not None:
            await asyncio.wait([self._running])
            if not self._running.cancelled() and (error := self._running.exception()) is not None:
                # Whatever became of it, the successor's fence settles it before it asks for the offset.
                log.info("ingest of %s: its last transaction ended with %s", self, type(error).__name__)
        if self._producer is not None:
            await close_client(self._producer)

    def _seal(self, machine: Machine) -> SealedBlock | SealedHop | None:
        if isinstance(machine, PartitionRoute):
            hop = machine.seal()
            return None if hop is None else SealedHop(machine, hop)
        charged_bytes = 24 * machine.pending
        snapshots = machine.snapshots(max(LEAST_SNAPSHOT_BYTES, charged_bytes), most=MOST_SNAPSHOTS)
        block, letters = machine.seal()
        return None if block is None else SealedBlock(machine, block, block.encode(), letters, snapshots)

    async def _commit(self, parts: Sequence[SealedBlock | SealedHop], next_offset: int) -> None:
        producer = self.producer
        sealed = [each for each in parts if isinstance(each, SealedBlock)]
        places = self.places.with_blocks({each.machine.spec.name: each.hi for each in parts})
        await producer.begin_transaction()
        # All are on their way before any is waited for: one round trip instead of hundreds.
        blocks, snapshots = [], []
        for each in sealed:
            spec = each.machine.spec
            topic, home = place_of_blocks(spec, self._topics)
            blocks.append(await producer.send(topic, each.body, key=spec.stream.encode(), partition=home))
        for part in parts:
            home = bounds_partition(part.machine.spec.stream, self.source.partition, self._topics.partitions)
            for one in part.snapshots:
                snapshots.append(await producer.send(self._topics.bounds, one.value, key=one.key, partition=home))
        letters = [await self._send_letter(letter) for each in sealed for letter in each.letters]
        copies = [await self._send_copies(each) for each in parts if isinstance(each, SealedHop)]
        await asyncio.gather(*itertools.chain.from_iterable(copies))
        written = await asyncio.gather(*blocks)
        failpoint("ingest_block_appended")
        await asyncio.gather(*snapshots)
        failpoint("ingest_bounds_appended")
        await asyncio.gather(*letters)
        failpoint("ingest_sent")
        if not (noted := places.encode()) and not self._overfull:
            self._overfull = True
            log.error(
                "ingest of %s: %d streams are or were on this source, more than can be noted beside its offset. One "
                "that stops or is taken out now cannot go on later. What to do: give streams sources of their own",
                self, len(places),
            )  # fmt: skip
        group = self._topics.ingest_group
        await producer.send_offsets_to_transaction({self.source: OffsetAndMetadata(next_offset, noted)}, group)
        failpoint("ingest_before_commit")
        await producer.commit_transaction()
        failpoint("ingest_after_commit")
        self.places = places
        for each, metadata in zip(sealed, written, strict=True):
            each.machine.committed(at=metadata.offset)
            self._counters.count(each)
        self.committed = next_offset
        self.trim()

    def trim(self) -> None:
        """Delete copies of raw records that are in committed blocks: they must not lie there any longer."""
        if self._deletions is not None:
            self._deletions.below(self.source, self.committed)

    async def _send_copies(self, sealed: SealedHop) -> list[asyncio.Future[Any]]:
        topic, sent = self._topics.routed(sealed.machine.spec.stream), []
        for partition, copies in sealed.hop.copies.items():
            batch = self.producer.create_batch()
            for key, value, timestamp, headers in copies:
                if batch.append(timestamp=timestamp, key=key, value=value, headers=headers) is None:
                    sent.append(await self.producer.send_batch(batch, topic, partition=partition))
                    await asyncio.sleep(0)  # a whole batch must not keep everything else waiting
                    batch = self.producer.create_batch()
                    first = batch.append(timestamp=timestamp, key=key, value=value, headers=headers)
                    assert first is not None, "a batch takes its first record, whatever its size"
            sent.append(await self.producer.send_batch(batch, topic, partition=partition))
        return sent

    async def _send_letter(self, letter: DeadLetter) -> Any:
        await asyncio.sleep(0)  # thousands of these must not keep everything else waiting
        topic = self._topics.dead_letters
        return await self.producer.send(topic, letter.encode(), key=letter.key, headers=letter.headers)


def part_of(spec: SourceSpec) -> Part:
    """Return which part of its stream stops where a source cannot be read: held-out events concern its audit alone."""
    return "audit" if spec.role == "held_out" else "ingest"


def place_of_blocks(spec: SourceSpec, topics: Topics) -> tuple[str, int]:
    """Return the topic and partition of a stream's blocks."""
    topic = topics.held_out if spec.role == "held_out" else topics.blocks
    return topic, home_partition(spec.stream, topics.partitions)
