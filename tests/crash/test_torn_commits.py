"""One request is held on the network until its sender has given up, and arrives later (as in KAFKA-17754).

A client that repeats it with the same epoch commits half of its next transaction; the tests called "careless" show it.
Ours publishes nothing twice and leaves no partition that refuses to start; what a careless one left is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.errors import InvalidProducerEpoch, InvalidTxnState
from aiokafka.structs import OffsetAndMetadata

import agents.kafka.clients
from agents.kafka.clients import fenced_producer, read_to_end
from agents.kafka.lifecycle.stops import StreamStoppedError
from agents.kafka.topics import create_topics
from agents.kafka.transactions import WITH_EPOCH
from agents.local.offline.replay import replay
from agents.protocol.partitioner import home_partition
from agents.protocol.release.publisher import Publication
from agents.worker.ingest.counters import IngestCounters
from agents.worker.ingest.partition_task import SourceTask
from agents.worker.ingest.restore import restore
from agents.worker.job import Job
from agents.worker.publish import PublishStreamTask, PublishTask
from schemas.config import Config, parse_config
from schemas.config.server import Kafka
from schemas.errors import BrokerError, GapError, OutcomeUnknownError
from schemas.releases import GENESIS, STEP_HEADER, Frames, PublicRecord, Seed, frame_records, public_step, sha256
from tests.crash.proxy.faults import Fault, Kind, Once, Plan
from tests.crash.proxy.frames import Request
from tests.crash.proxy.server import Held, Proxy
from tests.entries import entry_like
from tests.kafka.ingest_support import OPTIONS, Bench, check, crowd
from tests.kafka.support import create, fresh_name, job_config, stream_table
from tests.kafka.test_engine import crash_of, feed, ledger, log_records, published, running
from tests.kafka.test_replay import PARTITIONS, assert_every_row_once, text_of, write_rows

pytestmark = [pytest.mark.kafka, pytest.mark.seconds(2.5)]

SHORT_TIMEOUT_MS = 1_500
"""How long a sender waits for an answer here: a held request comes after that, however long it takes."""
PRODUCER_FENCED = 90  # which aiokafka has no number for
REFUSED = {InvalidProducerEpoch.errno, InvalidTxnState.errno, PRODUCER_FENCED}
ANSWERS = {(each.API_KEY, each.API_VERSION): each.RESPONSE_TYPE for request in WITH_EPOCH for each in request._CLASSES}
ONE_EPOCH = ("Produce", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents.kafka.clients, "REQUEST_TIMEOUT_MS", SHORT_TIMEOUT_MS)


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiokafka as it is."""
    monkeypatch.setattr(agents.kafka.clients, "OneChanceProducer", AIOKafkaProducer)


async def refused(held: Held) -> bool:
    """Let a request arrive; whether the broker wants nothing more with its epoch."""
    held.release()
    data = await held.answer
    answer = ANSWERS[held.request.api, held.request.version].decode(io.BytesIO(data[4:]))  # behind the correlation id
    if hasattr(answer, "error_code"):
        return answer.error_code in REFUSED
    ((_, (partition, *_)),) = answer.errors if hasattr(answer, "errors") else answer.topics
    return partition[1] in REFUSED


async def abandon(producer: Any) -> None:
    """What SIGKILL does to a producer, as far as the cluster can see."""
    producer._closed = True
    await producer.client.close()
    producer.client.send = _dead
    producer._sender.sender_task.cancel()


async def _dead(*_: Any, **__: Any) -> None:
    await asyncio.Event().wait()


# --- The producer -------------------------------------------------------------------------------------------------


