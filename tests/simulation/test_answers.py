"""Every error code at every request of a writer: it ends, within a minute or two of virtual time, in progress or in an
error that names the code. And what a writer does that was forgotten, or that a transaction of somebody else hides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from random import Random
from typing import Any
from unittest import mock

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import DuplicateSequenceNumber, ProducerFenced, kafka_errors
from aiokafka.protocol.types import Array, Schema
from aiokafka.structs import OffsetAndMetadata

from agents.kafka.answers import BY_CODE, codes_in
from agents.kafka.clients import close_client, fenced_anew, fenced_producer, log_reader, tail
from agents.kafka.cluster import passes, said
from agents.kafka.lifecycle.advice import advice, explain
from agents.kafka.lifecycle.leaving import LONG_S, MOST_ALIKE, Lives
from agents.kafka.transactions import OneChanceProducer
from schemas.config.server import Kafka
from schemas.errors import (
    AccessError,
    BrokerError,
    ForgottenIdError,
    HangingTransactionError,
    OutcomeUnknownError,
    RecordSizeError,
    UnforeseenAnswerError,
)
from tests.simulation.broker import Broker
from tests.simulation.network import NAMES, Network
from tests.simulation.timeline import Process, Timeline, virtual_clocks

pytestmark = pytest.mark.seconds(8)

KAFKA = Kafka(bootstrap="broker:9092")
PLACE = ("job.releases", 0)
WRITERS = (0, 10, 22, 24, 25, 26, 28)
CODES = sorted((kafka_errors.keys() | BY_CODE.keys() | {32_000}) - {0})
BOUND_S = 130.0
Work = Callable[[Broker], Awaitable[Any]]


def with_code(schema: Schema, values: Any, code: int) -> list[Any]:
    """An answer's fields with this error in each place for one."""
    found: list[Any] = []
    for name, kind, value in zip(schema.names, schema.fields, values, strict=True):
        if name == "error_code":
            found.append(code)
        elif isinstance(kind, Array) and isinstance(kind.array_of, Schema):
            found.append([tuple(with_code(kind.array_of, row, code)) for row in value])
        else:
            found.append(value)
    return found


class Cluster:
    """A broker that answers requests of one kind with an error, if it is told to, and a process that asks it."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.broker = Broker(self.timeline, Random(1))
        self.broker.create(*PLACE[:1], 1)
        self.api, self.code = -1, 0
        handle = self.broker.handle

        def answering(request: Any, reply: Any, channel: Any) -> None:
            def changed(answer: Any) -> None:
                if self.api == request.API_KEY:
                    values = [getattr(answer, name) for name in answer.SCHEMA.names]
                    answer = type(answer)(*with_code(answer.SCHEMA, values, self.code))
                reply(answer)

            handle(request, changed, channel)

        self.broker.handle = answering  # type: ignore[method-assign]

    def run(self, work: Work) -> tuple[Any, BaseException | None, float]:
        """What comes of it: a result or an error, and how long it took; what does not end has neither."""
        found: list[tuple[Any, BaseException | None, float]] = []

        async def main() -> None:
            try:
                result, error = await work(self.broker), None
            except Exception as failed:
                result, error = None, failed
            found.append((result, error, self.timeline.now))

        with self._patched():
            begun = self.timeline.now
            process = Process(self.timeline, "p", Random(2))
            process.start(main())
            self.timeline.run(begun + 10 * BOUND_S)
        assert found, "it did not end"
        return *found[0][:2], found[0][2] - begun

    @contextmanager
    def _patched(self) -> Iterator[None]:
        network = Network(self.timeline, self.broker, Random(3))
        with ExitStack() as stack:
            stack.enter_context(virtual_clocks(self.timeline))
            for name in ("aiokafka.client.create_conn", "agents.kafka.cluster.create_conn"):
                stack.enter_context(mock.patch(name, network.connect))
            yield


async def transact(producer: OneChanceProducer, value: bytes = b"value") -> int:
    await producer.begin_transaction()
    written = await (await producer.send(PLACE[0], value, partition=0))
    offsets = {TopicPartition(*PLACE): OffsetAndMetadata(1, "")}
    await producer.send_offsets_to_transaction(offsets, "job-ingest")
    await producer.commit_transaction()
    return int(written.offset)


@asynccontextmanager
async def fenced(transactional_id: str = "job-engine-0", **settings: Any) -> AsyncIterator[OneChanceProducer]:
    producer = await fenced_producer(KAFKA, transactional_id, **settings)
    try:
        yield producer
    finally:
        await close_client(producer)


async def write(_: Broker) -> int:
    async with fenced() as producer:
        return await transact(producer)


@pytest.mark.parametrize("api", WRITERS, ids=NAMES.get)
def test_each_error_ends_in_progress_or_in_its_name(api: int) -> None:
    """A code that a client's library does not know is one of them."""
    for code in CODES:
        cluster = Cluster()
        cluster.api, cluster.code = api, code
        _, error, took_s = cluster.run(write)
        assert took_s < BOUND_S, code
        if error is None:
            continue
        told, meaning = explain(said(error)), BY_CODE.get(code, "unforeseen")
        kind = kafka_errors.get(code)
        named = f"error {code}" in told or (kind is not None and kind.__name__ in told)
        assert named or isinstance(error, ProducerFenced), (code, told)
        assert not isinstance(said(error), AssertionError), code
        assert advice(said(error)).section != "An error of the program", (code, told)
        if meaning == "unforeseen" and api != 10:
            assert isinstance(said(error), (UnforeseenAnswerError, AccessError)), (code, told)
        elif meaning == "size" and api == 0:
            assert isinstance(error, RecordSizeError)
            assert not passes(error)
        elif meaning == "forgotten" and api not in (10, 22):
            assert isinstance(error, ForgottenIdError)


