"""Follows the utility topics, and asks for the job's status from time to time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from agents.kafka.clients import close_client
from agents.kafka.security import security_kwargs
from agents.kafka.status import status
from agents.kafka.topics import admin_client, topic_identities
from agents.readers.watch.events import Teller
from agents.readers.watch.operator.seen import StreamTruth
from schemas.errors import BrokerError, WireError
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Config

log = logging.getLogger(__name__)

STATUS_S, AGAIN_S = 5.0, 2.0


class OperatorReader(Teller):
    """Attributes:

    problem: why nothing can be read now; None: it reads.
    """

    def __init__(self, config: Config, streams: Sequence[StreamTruth]) -> None:
        self._config = config
        self._streams = {Topics.utility(truth.stream.name): truth for truth in streams}
        super().__init__()
        self.problem: str | None = "connecting to the cluster"

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._statuses())
            group.create_task(self._utilities())

    async def _statuses(self) -> None:
        by_name = {truth.stream.name: truth for truth in self._streams.values()}
        while True:
            try:
                for each in await status(self._config):
                    by_name[each.stream].on_status(each)
                self.problem = None
            except (BrokerError, WireError) as error:
                self.problem = str(error)
            except (KafkaError, OSError) as error:
                self.problem = f"the cluster does not answer: {type(error).__name__}"
            self._tell()
            await asyncio.sleep(STATUS_S)

    async def _utilities(self) -> None:
        while True:
            try:
                await self._follow()
            except (KafkaError, OSError, BrokerError) as error:
                log.info("the utility topics cannot be read: %s", type(error).__name__)
            await asyncio.sleep(AGAIN_S)

    async def _follow(self) -> None:
        kafka = self._config.kafka
        async with admin_client(kafka) as admin:
            found = await topic_identities(admin, sorted(self._streams))
        partitions = [TopicPartition(topic, 0) for topic in found]
        if not partitions:
            return
        consumer = AIOKafkaConsumer(
            bootstrap_servers=kafka.bootstrap,
            group_id=None,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **security_kwargs(kafka),
        )
        consumer.assign(partitions)
        try:
            await consumer.start()
            for partition in partitions:
                position = self._streams[partition.topic].position
                if position is None:
                    await consumer.seek_to_beginning(partition)
                else:
                    consumer.seek(partition, position)
            while True:
                batches = await consumer.getmany(timeout_ms=500, max_records=1_000)
                for partition, records in batches.items():
                    truth = self._streams[partition.topic]
                    for record in records:
                        truth.take(record.value)
                        truth.position = record.offset + 1
                if batches:
                    self._tell()
                await asyncio.sleep(0)
        finally:
            await close_client(consumer)
