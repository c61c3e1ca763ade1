"""What waits for its publication is held up to a limit, and read again from the log beyond it."""

from __future__ import annotations

import pytest
from aiokafka.admin import NewTopic

from agents.kafka.clients import LogQueue
from agents.local.broker.embedded import Broker
from schemas.config.server import Kafka
from schemas.errors import BrokerError
from schemas.releases import Chunk, LogRecord, Seed
from tests.kafka.support import create, fresh_name, producing

pytestmark = [pytest.mark.kafka, pytest.mark.seconds(3)]

STEPS = 40
PART = 1000
ROOM = 4_500


def records_of(stream: str) -> list[LogRecord]:
    """Seeds and candidates by turns."""
    found: list[LogRecord] = []
    for step in range(STEPS):
        found += [Seed(stream, step, bytes(32)), Chunk(stream, step, 0, 1, "digest", bytes([step]) * PART)]
    return found


async def written(bootstrap: str, topic: str) -> list[tuple[int, LogRecord]]:
    """Two streams on one partition. Returns the records of the first, by offset."""
    await create(bootstrap, NewTopic(topic, 1, 1))
    mine: list[tuple[int, LogRecord]] = []
    async with producing(bootstrap) as producer:
        for one, other in zip(records_of("mine"), records_of("other"), strict=True):
            for record in (one, other):
                sent = await producer.send_and_wait(topic, record.encode(), key=record.stream.encode(), partition=0)
                if record is one:
                    mine.append((sent.offset, one))
    return mine


async def test_all_come_in_order_and_few_are_held(broker: Broker) -> None:
    topic = fresh_name("releases")
    mine = await written(broker.bootstrap, topic)
    queue = LogQueue(Kafka(bootstrap=broker.bootstrap), topic, 0, most_bytes=ROOM)
    most = 0
    waiting, got = mine[:], []
    for _ in range(len(mine) - 10):
        queue.put(*waiting.pop(0))
        most = max(most, queue.held_bytes)
    while not queue.empty() or waiting:
        got.append(await queue.get())
        most = max(most, queue.held_bytes)
        if waiting:  # some come while others are read again
            queue.put(*waiting.pop(0))
    assert got == mine
    assert most <= ROOM + PART
    assert queue.held_bytes == 0


async def test_what_the_log_has_lost_ends_the_worker(broker: Broker) -> None:
    topic = fresh_name("releases")
    mine = await written(broker.bootstrap, topic)
    queue = LogQueue(Kafka(bootstrap=broker.bootstrap), topic, 0, most_bytes=0)
    queue.put(mine[-1][0] + 10, mine[1][1])
    with pytest.raises(BrokerError, match="no longer has offset"):
        await queue.get()


async def test_nothing_of_a_stopped_stream_is_held(broker: Broker) -> None:
    queue = LogQueue(Kafka(bootstrap=broker.bootstrap), "releases", 0, most_bytes=ROOM)
    for offset, record in enumerate(records_of("mine")):
        queue.put(offset, record)
    queue.clear()
    assert queue.empty()
    assert queue.held_bytes == 0