def test_a_record_of_which_no_answer_says_where_it_stands_ends_its_writer() -> None:
    """aiokafka takes it for written at offset -1. Whose block is said to stand there, of the next one nobody knows that
    it is needed for the bounds of users; it is deleted, and they are counted anew.
    """
    cluster = Cluster()
    cluster.api, cluster.code = 0, DuplicateSequenceNumber.errno
    result, error, _ = cluster.run(write)
    assert result is None
    assert error is not None
    assert isinstance(said(error), UnforeseenAnswerError)


def test_what_nobody_foresaw_ends_the_worker_and_what_passes_is_told() -> None:
    lives, unforeseen = Lives(), UnforeseenAnswerError("error 44")
    for number in range(MOST_ALIKE):
        assert not lives.over(unforeseen), number
        lives = lives.ended(unforeseen, 5.0)
    assert lives.over(unforeseen)
    for _ in range(MOST_ALIKE):
        lives = lives.ended(BrokerError("away"), 5.0)
    assert not lives.over(BrokerError("away"))
    assert lives.told
    assert not lives.ended(BrokerError("away"), LONG_S).told
    assert not lives.ended(TimeoutError(), 5.0).told
    assert Lives().ended(HangingTransactionError("open"), 5.0).told, "it had lasted before it was an error"
    kept: dict[str, str] = {}
    lives.keep(kept)
    assert Lives.before(kept) == lives


def forget(broker: Broker) -> None:
    """What transactional.id.expiration.ms does."""
    broker.transactions.known.clear()


@pytest.mark.parametrize("twin", [None, "forgotten", "commits"])
def test_a_forgotten_writer_goes_on_only_where_nobody_wrote(twin: str | None) -> None:
    """Who had the id meanwhile and is forgotten too fences nobody: only what it wrote tells of it."""

    async def work(broker: Broker) -> Any:
        async with AsyncExitStack() as stack:
            producer = await stack.enter_async_context(fenced())
            newest = await transact(producer)
            if twin is not None:
                other = await stack.enter_async_context(fenced())
                if twin == "commits":
                    await transact(other, b"of another")
            forget(broker)
            with pytest.raises(ForgottenIdError):
                await transact(producer, b"refused")
            anew = await fenced_anew(KAFKA, "job-engine-0", PLACE, lambda record: record.offset == newest)
            stack.push_async_callback(close_client, anew)
            return await transact(anew, b"again")

    cluster = Cluster()
    result, error, _ = cluster.run(work)
    values = [record.value for record in cluster.broker.logs[PLACE].records(committed=True)]
    if twin == "commits":
        assert isinstance(error, OutcomeUnknownError), error
        assert values == [b"value", b"of another"]
    else:
        assert error is None, error
        assert result > 0
        assert values == [b"value", b"again"], "once, and nothing of what was refused"


@pytest.mark.parametrize("reader", ["log", "tail"])
def test_a_transaction_that_hangs_is_called_so(reader: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work(_: Broker) -> None:
        async with fenced("somebody", timeout_ms=900_000) as hanging:
            await hanging.begin_transaction()
            await (await hanging.send(PLACE[0], b"never ended", partition=0))
            if reader == "tail":
                async with tail(KAFKA, [PLACE]):
                    return
            async with log_reader(KAFKA, *PLACE) as log:
                async for _records in log.read():
                    pass

    _, error, took_s = Cluster().run(work)
    assert isinstance(error, HangingTransactionError)
    assert took_s < BOUND_S
    assert "kafka-transactions.sh find-hanging" in explain(error)
    assert caplog.messages[0].startswith("WAITING: a transaction stays open on topic job.releases, partition 0"), (
        "long before it gives up"
    )


def test_every_answer_tells_its_errors() -> None:
    """What the walk through an answer's schema finds, of a row in a row too."""
    cluster = Cluster()
    cluster.api, cluster.code = 24, 49
    heard: list[Any] = []
    hear = "agents.kafka.transactions.Answers.hear"
    with mock.patch(hear, lambda self, request, answer: heard.extend(codes_in(answer)) or []):
        cluster.run(write)
    assert (PLACE, 49) in heard
