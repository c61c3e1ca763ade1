"""Kafka clients as this job needs them: fenced, and reading to a known end. Who they are: `agents.kafka.security`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from agents.kafka.answers import Answers, heed
from agents.kafka.lifecycle.advice import explain
from agents.kafka.lifecycle.cancellations import to_the_end
from agents.kafka.lifecycle.logs import Reminder
from agents.kafka.refusals import no_answer
from agents.kafka.security import security_kwargs
from agents.kafka.transactions import OneChanceProducer
from schemas.errors import BrokerError, HangingTransactionError
from schemas.topics import BATCH_BYTES

if TYPE_CHECKING:
    from schemas.config.server import Kafka

log = logging.getLogger(__name__)

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
    """A started producer. From now on no earlier holder of this id can commit, and what it had open is settled.

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


async def close_client(*clients: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Stop a client, however its broker is. What goes wrong with that never stands in for the error that led here.

    Several are stopped at a time and in one call: a cancellation is heeded behind the call, and would leave the second
    of two open. So would one while a client starts, if that stood before the `try` whose end is this.

    aiokafka's `stop` raises what its background tasks died of, even that they were cancelled, and then leaves its
    connections open. Cut off, it leaves its tasks running.
    """
    await to_the_end(asyncio.gather(*map(_stop, clients)))


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
    """Whether it ends in time."""
    return bool((await asyncio.wait([work], timeout=CLOSE_S))[0])


def hanging(topic: str, partition: int, what: str) -> HangingTransactionError:
    """What to raise where committed records cannot be read for a transaction that stays open."""
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
        """Committed records from `start` to `end`, in batches. Raises: BrokerError if nothing moves for `timeout_s`."""
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
        """Why reading does not come to the end: the cluster says so, or a transaction is in the way."""
        where = f"{self.topic.topic}-{self.topic.partition} is read up to offset {position} of {self.end}"
        if (refused := self._answers.lasting()) is not None:
            return type(refused)(f"{where}: {refused}")
        return hanging(self.topic.topic, self.topic.partition, where)


@asynccontextmanager
async def log_reader(kafka: Kafka, topic: str, partition: int) -> AsyncIterator[LogReader]:
    """Open a private topic's partition for reading to its end. Raises: BrokerError."""
    tp = TopicPartition(topic, partition)
    common = {"bootstrap_servers": kafka.bootstrap, "auto_offset_reset": "none", **security_kwargs(kafka)}
    # The end of everything is only told to those who read everything; the committed end could stand before records
    # that are committed, held back by another's open transaction.
    everything = AIOKafkaConsumer(**common, isolation_level="read_uncommitted")
    committed = AIOKafkaConsumer(**common, isolation_level="read_committed", max_partition_fetch_bytes=4 << 20)
    answers = heed(everything._client)
    try:
        await everything.start()
        end = (await everything.end_offsets([tp]))[tp]
        answers = heed(committed._client)
        await committed.start()
        committed.assign([tp])
        beginning = (await committed.beginning_offsets([tp]))[tp]
        yield LogReader(tp, beginning, end, committed, answers)
    except (KafkaError, OSError) as error:
        raise await no_answer(kafka, f"{topic}-{partition} cannot be read", error, answers) from error
    finally:
        await close_client(everything, committed)


async def read_to_end(
    kafka: Kafka, topic: str, partition: int, start: int, *, timeout_s: float = READ_TIMEOUT_S
) -> tuple[int, int, list[Any]]:
    """Everything committed from `start` to the present end: `(beginning, end, records)`, see `LogReader`.

    Raises: BrokerError.
    """
    async with log_reader(kafka, topic, partition) as log:
        records = [record async for batch in log.read(start, timeout_s=timeout_s) for record in batch]
        return log.beginning, log.end, records
