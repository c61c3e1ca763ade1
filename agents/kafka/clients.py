"""Kafka clients as this job needs them: fenced producers, and readers of partitions to a known end.

Who a client is: `agents.kafka.security`. Why it is not answered: `agents.kafka.cluster`.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import READ_UNCOMMITTED
from aiokafka.errors import KafkaError

from agents.kafka.answers import Answers, heed
from agents.kafka.batches import ReadBatches
from agents.kafka.cluster import no_answer
from agents.kafka.lifecycle.advice import explain
from agents.kafka.lifecycle.cancellations import finish_before_cancellation
from agents.kafka.lifecycle.logs import Reminder
from agents.kafka.security import security_kwargs
from agents.kafka.transactions import OneChanceProducer
from schemas.config import Kafka
from schemas.errors import BrokerError, HangingTransactionError, OutcomeUnknownError
from schemas.releases import Chunk, LogRecord, decode_log_record
from schemas.topics import BATCH_BYTES, TopicAndPartition

log = logging.getLogger(__name__)

fetcher.MemoryRecords = ReadBatches  # of all consumers of this process: one record must not end them

TRANSACTION_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_MS = 8_000
FENCE_TIMEOUT_S = 30.0
MAX_REQUEST_BYTES = 6 << 20  # above any block (4 MiB) and any chunk of a candidate
READ_TIMEOUT_S = 60.0
SOON_S = 5.0  # after which it is said that reading does not go on
CLOSE_S = 10.0


async def fenced_producer(
    kafka: Kafka, transactional_id: str, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS
) -> OneChanceProducer:
    """Start a producer. From now on no earlier holder of this id can commit, and what it had open is settled.

    It sends each request once: after one that was not answered it raises OutcomeUnknownError and is of no more use, see
    `agents.kafka.transactions`. Make a new one and read what was committed.

    Args:
        timeout_ms: after which the broker ends a transaction that nobody ended. A successor ends it at once.

    Raises: BrokerError if the cluster does not answer.
    """
    producer = OneChanceProducer(
        bootstrap_servers=kafka.bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        max_request_size=MAX_REQUEST_BYTES,
        max_batch_size=BATCH_BYTES,
        linger_ms=0,
        **security_kwargs(kafka),
    )
    try:
        async with asyncio.timeout(FENCE_TIMEOUT_S):  # `wait_for` loses cancellations, see agents/worker/table.py
            await producer.start()
    except BaseException as error:
        await close_client(producer)
        if isinstance(error, (KafkaError, OSError, TimeoutError)):
            what = f"no transactions as {transactional_id}"
            raise await no_answer(kafka, what, error, producer.answers) from error
        raise
    return producer


async def write(kafka: Kafka, topic: str, records: Mapping[bytes, bytes | None], **settings: Any) -> None:
    """Write records to partition 0 of a topic, each when the one before is there. Raises: KafkaError, OSError."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, acks="all", **settings, **security_kwargs(kafka))
    try:
        await producer.start()
        for key, value in records.items():
            await producer.send_and_wait(topic, value, key=key, partition=0)
    finally:
        await close_client(producer)


