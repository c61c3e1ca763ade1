"""The engine's shell: does what `agents.protocol.release.candidates` asks, on Kafka.

For each partition one fenced transactional producer is the only writer of that partition of the release log, so it
never has to read back what it wrote. Blocks are acknowledged when the step that used them is adopted, and never
decide where reading goes on.

Several streams share the producer, one transaction after the other. A stream whose own state machine fails has none
under way: it is left out from then on, and what it may still need is not trimmed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from agents.kafka.clients import close_client, fenced_anew, fenced_producer, log_reader
from agents.kafka.lifecycle.stops import alone
from agents.kafka.lifecycle.vitals import COMPUTE_S
from agents.protocol.release.candidates import (
    Adopted,
    CommitCandidates,
    CommitSeeds,
    Compute,
    Effect,
    Effects,
    StreamCandidates,
)
from agents.protocol.release.record_formats import record_format
from agents.protocol.release.stepper import Stepper
from agents.worker.failpoints import failpoint
from agents.worker.metrics import FENCES, PHASES, STATE_BYTES
from agents.worker.partition_tasks import AckList, StreamsTask, streams_of
from agents.worker.trimming import Trimmer
from schemas.blocks import Block
from schemas.errors import BrokerError, ForgottenIdError
from schemas.releases import LogRecord, Seed, decode_log_record, split_state

if TYPE_CHECKING:
    from agents.worker.job import Job
    from agents.worker.table import DurableTable, Records

log = logging.getLogger(__name__)


class EngineTask(StreamsTask):
    """The sole writer of one partition of the release log."""

    role = "engine"

    def __init__(self, job: Job, table: DurableTable, partition: int) -> None:
        super().__init__(partition, job.stops)
        self._job = job
        self._table = table
        self._producer: Any = None
        self._id = f"{job.config.job.name}-engine-{partition}"
        self._newest = -1  # offset of the last record on its partition of the release log, as far as it knows
        self._streams: dict[str, StreamCandidates] = {}
        self._positions: dict[str, int] = {}
        self._floors: dict[str, int] = {}
        self._acks = AckList()
        self._trimmer = Trimmer(job.config, job.topics.blocks, partition, held=lambda: job.holds_back(partition))

    async def open(self) -> None:
        job, partition = self._job, self.partition
        self._producer = await fenced_producer(job.config.kafka, self._id)
        FENCES.labels("engine").inc()
        # Only now: whatever a former task had under way is settled, and the log ends where it ends.
        await job.meet_all()
        streams = job.streams_on(partition)
        for name in job.stops.among(stream.name for stream in streams):
            job.stops.remind(name)
        # All of them, before any is recovered: what one adopts must not delete blocks that the next one still needs.
        self._positions = dict.fromkeys((stream.name for stream in streams), 0)
        self._floors = dict(self._positions)
        for stream in streams:
            if job.stops.stopped(stream.name):
                self.leave_out(stream.name)
                continue
            with self.serving(stream.name), alone(stream.name):
                stepper = Stepper.from_stream(
                    stream,
                    job.source_partitions[stream.name],
                    caveat=job.caveat,
                    witness=job.witness_remark(stream.name),
                    records=record_format(stream, job.schema_ids.get(stream.name)),
                )
                self._streams[stream.name] = StreamCandidates(stepper)
        # Batch by batch: where a stream has stopped nothing is trimmed, and the log grows for as long as nobody comes.
        async with log_reader(job.config.kafka, job.topics.releases, partition) as releases:
            async for records in releases.read():
                self._newest = records[-1].offset if records else self._newest
                await self._read_log(records)
        # Behind the fence, so no further state comes to the changelog.
        await self._table.catch_up(job.config.kafka, partition)
        whole = False
        for name, machine in list(self._streams.items()):
            with self.serving(name):
                saved = self._table.load(partition, name)
                if machine.lacks(saved) and not whole:
                    log.warning("state store of partition %d: stream %s lacks its newest state", partition, name)
                    await self._table.catch_up(job.config.kafka, partition, anew=True)
                    saved, whole = self._table.load(partition, name), True
                await self._drive(name, machine.recover(saved, log_is_trimmed=releases.beginning > 0))
                log.info("engine of %s: step %s is next, blocks from %s", name, machine.step, machine.position)
        for name, machine in list(self._streams.items()):
            with self.serving(name):
                await self._drive(name, machine.advance())

    async def _read_log(self, records: Iterable[Any]) -> None:
        entries: list[tuple[int, LogRecord]] = []
        for record in records:
            if self._streams.keys() & set(self._streams_of(record.key)):
                with self.serving(*self._streams_of(record.key)):
                    entries.append((record.offset, decode_log_record(record.value)))
        for name, mine in groupby(entries, key=lambda entry: entry[1].stream):
            if machine := self._streams.get(name):
                with self.serving(name), alone(name):
                    await asyncio.to_thread(machine.read, list(mine))

    async def handle(self, event: Any) -> None:
        offset = event.message.offset
        for stream in self._job.stops.among(self._streams):
            self.leave_out(stream)
        needed = False
        with self.serving(*self._streams_of(event.message.key)):
            block = Block.decode(event.value)
            self._job.meet(block.stream)
            machine = self._streams.get(block.stream)
            if machine is not None and offset >= machine.position:
                needed = True
                self._acks.hold(block.stream, offset, event)
                with alone(block.stream):
                    machine.fold(offset, block)
                await self._drive(block.stream, machine.advance())
        if not needed:  # it cannot be read, or is in the state, or of a stream that has stopped or is not configured
            event.ack()
            self._acks.settle(self._positions)

    async def close(self) -> None:
        await super().close()
        if self._producer is not None:
            await close_client(self._producer)

    def _streams_of(self, key: bytes | None) -> Sequence[str]:
        return streams_of(key, [stream.name for stream in self._job.streams_on(self.partition)], self._job.kept)

    def leave_out(self, stream: str) -> int | None:
        """Leave a stream out. Its records hold back no acknowledgement: its own state says where a restart goes on."""
        self._positions.pop(stream, None)
        machine = self._streams.pop(stream, None)
        return None if machine is None else machine.step

    async def _drive(self, stream: str, effects: Effects) -> None:
        """Carry out one effect after the other and send back what came of it.

        The machine itself sends nothing, and neither does what it has computed: what fails there has no effect, and the
        machine says what is left to do. An effect that fails ends the worker.
        """
        go_on: Callable[[], Effect] = partial(next, effects)
        while not self._job.stops.stopped(stream):
            with alone(stream):
                try:
                    effect = go_on()
                except StopIteration:
                    return
            try:
                go_on = partial(effects.send, await self._do(effect))
            except Exception as error:
                if not isinstance(effect, Compute):
                    raise
                go_on = partial(effects.throw, error)

    async def _do(self, effect: Effect) -> Any:
        self.pulse.goes_on()
        match effect:
            case CommitSeeds(stream, steps):
                seeds = [Seed(stream, step, self._job.draw_seed(stream, step)) for step in steps]
                await self._commit("seed", stream, seeds)
                return [each.seed for each in seeds]
            case Compute(stream, work=work):
                with self.pulse.at("computes a step", COMPUTE_S), PHASES.labels(stream, "compute").time():
                    return await asyncio.to_thread(work)
            case CommitCandidates(stream, steps, chunks, body, position):
                STATE_BYTES.labels(stream).set(len(body))
                pieces = split_state(body)
                state = self._table.records(self.partition, stream, pieces, step=steps[-1], position=position)
                offset = await self._commit("candidate", stream, chunks, state)
                await self._table.committed(self.partition, state, offset)
                failpoint("state_stored")
            case Adopted(stream, step, position, floor):
                failpoint("adopted")
                log.info("stream %s: step %s is settled", stream, step, extra={"step": step})
                self._positions[stream], self._floors[stream] = position, floor
                self._acks.settle(self._positions)
                self._trimmer.below(min(self._floors.values()))
        return None

    async def _commit(self, what: str, stream: str, records: Sequence[LogRecord], state: Records = ()) -> int:
        """Commit all records in one transaction, and `state` on the table's changelog; return the last offset there.

        On an error the worker ends: only reading the log tells what came of it.
        """
        with PHASES.labels(stream, what).time():
            try:
                offset = await self._transact(what, stream, records, state)
            except ForgottenIdError:
                await self._fence_anew()
                offset = await self._transact(what, stream, records, state)
        failpoint(f"{what}_committed")
        return offset

    async def _transact(self, what: str, stream: str, records: Sequence[LogRecord], state: Records) -> int:
        topics, key = self._job.topics, stream.encode()
        await self._producer.begin_transaction()
        sent = [
            await self._producer.send(topics.releases, each.encode(), key=key, partition=self.partition)
            for each in records
        ]
        newest, last = self._newest, -1
        for each in sent:
            newest = (await each).offset
            failpoint(f"{what}_appended")
        sent = [
            await self._producer.send(topics.changelog, value, key=key, partition=self.partition)
            for key, value in state
        ]
        for each in sent:
            last = (await each).offset
            failpoint("state_appended")
        await self._producer.commit_transaction()
        self._newest = newest
        return last

    async def _fence_anew(self) -> None:
        """Fence again where the cluster has forgotten this writer. Raises: BrokerError where somebody has written
        meanwhile.
        """
        if self.closed:
            raise BrokerError(f"{self._id} was forgotten, and its partition is somebody else's by now")
        await close_client(self._producer)
        place = (self._job.topics.releases, self.partition)
        self._producer = await fenced_anew(
            self._job.config.kafka, self._id, place, lambda newest: self._newest == (newest.offset if newest else -1)
        )
        FENCES.labels("engine").inc()


def blocks_start(job: Job, table: DurableTable) -> Callable[[int], int]:
    """Return what says where a partition of the blocks topic is read from: where the least advanced state ends that is
    stored here.

    The engine passes over blocks that are in the state it goes on from, which may be newer.
    """

    def start(partition: int) -> int:
        return min((table.position(partition, stream.name) for stream in job.streams_on(partition)), default=0)

    return start