class Watched:
    """A plan, and what was sent after its fault."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.after: list[str] | None = None

    def __call__(self, request: Request) -> Fault | None:
        if self.after is not None:
            self.after.append(request.name)
        fault = self.plan(request)
        if fault is not None:
            self.after = []
        return fault


async def transact(producer: Any, topic: str, value: bytes) -> None:
    await producer.begin_transaction()
    await producer.send_and_wait(topic, value, partition=0)
    await producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(7, "")}, f"{topic}-group")
    await producer.commit_transaction()


@pytest.mark.parametrize(
    ("api", "kind"),
    [*((api, Kind.HOLD) for api in ONE_EPOCH), ("Produce", Kind.CUT), ("EndTxn", Kind.CUT_ANSWER)],
)
async def test_after_a_request_without_an_answer_nothing_is_sent_and_the_late_one_is_refused(
    bootstrap: str, api: str, kind: Kind
) -> None:
    topic = fresh_name("one-chance")
    await create(bootstrap, NewTopic(topic, 1, 1))
    async with Proxy(bootstrap) as proxy:
        kafka = Kafka(bootstrap=proxy.bootstrap)
        producer = await fenced_producer(kafka, topic)
        proxy.plan = watched = Watched(Once(api, Fault(kind)))
        with pytest.raises(OutcomeUnknownError, match=f"{api} of transactional id {topic}"):
            await transact(producer, topic, b"first")
        for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(OutcomeUnknownError):
                await call()
        await producer.stop()
        assert not set(watched.after or ()) & set(ONE_EPOCH)
        proxy.plan = lambda request: None
        successor = await fenced_producer(kafka, topic)
        if kind is Kind.HOLD:
            assert await refused(proxy.held[0])
        await transact(successor, topic, b"second")
        await successor.stop()
    records = await read_to_end(Kafka(bootstrap=bootstrap), topic, 0)
    # An `EndTxn` whose answer was lost was carried out, and only the successor can know.
    expected = [b"first", b"second"] if kind is Kind.CUT_ANSWER else [b"second"]
    assert [record.value for record in records] == expected


# --- The publisher ------------------------------------------------------------------------------------------------


def publications(stream: str, steps: int) -> list[Publication]:
    """Steps of two synthetic records and one measurement each, chained."""
    chain, found = GENESIS, []
    for step in range(steps):
        data = [PublicRecord("synthetic", b"%d-%d" % (step, n), b"{}") for n in range(2)]
        data.append(PublicRecord("measurements", b"%d" % step, b"{}"))
        digest = sha256(frame_records(data))
        entry = entry_like(stream=stream, step=step, digest=digest, previous_chain=chain)
        chain = entry.chain
        found.append(Publication(stream, step, Frames.of(frame_records(data)), entry.encode(), chain))
    return found


class Publishing:
    """Workers that publish the same two steps, one after the other, from where the public topics end.

    Each is on a machine of its own: these steps were never on the release log, where a witness would look for them.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.stream = config.streams[0]
        self.steps = publications(self.stream.name, 2)
        self._workers = 0

    @contextlib.asynccontextmanager
    async def stream_task(self) -> AsyncIterator[PublishStreamTask]:
        self._workers += 1
        assert self.config.job.data_dir is not None
        machine = {"data_dir": self.config.job.data_dir / str(self._workers)}
        machine["data_dir"].mkdir(parents=True)
        config = self.config.model_copy(update={"job": self.config.job.model_copy(update=machine)})
        job = Job(config=config, source_partitions={self.stream.name: 2})
        home = home_partition(self.stream.name, self.config.kafka.partitions)
        stream_task = PublishStreamTask(PublishTask(job, home), self.stream, job.stops)
        await stream_task.open(self.config.kafka)
        try:
            yield stream_task
        finally:
            await stream_task.close()

    async def work(self) -> None:
        """One worker, until every step is public or something ends it."""
        async with self.stream_task() as stream_task:
            for step in self.steps[stream_task.machine.last_step + 1 :]:
                await stream_task.publish([step])
                stream_task.machine.last_step = step.step

    async def public(self, bootstrap: str) -> dict[str, list[int | None]]:
        """Steps of the committed records of the public topics."""
        kafka, found = self.config.kafka.model_copy(update={"bootstrap": bootstrap}), {}
        for channel in ("synthetic", "measurements", "ledger"):
            records = await read_to_end(kafka, f"{self.stream.name}.{channel}", 0)
            found[channel] = [public_step(record.headers) for record in records]
        return found


ONCE = {"synthetic": [0, 0, 1, 1], "measurements": [0, 1], "ledger": [0, 1]}