async def close_client(*clients: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Stop a client, however its broker is. What goes wrong with that never stands in for the error that led here.

    Several are stopped at a time and in one call: a cancellation is heeded behind the call, and would leave the second
    of two open. So would one while a client starts, if that stood before the `try` whose end is this.

    aiokafka's `stop` raises what its background tasks died of, even that they were cancelled, and then leaves its
    connections open. Cut off, it leaves its tasks running.
    """
    await finish_before_cancellation(asyncio.gather(*map(_stop, clients)))


async def _stop(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    stopping = asyncio.ensure_future(client.stop())
    if not await _over(stopping):  # its broker does not answer, and would not learn of it either
        stopping.cancel()
        await _over(stopping)
    if not stopping.done() or stopping.cancelled() or stopping.exception() is not None:
        connections = client._client if isinstance(client, AIOKafkaConsumer) else client.client
        closing = asyncio.ensure_future(connections.close())
        if await _over(closing) and not closing.cancelled():
            closing.exception()  # looked at, and of no use to anybody


async def _over(work: asyncio.Future[None]) -> bool:
    """Return whether it ends in time."""
    return bool((await asyncio.wait([work], timeout=CLOSE_S))[0])


def hanging(topic: str, partition: int, what: str) -> HangingTransactionError:
    """Return what to raise where committed records cannot be read for a transaction that stays open."""
    return HangingTransactionError(
        f"a transaction stays open on topic {topic}, partition {partition}, and hides what was committed behind it "
        f"({what})"
    )


@dataclass(frozen=True, slots=True)
class LogReader:
    """A partition of a private topic, from its first record to where it ended when it was opened.

    Attributes:
        beginning: first offset that is still there.
        end: offset after the last record, also of transactions that were still open then: reading waits for them, since
            a record that was committed before the opening may stand behind one.
    """

    topic: TopicPartition
    beginning: int
    end: int
    _consumer: AIOKafkaConsumer
    _answers: Answers

    async def read(self, start: int = 0, *, timeout_s: float = READ_TIMEOUT_S) -> AsyncIterator[list[Any]]:
        """Yield committed records from `start` on, in batches. Raises: BrokerError if none comes for `timeout_s`."""
        position = max(start, self.beginning)
        self._consumer.seek(self.topic, position)
        moved, reminder = time.monotonic(), Reminder()
        while position < self.end:
            for records in (await self._consumer.getmany(timeout_ms=200)).values():
                yield [record for record in records if record.offset < self.end]
            before, position = position, await self._consumer.position(self.topic)
            if position > before:
                moved = time.monotonic()
            elif time.monotonic() - moved > timeout_s:
                raise self._stands(position)
            elif time.monotonic() - moved > SOON_S and reminder.due("stands"):
                log.warning("WAITING: %s", explain(self._stands(position)))

    def _stands(self, position: int) -> BrokerError:
        """Return why reading does not come to the end: the cluster says so, or a transaction is in the way."""
        where = f"{self.topic.topic}-{self.topic.partition} is read up to offset {position} of {self.end}"
        if (refused := self._answers.lasting()) is not None:
            return type(refused)(f"{where}: {refused}")
        return hanging(self.topic.topic, self.topic.partition, where)


async def ends_of_everything(consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition]) -> dict[Any, int]:
    """Ask a consumer of committed records where partitions end with all that was written, open transactions included.

    aiokafka tells only those who read everything. Here a copy of what asks for its consumer asks, once: a client of its
    own takes longer to start than all that is asked of it, and a worker with 200 streams had hundreds of them.
    """
    asking = copy.copy(consumer._fetcher)
    asking._isolation_level = READ_UNCOMMITTED
    found: dict[Any, int] = await asking.end_offsets(partitions, consumer._request_timeout_ms)
    return found


@asynccontextmanager
async def reading(
    kafka: Kafka, what: str, topics: Collection[str], *, isolation: str = "read_committed", **settings: Any
) -> AsyncIterator[tuple[AIOKafkaConsumer, Answers]]:
    """Open a consumer that belongs to no group and knows where these topics are.

    Args:
        what: what cannot be done where the cluster does not answer, to begin the sentence with.
        isolation: of its records, and of the ends that it is told.
        settings: others of `AIOKafkaConsumer`.
    Raises: BrokerError, also of what is asked of the consumer while it is open.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap,
        enable_auto_commit=False,
        isolation_level=isolation,
        **settings,
        **security_kwargs(kafka),
    )
    answers = heed(consumer._client)
    try:
        await consumer.start()
        # One request for all of them: aiokafka does not ask where a topic is before it needs a partition, and then lets
        # a tenth of a second pass, for each topic anew.
        await consumer._client.set_topics(topics)
        yield consumer, answers
    except (KafkaError, OSError) as error:
        raise await no_answer(kafka, what, error, answers) from error
    finally:
        await close_client(consumer)
        # It still holds itself, by aiokafka's listeners and by `heed`, and the collector would come to it late: a
        # worker that starts opens and closes two for each stream.
        consumer._client.cluster._listeners.clear()
        del consumer._client.send


@asynccontextmanager
async def log_reader(kafka: Kafka, topic: str, partition: int) -> AsyncIterator[LogReader]:
    """Open a private topic's partition for reading to its end. Raises: BrokerError."""
    tp = TopicPartition(topic, partition)
    settings: dict[str, Any] = {"auto_offset_reset": "none", "max_partition_fetch_bytes": 4 << 20}
    async with reading(kafka, f"{topic}-{partition} cannot be read", [topic], **settings) as (consumer, answers):
        # The committed end could stand before records that are committed, held back by another's open transaction.
        end = (await ends_of_everything(consumer, [tp]))[tp]
        consumer.assign([tp])
        beginning = (await consumer.beginning_offsets([tp]))[tp]
        yield LogReader(tp, beginning, end, consumer, answers)


async def read_to_end(kafka: Kafka, topic: str, partition: int) -> list[Any]:
    """Return all that is committed, up to the present end. Raises: BrokerError."""
    async with log_reader(kafka, topic, partition) as log:
        return [record async for batch in log.read() for record in batch]


