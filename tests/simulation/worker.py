"""A worker of the job: the real ingest, engine, publisher and audit, over aiokafka's real clients, on a simulated
process.

Only Faust is left out. What it does for the job is small and is done here: a consumer group over the private topics,
records handed to the tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, cast

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from agents.kafka.fingerprint import Checked, check_fingerprints
from agents.kafka.lifecycle.advice import explain
from agents.kafka.lifecycle.vitals import BEAT_S, Vitals
from agents.kafka.membership import give_place_up, keep_place
from agents.worker.audit import AuditTask, held_out_start
from agents.worker.engine import EngineTask, blocks_start
from agents.worker.ingest.service import IngestService
from agents.worker.ingest.specs import source_specs, user_key_ids
from agents.worker.job import Job
from agents.worker.partition_tasks import PartitionTasks
from agents.worker.publish import PublishTask
from agents.worker.table import SAVE_TIMEOUT_S, DurableTable, Records
from schemas.config import Config
from tests.simulation.oracle import DEAD
from tests.simulation.patches import HEARTBEAT_S, SLOWER
from tests.simulation.timeline import Process

STOP_S = 20.0
IDLE_MS = 1_000
RECORDS = 12  # of a poll, as in `agents.worker.app`


@dataclass
class Disk:
    """What of a worker's machine survives its process: its state store and how far that is in the changelog."""

    stores: dict[int, dict[bytes, bytes]] = field(default_factory=dict)
    checked: Checked | None = None  # what the first start here found: the check is the same at each, and costs a third
    offsets: dict[int, int] = field(default_factory=dict)


class Table:
    """`agents.worker.table.DurableTable` without Faust and RocksDB: its own code above a dictionary and a changelog."""

    records = DurableTable.records
    save = DurableTable.save
    committed = DurableTable.committed
    catch_up = DurableTable.catch_up
    load = DurableTable.load
    position = DurableTable.position
    _head = DurableTable._head
    _written = DurableTable._written

    def __init__(self, config: Config, changelog: str, disk: Disk, process: Process) -> None:
        self._config = config
        self.changelog = changelog
        self._writing: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._disk = disk
        self._process = process
        self._producer: Any = None
        self.log = _Silent()

    async def open(self) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._config.kafka.bootstrap, acks="all", request_timeout_ms=20_000
        )
        await self._producer.start()

    def _get(self, partition: int, key: bytes) -> bytes | None:
        return self._disk.stores.get(partition, {}).get(key)

    def _stored(self, partition: int) -> int:
        return self._disk.offsets.get(partition, -1)

    async def _put(self, partition: int, record: tuple[bytes, bytes]) -> None:
        key, value = record
        async with asyncio.timeout(SAVE_TIMEOUT_S):
            await self._producer.send_and_wait(self.changelog, value, key=key, partition=partition)
        self._write(partition, [record])

    def _write(self, partition: int, records: Records, offset: int | None = None) -> None:
        if self._process.alive:
            self._disk.stores.setdefault(partition, {}).update(records)
            if offset is not None:
                self._disk.offsets[partition] = offset


class _Silent:
    def warning(self, *_: Any) -> None:
        pass


@dataclass
class Message:
    offset: int
    partition: int
    key: bytes | None
    value: bytes | None


class Event:
    """A record as Faust hands it out."""

    def __init__(self, record: Any) -> None:
        self.value = record.value
        self.message = Message(record.offset, record.partition, record.key, record.value)

    def ack(self) -> None:
        pass


