"""What the clients of a worker hold, which has two producers for each stream and closes two readers when it starts."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from aiokafka.admin import NewTopic

from agents.kafka.clients import close_client, fenced_producer, log_reader, tail
from schemas.config.server import Kafka
from tests.kafka.support import create, fresh_name


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
async def test_a_closed_reader_does_not_wait_for_the_collector(bootstrap: str) -> None:
    topic, kafka = fresh_name("log"), Kafka(bootstrap=bootstrap)
    await create(bootstrap, NewTopic(topic, 1, 1))
    async with log_reader(kafka, topic, 0) as log, tail(kafka, [(topic, 0)]) as end:
        held = [weakref.ref(opened._consumer._client) for opened in (log, end)]
    del log, end
    await asyncio.sleep(0.1)  # whoever is told of the end holds them until then
    assert [each() for each in held] == [None, None]


async def test_a_producer_knows_of_no_topic_but_those_that_it_writes_to(bootstrap: str) -> None:
    """It asks for places again wherever a coordinator is not there yet."""
    topic, other = fresh_name("log"), fresh_name("other")
    await create(bootstrap, NewTopic(topic, 1, 1), NewTopic(other, 1, 1))
    producer = await fenced_producer(Kafka(bootstrap=bootstrap), topic, timeout_ms=10_000)
    try:
        assert await producer.client.force_metadata_update()
        assert producer.client.cluster.topics() == set()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"value", partition=0)
        assert await producer.client.force_metadata_update()
        assert producer.client.cluster.topics() == {topic}
        assert producer.client.cluster.brokers()
    finally:
        await close_client(producer)
