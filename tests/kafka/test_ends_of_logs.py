"""A log is read to the end of all that was written on it: a committed record may stand behind an open transaction.

A reader that took the committed end for the end would miss it, and a worker would draw a second seed for a step.
"""

from __future__ import annotations

import asyncio

from aiokafka.admin import NewTopic

from agents.kafka.clients import log_reader, tail
from schemas.config.server import Kafka
from tests.kafka.support import create, fresh_name, producing

SOON_S = 0.5


async def test_what_is_committed_behind_an_open_transaction_is_waited_for_and_read(bootstrap: str) -> None:
    topic, kafka = fresh_name("log"), Kafka(bootstrap=bootstrap)
    await create(bootstrap, NewTopic(topic, 1, 1))

    async def read() -> list[bytes]:
        async with log_reader(kafka, topic, 0) as log:
            return [record.value async for records in log.read() for record in records]

    async def newest() -> bytes:
        async with tail(kafka, [(topic, 0)]) as end:
            async for record in end.backwards((topic, 0)):
                return bytes(record.value)
        return b""

    async with (
        producing(bootstrap, transactional_id=f"{topic}-open") as open_one,
        producing(bootstrap, transactional_id=f"{topic}-other") as other,
    ):
        await open_one.begin_transaction()
        await open_one.send_and_wait(topic, b"hidden")
        async with other.transaction():
            await other.send_and_wait(topic, b"committed")
        readers = [asyncio.create_task(read()), asyncio.create_task(newest())]
        done, _ = await asyncio.wait(readers, timeout=SOON_S)
        assert not done, "a reader ended before what is committed could be seen"
        await open_one.abort_transaction()
        assert await asyncio.gather(*readers) == [[b"committed"], b"committed"]