async def publishing(proxy: Proxy, folder: Path) -> Publishing:
    config = job_config(proxy.bootstrap, folder, streams=[stream_table(fresh_name("torn"))])
    await create_topics(config)
    return Publishing(config)


@pytest.mark.parametrize("appended", [1, 2, 3])
async def test_careless_publishing_tears_a_step_and_the_next_worker_refuses_it(
    bootstrap: str, tmp_path: Path, careless: None, appended: int
) -> None:
    """The commit of step 0 is held until some data of step 1 stand behind it; then the worker dies."""
    async with Proxy(bootstrap) as proxy:
        job = await publishing(proxy, tmp_path)
        proxy.plan = Once("EndTxn", Fault(Kind.HOLD))
        async with job.stream_task() as stream_task:
            await stream_task.publish([job.steps[0]])
            producer = stream_task._producer
            await producer.begin_transaction()
            for record in job.steps[1].records[:appended]:
                topic, headers = f"{job.stream.name}.{record.channel}", [(STEP_HEADER, b"1")]
                await producer.send_and_wait(topic, record.value, key=record.key, partition=0, headers=headers)
            proxy.held[0].release()
            await proxy.held[0].answer
            await abandon(producer)
        found = await job.public(bootstrap)
        assert found["ledger"] == [0]
        assert found["synthetic"].count(1) + found["measurements"].count(1) == appended
        with pytest.raises(StreamStoppedError) as stopped:
            await job.work()
        assert isinstance(stopped.value.cause, GapError)
        assert "records of step 1 are public" in str(stopped.value.cause)
        assert await job.public(bootstrap) == found


@pytest.mark.parametrize("late", ["before the successor", "after the successor"])
async def test_a_held_commit_publishes_nothing_twice(bootstrap: str, tmp_path: Path, late: str) -> None:
    async with Proxy(bootstrap) as proxy:
        job = await publishing(proxy, tmp_path)
        proxy.plan = Once("EndTxn", Fault(Kind.HOLD))
        with pytest.raises(OutcomeUnknownError):
            await job.work()
        if late == "before the successor":
            proxy.held[0].release()
            await proxy.held[0].answer
        await job.work()
        if late == "after the successor":
            assert await job.public(bootstrap) == ONCE
            assert await refused(proxy.held[0])
        assert await job.public(bootstrap) == ONCE


# --- The ingest ---------------------------------------------------------------------------------------------------


