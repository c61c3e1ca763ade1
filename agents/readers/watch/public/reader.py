"""Reads public topics as any consumer does, as long as the page is served; goes on after the cluster was away."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from agents.kafka.clients import close_client
from agents.kafka.security import security_kwargs
from agents.kafka.topics import admin_client, topic_identities
from agents.readers.watch.events import Teller
from agents.readers.watch.public.seen import StreamSeen
from schemas.errors import BrokerError
from schemas.releases import CHANNELS, Channel, public_step
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Kafka

log = logging.getLogger(__name__)

AGAIN_S, MISSING_S, ASK_S = 1.0, 5.0, 5.0
BATCH = 2_000
"""Records between two turns of whoever else has something to do in this event loop."""


class PublicReader(Teller):
    """Feeds what is public to what has been seen.

    Attributes:
        problem: why nothing can be read now, in words for everybody; None: it reads.
        behind: records of the topics that were there when it (re)connected and are not read yet.
    """

    def __init__(self, kafka: Kafka, streams: Sequence[StreamSeen]) -> None:
        self._kafka = kafka
        self._channels: dict[str, tuple[StreamSeen, Channel]] = {}
        for seen in streams:
            for topic, channel in zip(Topics.published(seen.stream.name), CHANNELS, strict=True):
                self._channels[topic] = (seen, channel)
        self._streams = tuple(streams)
        self._ids: dict[str, str] = {}
        self._missing: str | None = None
        super().__init__()
        self.problem: str | None = "connecting to the cluster"
        self.behind = 0

    @property
    def topics(self) -> list[str]:
        """All that it ever reads."""
        return sorted(self._channels)

    async def run(self) -> None:
        """For ever. Where it was ended it may be run again: what has been seen is not its own to close."""
        while True:
            try:
                await self._follow()
            except (KafkaError, OSError, BrokerError) as error:
                log.info("the public topics cannot be read: %s", type(error).__name__)
                self._say("the cluster does not answer")
            await asyncio.sleep(AGAIN_S)

    def _say(self, problem: str | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self._tell()

    async def _follow(self) -> None:
        partitions = await self._there()
        if not partitions:
            return
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._kafka.bootstrap,
            group_id=None,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **security_kwargs(self._kafka),
        )
        consumer.assign(partitions)
        try:
            await consumer.start()
            for partition in partitions:
                seen, _ = self._channels[partition.topic]
                if partition.topic in seen.positions:
                    consumer.seek(partition, seen.positions[partition.topic])
                else:
                    await consumer.seek_to_beginning(partition)
            ends = await consumer.end_offsets(partitions)
            again = time.monotonic() + MISSING_S
            # Each ledger first: what then belongs to no entry is not of the job, and little of it is held.
            ledgers = [each for each in partitions if self._channels[each.topic][1] == "ledger"]
            held = [each for each in partitions if each not in ledgers]
            consumer.pause(*held)
            asked = quiet = time.monotonic()
            while len(partitions) == len(self._channels) or time.monotonic() < again:
                if time.monotonic() - asked > ASK_S:  # a consumer waits for a cluster that is away, and says nothing
                    async with asyncio.timeout(ASK_S):
                        await consumer.end_offsets(partitions)
                    asked = time.monotonic()
                batches = await consumer.getmany(timeout_ms=250, max_records=BATCH)
                for partition, records in batches.items():
                    self._take(partition.topic, records)
                quiet = time.monotonic() if batches else quiet
                read = [await consumer.position(each) >= ends[each] for each in ledgers]
                if held and (all(read) or time.monotonic() - quiet > ASK_S):
                    consumer.resume(*held)
                    held = []
                async with asyncio.timeout(3 * ASK_S):
                    await self._settle(consumer, partitions)
                    left = [max(0, ends[each] - await consumer.position(each)) for each in partitions]
                self.behind = sum(left)
                self._say(self._missing)
                await asyncio.sleep(0)
        finally:
            await close_client(consumer)

    def _take(self, topic: str, records: Sequence[Any]) -> None:
        seen, channel = self._channels[topic]
        for record in records:
            try:
                seen.take(channel, public_step(record.headers), record.key, record.value)
            finally:  # a record that ends the reader must not end it again, once it begins anew
                seen.positions[topic] = record.offset + 1

    async def _settle(self, consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        """What is not settled by what follows it is whole once everything was read that was committed after its entry
        was seen: a step is one transaction, but its partitions are not shown at one time.
        """
        told = [seen.settle(time.time()) for seen in self._streams]
        waiting = {seen.stream.name: step for seen in self._streams if (step := seen.open) is not None}
        if waiting:
            ends = await consumer.end_offsets(partitions)
            behind = {
                self._channels[partition.topic][0].stream.name
                for partition in partitions
                if await consumer.position(partition) < ends[partition]
            }
            told += [
                seen.settle(time.time(), waiting[seen.stream.name])
                for seen in self._streams
                if seen.stream.name in waiting.keys() - behind
            ]
        if any(told):
            self._tell()

    async def _there(self) -> list[TopicPartition]:
        """The topics that exist, of streams of which all do. Asking for one that does not could create it."""
        async with admin_client(self._kafka) as admin:
            found = await topic_identities(admin, self.topics)
        for name, each in found.items():
            if self._ids.setdefault(name, each.id) != each.id:
                self._say(f"topic {name} was deleted and made anew. Start privstream watch again to read it")
                return []
        missing = [name for name in self.topics if name not in found]
        lacking = {self._channels[name][0].stream.name for name in missing}
        self._missing = f"topic {missing[0]} does not exist yet" if missing else None
        if missing:
            self._say(self._missing)
        return [
            TopicPartition(topic, 0) for topic, (seen, _) in self._channels.items() if seen.stream.name not in lacking
        ]
