"""A reader that is closed is freed at once: a worker opens and closes two for each stream before it is ready."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from aiokafka.admin import NewTopic

from agents.kafka.clients import log_reader, tail
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
