"""Deleting private records that nothing can need again. Promptly: old seeds beside old blocks would undo the noise.

The job deletes, never time. What may go is decided by the tasks; a deletion that fails is tried again with the next
one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import KafkaError

from agents.kafka.topics import admin_client
from schemas.config import Config
from schemas.errors import PrivstreamError

log = logging.getLogger(__name__)

TOGETHER_S = 0.2
"""How long a deletion waits for others: a request takes many partitions as quickly as one."""


class Deletions:
    """The deletions of a worker. One client makes them, in the background, and one request has all that wait."""

    def __init__(self, config: Config) -> None:
        self._kafka = config.kafka
        self._keep = config.job.keep_private_log
        self._wanted: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}
        self._task: asyncio.Task[None] | None = None

    def below(self, partition: TopicPartition, offset: int) -> None:
        """Delete everything under `offset`; only the highest of a partition counts."""
        if self._keep or offset <= self._done.get(partition, 0):
            return
        self._wanted[partition] = max(offset, self._wanted.get(partition, 0))
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            async with admin_client(self._kafka) as admin:
                while self._wanted:
                    await asyncio.sleep(TOGETHER_S)
                    wanted = list(self._wanted)
                    # It would ask for the leaders of every topic of the cluster, which can be thousands.
                    topics = list({each.topic for each in wanted})
                    admin._get_cluster_metadata = partial(type(admin)._get_cluster_metadata, admin, topics)
                    if await self._deleted(admin, wanted):
                        continue
                    # One that refuses keeps no other.
                    if len(wanted) == 1 or not all([await self._deleted(admin, [each]) for each in wanted]):
                        return
        except (KafkaError, PrivstreamError, OSError, TimeoutError) as error:
            _tell(self._wanted, error)

    async def _deleted(self, admin: AIOKafkaAdminClient, partitions: Collection[TopicPartition]) -> bool:
        """Delete what is wanted of these partitions. Returns: whether all of them did it."""
        offsets = {each: self._wanted[each] for each in partitions}
        try:
            await admin.delete_records({each: RecordsToDelete(offset) for each, offset in offsets.items()})
        except KafkaError as error:
            if len(partitions) == 1:
                _tell(partitions, error)
            return False
        self._done |= offsets
        self._wanted = {each: offset for each, offset in self._wanted.items() if offset > self._done.get(each, 0)}
        return True


def _tell(partitions: Collection[TopicPartition], error: Exception) -> None:
    names = ", ".join(f"{each.topic}-{each.partition}" for each in partitions)
    log.warning("%s: not trimmed, %s", names, type(error).__name__)


class Trimmer:
    """The deletions of one partition. Args: held: whether nothing may be deleted now, see `Job.holds_back`."""

    def __init__(
        self, deletions: Deletions, topic: str, partition: int, *, held: Callable[[], bool] = lambda: False
    ) -> None:
        self._deletions = deletions
        self._partition = TopicPartition(topic, partition)
        self._held = held

    def below(self, offset: int) -> None:
        """Delete everything under `offset`, if nothing is held back."""
        if not self._held():
            self._deletions.below(self._partition, offset)