class Ingesting:
    """PartitionTasks of the one source partition of a job, one after the other."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.source = TopicPartition(bench.source, 0)

    @contextlib.asynccontextmanager
    async def task(self) -> AsyncIterator[tuple[SourceTask, AIOKafkaConsumer]]:
        config = self.bench.config
        consumer = AIOKafkaConsumer(
            bootstrap_servers=config.kafka.bootstrap,
            group_id=f"{self.bench.job}-ingest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        consumer.assign([self.source])
        await consumer.start()
        task = SourceTask(
            config, self.source, self.bench.specs()[self.bench.source], options=OPTIONS, counters=IngestCounters()
        )
        try:
            await restore(config, consumer, [task])
            yield task, consumer
        finally:
            with contextlib.suppress(BrokerError):
                await task.close()
            await consumer.stop()

    async def take(self, task: SourceTask, consumer: AIOKafkaConsumer, *, until: int) -> None:
        """One transaction with all records below an offset; it may be under way on return."""
        records: list[Any] = []
        while await consumer.position(self.source) < until:
            for batch in (await consumer.getmany(timeout_ms=200, max_records=until - len(records))).values():
                records += batch
        await task.take([record for record in records if record.offset < until])
        await task.flush()

    async def finish(self) -> None:
        """A healthy task takes the rest."""
        async with self.task() as (task, consumer):
            end = (await consumer.end_offsets([self.source]))[self.source]
            await self.take(task, consumer, until=end)
            await task.settled()


async def ingesting(proxy: Proxy, folder: Path) -> tuple[Ingesting, list[Any], int, int]:
    """A job, its events, and where the first and the second transaction end."""
    bench = Bench(proxy.bootstrap, folder, partitions=1)
    await bench.create()
    events: list[Any] = []
    ends = []
    for step in range(3):
        events += crowd(step)
        await bench.send(crowd(step))
        await bench.tick(step)
        ends.append((step + 1) * (len(crowd(step)) + 1))
    return Ingesting(bench), events, ends[0], ends[1]


async def test_careless_ingest_tears_a_transaction_and_the_next_worker_refuses_it(
    bootstrap: str, tmp_path: Path, careless: None
) -> None:
    """The first commit is held until the second block stands, and ends its transaction before the offset is in it."""
    async with Proxy(bootstrap) as proxy:
        job, _, first, second = await ingesting(proxy, tmp_path)
        async with job.task() as (task, consumer):
            proxy.plan = Once("EndTxn", Fault(Kind.HOLD))
            await job.take(task, consumer, until=first)
            await task.settled()  # repeated, and so it is committed
            proxy.plan = Once("AddOffsetsToTxn", Fault(Kind.HOLD))
            await job.take(task, consumer, until=second)
            await proxy.until_held(2)  # the block is appended
            proxy.held[0].release()
            await proxy.held[0].answer
            await abandon(task._producer)
            assert task._running is not None
            task._running.cancel()
            assert await consumer.committed(job.source) == first
        assert (await job.bench.result()).next_offsets == {0: second}
        with pytest.raises(GapError, match=f"end at {second}, the group stands at {first}"):
            await job.finish()


async def test_a_held_commit_leaves_an_ingest_that_starts(bootstrap: str, tmp_path: Path) -> None:
    async with Proxy(bootstrap) as proxy:
        job, events, first, _ = await ingesting(proxy, tmp_path)
        async with job.task() as (task, consumer):
            proxy.plan = Once("EndTxn", Fault(Kind.HOLD))
            await job.take(task, consumer, until=first)
            with pytest.raises(OutcomeUnknownError):
                await task.settled()
        await job.finish()
        assert await refused(proxy.held[0])
        check(await job.bench.until_ticked(2), events)


# --- Engine and replay, one process after the other -------------------------------------------------------------------


@pytest.mark.parametrize("nth", [1, 2])
async def test_a_held_commit_of_the_engine_gives_no_second_seed(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """Of the seed's transaction, or of the candidate's: the next engine goes on with what is on the log."""
    async with Proxy(bootstrap) as proxy:
        table = stream_table(fresh_name("torn"), options={"depth": 8, "initial_steps": 1})
        config = job_config(proxy.bootstrap, tmp_path, streams=[table], keep_private_log=True)
        await create_topics(config)
        await feed(config, range(2))
        proxy.plan = Once("EndTxn", Fault(Kind.HOLD), nth=nth)
        with monkeypatch.context() as patched:
            error = await crash_of(config, patched, roles=("engine",))
        assert isinstance(error, OutcomeUnknownError)
        async with running(config):
            await published(config, 2)
        assert await refused(proxy.held[0])
        seeds = [record.step for _, record in await log_records(config) if isinstance(record, Seed)]
        assert seeds == [0, 1]
        assert [int(entry.key) for entry in await ledger(config)] == [0, 1]


def test_a_held_commit_of_a_replay_writes_no_row_twice(bootstrap: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.csv.gz", 40)

    async def scenario() -> Config:
        async with Proxy(bootstrap) as proxy:
            config = parse_config(text_of(proxy.bootstrap))
            await create_topics(config, source_partitions=PARTITIONS)
            proxy.plan = Once("EndTxn", Fault(Kind.HOLD), nth=2)
            with pytest.raises(BrokerError, match="run the same command again"):
                await replay(config, config.streams[0], path, chunk_rows=10)
            done = await replay(config, config.streams[0], path, chunk_rows=10)
            assert await refused(proxy.held[0])
            assert (done.rows_before, done.rows) == (10, 30)
        return config.model_copy(update={"kafka": config.kafka.model_copy(update={"bootstrap": bootstrap})})

    assert_every_row_once(asyncio.run(scenario()), 40)
