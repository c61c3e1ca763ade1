"""The audit's shell: held-out blocks from Kafka, public records as an ordinary consumer reads them, errors to
`<stream>.utility`.

Operator only: its numbers are not private. A repeated step overwrites itself, so nothing here needs a transaction.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer, TopicPartition

from agents.kafka.clients import close_client, follower
from agents.kafka.lifecycle.cancellations import raise_stray_cancellation
from agents.kafka.lifecycle.stops import alone
from agents.kafka.lifecycle.vitals import COMPUTE_S, Pulse
from agents.kafka.security import security_kwargs
from agents.protocol.release.held_out import HeldOutAudit
from agents.protocol.release.record_formats import record_format
from agents.worker.partition_tasks import AckList, StreamsTask, streams_of
from agents.worker.trimming import Trimmer
from schemas.blocks import Block
from schemas.releases import public_step

if TYPE_CHECKING:
    from agents.worker.job import Job
    from agents.worker.table import DurableTable

log = logging.getLogger(__name__)

CHECKPOINT_S = 5.0


def state_name(stream: str) -> str:
    """Name of the audit's state in the table. Stream names hold no colon, so it is never an engine's."""
    return f"audit:{stream}"


class AuditTask(StreamsTask):
    """Audits the streams on one partition."""

    role = "audit"
    record_s = COMPUTE_S  # it may wait for a stream that is measured

    def __init__(self, job: Job, table: DurableTable, partition: int) -> None:
        super().__init__(partition, job.stops)
        self.job = job
        self.table = table
        self.producer: Any = None
        self._stream_tasks: dict[str, AuditStreamTask] = {}
        self._acks = AckList()
        self._trimmer = Trimmer(job.deletions, job.topics.held_out, partition, held=self._holds_back)

    async def open(self) -> None:
        kafka = self.job.config.kafka
        streams = [
            stream for stream in self.job.streams_on(self.partition) if stream.audit and self.serves(stream.name)
        ]
        if not streams:
            return
        await self.job.meet_all()
        self.producer = AIOKafkaProducer(
            bootstrap_servers=kafka.bootstrap, acks="all", enable_idempotence=True, **security_kwargs(kafka)
        )
        await self.producer.start()
        await self.table.catch_up(kafka, self.partition)
        for stream in streams:
            saved = self.table.load(self.partition, state_name(stream.name))
            with self.serving(stream.name), alone(stream.name):
                machine = HeldOutAudit(stream, self.job.audit_partitions[stream.name], records=record_format(stream))
                if saved is not None:
                    machine.restore(saved.body)
                log.info("audit of %s: step %s is next", stream.name, machine.step)
                self._stream_tasks[stream.name] = AuditStreamTask(self, machine)

    async def run(self) -> None:
        await self.opened()
        async with asyncio.TaskGroup() as group:
            for stream_task in self._stream_tasks.values():
                self.shows(stream_task.pulse)
                group.create_task(raise_stray_cancellation(self._follow(stream_task), stream_task.pulse.name))
            await self.handle_all()

    async def _follow(self, stream_task: AuditStreamTask) -> None:
        with self.serving(stream_task.name):
            await stream_task.follow()
        stream_task.pulse.waits("has stopped")

    async def handle(self, event: Any) -> None:
        needed = False
        with self.serving(*streams_of(event.message.key, list(self._stream_tasks), self.job.kept)):
            block = Block.decode(event.value)
            self.job.meet(block.stream)
            stream_task = self._stream_tasks.get(block.stream)
            if stream_task is not None and self.serves(block.stream):
                needed = True
                self._acks.hold(block.stream, event.message.offset, event)
                await stream_task.on_block(event.message.offset, block)
        if not needed:
            event.ack()
            self._acknowledge()

    def serves(self, stream: str) -> bool:
        """Whether an audit goes on: it ends where it has failed or its stream has stopped, and nothing ends with it."""
        return not (self.job.stops.stopped(stream) or self.job.stops.has(stream, "audit", None))

    def _holds_back(self) -> bool:
        audited = [stream.name for stream in self.job.streams_on(self.partition) if stream.audit]
        return self.job.holds_back(self.partition) or not all(map(self.serves, audited))

    @property
    def stop_place(self) -> None:
        """The audit of a stream stops as a whole: the ingest of its held-out events is a part of it."""

    def leave_out(self, stream: str) -> None:
        """Do nothing: a stream task ends by itself once its audit has stopped."""

    async def close(self) -> None:
        await super().close()
        if self.producer is not None:
            await close_client(self.producer)

    def saved(self) -> None:
        """Acknowledge what is in a checkpoint, now that it is durable, and delete what nothing else needs."""
        self._acknowledge()
        self._trimmer.below(min(stream_task.saved_floor for stream_task in self._stream_tasks.values()))

    def _acknowledge(self) -> None:
        self._acks.settle(lambda name: self._stream_tasks[name].saved_position if self.serves(name) else None)


class AuditStreamTask:
    """Audits one stream."""

    def __init__(self, task: AuditTask, machine: HeldOutAudit) -> None:
        self._task = task
        self._machine = machine
        self.name = machine.stream.name
        self.pulse = Pulse(f"audit of {machine.stream.name}")
        self._lock = asyncio.Lock()
        self._saved_at = time.monotonic()
        self.saved_position = self.saved_floor = 0

    async def on_block(self, offset: int, block: Block) -> None:
        async with self._lock:
            with alone(self.name):
                self._machine.fold(offset, block)
            await self._advance()

    async def follow(self) -> None:
        """Read the public topics for as long as the stream lives, with nothing but what their readers have."""
        job, stream = self._task.job, self._machine.stream
        kafka, topics = job.config.kafka, job.topics
        synthetic = TopicPartition(topics.synthetic(stream.name), 0)
        ledger = TopicPartition(topics.ledger(stream.name), 0)
        async with follower(kafka, {synthetic: self._machine.synthetic_offset, ledger: None}) as consumer:
            while self._task.serves(self.name):
                self.pulse.works("follows the public topics")
                batches = await consumer.getmany(timeout_ms=500, max_records=5_000)
                async with self._lock:
                    with alone(self.name):
                        for tp, records in batches.items():
                            for record in records:
                                self._on_public(tp == ledger, record)
                    await self._advance()

    def _on_public(self, is_ledger: bool, record: Any) -> None:
        step = public_step(record.headers)
        if is_ledger:
            self._machine.on_ledger(record.value)
        elif step is not None:
            self._machine.on_synthetic(record.offset, step, record.key, record.value)
        else:
            log.warning(
                "stream %s: the record at offset %d of its synthetic topic names no step: the job did not write it. It "
                "is not measured", self._machine.stream.name, record.offset,
            )  # fmt: skip

    async def _advance(self) -> None:
        machine, task = self._machine, self._task
        moved = False
        while machine.ready:
            step = machine.step
            with self.pulse.at(f"measures step {step}", COMPUTE_S), alone(self.name):
                utility = await asyncio.to_thread(machine.measure)
            topic = task.job.topics.utility(machine.stream.name)
            await task.producer.send_and_wait(topic, utility, key=b"%d" % step, partition=0)
            log.info("stream %s: step %s is audited", machine.stream.name, step, extra={"step": step})
            moved = True
        if moved and time.monotonic() - self._saved_at >= CHECKPOINT_S:
            body = await asyncio.to_thread(machine.encode)
            name = state_name(machine.stream.name)
            await task.table.save(task.partition, name, body, step=machine.step, position=machine.position)
            self._saved_at = time.monotonic()
            self.saved_position, self.saved_floor = machine.position, machine.merge.floor
            task.saved()


def held_out_start(job: Job, table: DurableTable) -> Callable[[int], int]:
    """Return what says where a partition of the topic of held-out data is read from."""

    def start(partition: int) -> int:
        names = [state_name(stream.name) for stream in job.streams_on(partition) if stream.audit]
        return min((table.position(partition, name) for name in names), default=0)

    return start