@asynccontextmanager
async def follower(
    kafka: Kafka, positions: Mapping[TopicPartition, int | None], *, isolation: str = "read_committed"
) -> AsyncIterator[AIOKafkaConsumer]:
    """Open a consumer that belongs to no group and commits nothing.

    Args:
        positions: the offset from which it reads each partition; None: its first record.
        isolation: of its records, and of the ends that it is told.
    Raises: KafkaError, OSError.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap,
        group_id=None,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **security_kwargs(kafka),
    )
    consumer.assign(list(positions))
    try:
        await consumer.start()
        for partition, offset in positions.items():
            if offset is None:
                await consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, offset)
        yield consumer
    finally:
        await close_client(consumer)


SETTLE_S = 30.0
FIRST_WINDOW = 64  # records at the end of a partition that are looked at first
COUNTED = 500  # records of a partition that are counted one by one


class Tail:
    """The ends of some partitions, by `tail`: what was committed when it was made, or renewed last.

    Attributes:
        begins, ends: first and next offset of each partition.
    """

    def __init__(
        self, consumer: Any, begins: Mapping[TopicAndPartition, int], ends: Mapping[TopicAndPartition, int]
    ) -> None:
        self._consumer = consumer
        self.begins = begins
        self.ends = ends

    async def overtaken(self, tp: TopicAndPartition) -> bool:
        """Return whether records of this partition were deleted meanwhile: there may have been more than is found."""
        begins = await self._consumer.beginning_offsets([TopicPartition(*tp)])
        return bool(begins[tp] > self.begins[tp])

    async def renew(self) -> None:
        """See what is there by now."""
        partitions = [TopicPartition(*tp) for tp in self.ends]
        self.begins = await self._consumer.beginning_offsets(partitions)
        self.ends = await self._consumer.end_offsets(partitions)

    async def newest(self, tp: TopicAndPartition, match: Callable[[Any], bool] = lambda record: True) -> Any:
        """Return the last committed record that matches, or None."""
        async for record in self.backwards(tp):
            if match(record):
                return record
        return None

    async def backwards(self, tp: TopicAndPartition) -> AsyncIterator[Any]:
        """Yield committed records from the end to the beginning, read in windows that grow."""
        partition, until, window = TopicPartition(*tp), self.ends[tp], FIRST_WINDOW
        while until > self.begins[tp]:
            start = max(self.begins[tp], until - window)
            found = []
            self._consumer.seek(partition, start)
            while await self._consumer.position(partition) < until:
                batch = await self._consumer.getmany(partition, timeout_ms=20)
                found += [record for record in batch.get(partition, []) if record.offset < until]
            for record in reversed(found):
                yield record
            until, window = start, window * 8

    async def left(self, starts: Mapping[TopicAndPartition, int]) -> dict[TopicAndPartition, int]:
        """Count committed records from an offset of each partition to its end.

        Where there are more than `COUNTED`, offsets of the others: then markers of transactions and what was aborted
        count too. What was deleted is not there any more.
        """
        found = dict.fromkeys(starts, 0)
        reading = {TopicPartition(*tp): self.ends[tp] for tp, start in starts.items() if start < self.ends[tp]}
        for tp in reading:
            self._consumer.seek(tp, max(starts[tp], self.begins[tp]))
        while reading:
            batches = await self._consumer.getmany(*reading, timeout_ms=20)
            for tp, end in list(reading.items()):
                found[tp] += sum(record.offset < end for record in batches.get(tp, []))
                ahead = end - await self._consumer.position(tp)
                if ahead <= 0 or found[tp] >= COUNTED:
                    found[tp] += max(0, ahead)
                    del reading[tp]
        return found


@asynccontextmanager
async def tail(kafka: Kafka, tps: Sequence[TopicAndPartition], *, wait: bool = True) -> AsyncIterator[Tail]:
    """Open the ends of some partitions.

    Args:
        wait: until no transaction is open on them: a record behind an open one cannot be seen.
    Raises: HangingTransactionError if one stays open; BrokerError if the cluster does not answer.
    """
    partitions = [TopicPartition(*tp) for tp in tps]
    topics = {tp.topic for tp in partitions}
    # A seek waits for the fetch under way, and that one waits where nothing comes: by default half a second.
    async with reading(kafka, "the topics cannot be read", topics, fetch_max_wait_ms=20) as (committed, _):
        committed.assign(partitions)
        begins = await committed.beginning_offsets(partitions)
        begun, reminder = time.monotonic(), Reminder()
        while True:
            ends = await committed.end_offsets(partitions)
            there = await ends_of_everything(committed, partitions) if wait else ends
            if (behind := next((tp for tp in partitions if ends[tp] < there[tp]), None)) is None:
                break
            open_there = hanging(behind.topic, behind.partition, f"read up to offset {ends[behind]}")
            if (waited_s := time.monotonic() - begun) > SETTLE_S:
                raise open_there
            if waited_s > SOON_S and reminder.due("open"):
                log.warning("WAITING: %s", explain(open_there))
            await asyncio.sleep(0.2)
        yield Tail(committed, begins, ends)


async def fenced_anew(
    kafka: Kafka,
    transactional_id: str,
    tp: TopicAndPartition,
    same: Callable[[Any], bool],
    *,
    timeout_ms: int = TRANSACTION_TIMEOUT_MS,
) -> OneChanceProducer:
    """Start a producer in place of one whose transactional id the cluster has forgotten, for a writer that goes on with
    what it has in memory. Brokers forget an id that nobody used for `transactional.id.expiration.ms`, seven days by
    default, which a stream with steps of a month meets at each of them. Nothing of the transaction that met it was
    written: its first request is what was refused.

    Who had the id meanwhile may be forgotten too, so no fence tells of it. What it committed does: nobody but a holder
    of the id writes to `tp`, so where its newest record is the one that this writer knows, nothing was.

    Args: tp: a partition to which every transaction of the id writes. same: whether its newest committed record, None
        where there is none, is the one that is known.
    Raises: BrokerError, also where it is not: begin anew, and read what was committed.
    """
    producer = await fenced_producer(kafka, transactional_id, timeout_ms=timeout_ms)
    try:
        # Behind the fence: nobody adds to it any more.
        async with tail(kafka, [tp]) as end:
            if not same(await end.newest(tp)):
                raise OutcomeUnknownError(
                    f"{tp[0]}-{tp[1]} does not end as transactional id {transactional_id} left it, and the cluster had "
                    "forgotten that id: another holder of it may have written there"
                )
    except BaseException:
        await close_client(producer)
        raise
    log.info(
        "transactional id %s was forgotten by the cluster, as nobody had used it: it has it anew", transactional_id
    )
    return producer


MOST_BYTES = 16 << 20


class LogQueue:
    """A first-in, first-out queue of one stream's records on a partition of the release log.

    The publisher of a stream can be behind its engine for long: by `publish_delay`, or because writing a step takes
    longer than computing it. What it has not published stays on the release log, so it need not be kept here as well.
    At most `most_bytes` of them are held, beside one record of any size; the others are read again, as many at once as
    may be held, when it is their turn. Nothing is trimmed meanwhile: a step that is not public is needed.
    """

    def __init__(self, kafka: Kafka, topic: str, partition: int, *, most_bytes: int | None = None) -> None:
        self._kafka, self._topic, self._partition = kafka, topic, partition
        self._most_bytes = MOST_BYTES if most_bytes is None else most_bytes
        self._order: asyncio.Queue[tuple[int, LogRecord | None]] = asyncio.Queue()
        self._left: set[int] = set()  # offsets of those that are not here
        self._again: dict[int, LogRecord] = {}
        self.held_bytes = 0

    def put(self, offset: int, record: LogRecord) -> None:
        """Add a record that was read at `offset`; offsets ascend."""
        if self.held_bytes + _size(record) > self._most_bytes:
            self._left.add(offset)
            self._order.put_nowait((offset, None))
        else:
            self.held_bytes += _size(record)
            self._order.put_nowait((offset, record))

    def empty(self) -> bool:
        return self._order.empty()

    async def get(self) -> tuple[int, LogRecord]:
        """Wait for the next record; return its offset and it. Raises: BrokerError, then start anew."""
        offset, record = await self._order.get()
        if record is None:
            if offset not in self._again:
                await self._read(offset)
            record = self._again.pop(offset)
            self._left.discard(offset)
        self.held_bytes -= _size(record)
        return offset, record

    def clear(self) -> None:
        """Forget what waits: nothing of it is needed."""
        self._order = asyncio.Queue()
        self._left, self._again, self.held_bytes = set(), {}, 0

    async def _read(self, begin: int) -> None:
        """Read those that were left, from `begin` on."""
        async with log_reader(self._kafka, self._topic, self._partition) as log:
            async for records in log.read(begin):
                for record in records:
                    if record.offset in self._left and (not self._again or self.held_bytes < self._most_bytes):
                        found = self._again[record.offset] = decode_log_record(record.value)
                        self.held_bytes += _size(found)
                if self.held_bytes >= self._most_bytes or self._left <= self._again.keys():
                    break
        if begin not in self._again:
            raise BrokerError(f"{self._topic}-{self._partition} no longer has offset {begin}, which is needed")


def _size(record: LogRecord) -> int:
    return len(record.part) if isinstance(record, Chunk) else 0