class Assignment(ConsumerRebalanceListener):
    """The consumer of the private topics: what `agents.worker.app` and `agents.kafka.transport` make of Faust's."""

    def __init__(self, job: Job, table: DurableTable, crash: Any) -> None:
        topics = job.topics
        factories: dict[str, Any] = {
            "engine": lambda partition: EngineTask(job, table, partition),
            "publish": lambda partition: PublishTask(job, partition),
        }
        self._roles = {topics.blocks: "engine", topics.releases: "publish"}
        self._starts: dict[str, Any] = {topics.blocks: blocks_start(job, table), topics.releases: lambda partition: 0}
        if any(stream.audit for stream in job.config.streams):
            factories["audit"] = lambda partition: AuditTask(job, table, partition)
            self._roles[topics.held_out] = "audit"
            self._starts[topics.held_out] = held_out_start(job, table)
        self.tasks = PartitionTasks(factories, crash, job.vitals)
        self._crash = crash
        self._job = job
        self._table = table
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._generation = 0
        self._queues: dict[str, asyncio.Queue[Any]] = {role: asyncio.Queue() for role in factories}
        self._consumer: AIOKafkaConsumer | None = None

    async def run(self) -> None:
        kafka = self._job.config.kafka
        session_ms = kafka.session_timeout_s * 1000
        self._consumer = consumer = AIOKafkaConsumer(
            bootstrap_servers=kafka.bootstrap,
            group_id=self._job.config.job.name,
            group_instance_id=self._job.instance_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            partition_assignment_strategy=[RangePartitionAssignor],
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=int(HEARTBEAT_S * 1000),
            rebalance_timeout_ms=session_ms + 2_000,
        )
        await consumer.start()
        keep_place(consumer, self._crash)
        consumer.subscribe(sorted(self._roles), listener=self)
        opened = 0
        async with asyncio.TaskGroup() as pumps:
            for role in self._queues:
                pumps.create_task(self._pump(role))
            while True:
                if self._assigned and opened != self._generation:
                    opened = await self._open(consumer)
                batches = await consumer.getmany(timeout_ms=IDLE_MS, max_records=RECORDS)
                if opened == self._generation:
                    for tp, records in batches.items():
                        for record in records:
                            self._queues[self._roles[tp.topic]].put_nowait((opened, Event(record)))

    async def _open(self, consumer: AIOKafkaConsumer) -> int:
        generation, assigned = self._generation, sorted(self._assigned)
        beginnings = await consumer.beginning_offsets(assigned)
        if generation != self._generation:
            return -1
        for tp in assigned:
            consumer.seek(tp, max(beginnings[tp], self._starts[tp.topic](tp.partition)))
        self.tasks.open({tp.partition for tp in assigned})
        consumer.resume(*assigned)
        return generation

    async def _pump(self, role: str) -> None:
        while True:
            generation, event = await self._queues[role].get()
            if generation == self._generation:
                self.tasks.deliver(role, event)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self._assigned = frozenset()
        self._generation += 1
        self.tasks.revoke()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._assigned = frozenset(assigned)
        self._generation += 1
        assert self._consumer is not None
        self._consumer.pause(*assigned)

    async def stop(self) -> None:
        await self.tasks.stop()
        if self._consumer is not None:
            give_place_up(self._consumer)
            await self._consumer.stop()


async def _probed(vitals: Vitals) -> None:
    """A worker that is slow, waits or is without its cluster is not dead; ends where a probe would restart it."""
    vitals.beat()
    while not vitals.dead:
        await asyncio.sleep(BEAT_S * SLOWER)
        vitals.beat()


async def work(
    config: Config, process: Process, disk: Disk, *, stop: asyncio.Event, job_class: type[Job] = Job
) -> None:
    """Run a worker until `stop` is set or an error ends it; then it leaves in good order, if it can."""
    checked = disk.checked or await check_fingerprints(config, user_key_ids=user_key_ids(config))
    disk.checked = checked
    job = job_class(
        config=checked.config,
        source_partitions=checked.source_partitions,
        audit_partitions=checked.audit_partitions,
        schema_ids=checked.schema_ids,
        instance_id=process.name,
        vitals=Vitals(lambda: process.time() / SLOWER),
    )
    ended: asyncio.Future[BaseException | None] = process.create_future()

    async def crash(error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result(error)

    table = Table(checked.config, job.topics.changelog, disk, process)
    await table.open()
    assignment = Assignment(job, cast(DurableTable, table), crash)
    specs = source_specs(
        checked.config,
        source_partitions=checked.source_partitions,
        audit_partitions=checked.audit_partitions,
        topic_partitions={topic: identity.partitions for topic, identity in checked.sources.items()},
    )
    ingest = IngestService(
        checked.config,
        specs,
        sources=checked.sources,
        stops=job.stops,
        instance_id=process.name,
        vitals=job.vitals,
    )
    await ingest.start()
    running = [
        asyncio.ensure_future(assignment.run()),
        asyncio.ensure_future(ingest._crashed.wait()),
        asyncio.ensure_future(stop.wait()),
        asyncio.ensure_future(_probed(job.vitals)),
        ended,
    ]
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    error = ended.result() if ended.done() else ingest.crash_reason
    if error is None and running[0].done():
        error = running[0].exception()
    if error is None and job.vitals.dead:
        process.failures.append(f"{DEAD}: {'; '.join(job.vitals.dead)}")
    if error is not None:
        process.failures.append(explain(error))
    with contextlib.suppress(Exception):
        async with asyncio.timeout(STOP_S):
            await assignment.stop()
            await ingest.stop()
            running[0].cancel()
