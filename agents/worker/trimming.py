"""Deleting private records that nothing can need again. Promptly: old seeds beside old blocks would undo the noise.

The job deletes, never time. What may go is decided by the tasks; a deletion that fails is tried again with the next
one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import KafkaError

from agents.kafka.topics import admin_client
from schemas.config import Config
from schemas.errors import PrivstreamError

log = logging.getLogger(__name__)


class Trimmer:
    """Deletes the head of one partition, in the background, one request at a time; only the highest offset counts.

    Args: held: whether nothing may be deleted now, see `Job.holds_back`.
    """

    def __init__(self, config: Config, topic: str, partition: int, *, held: Callable[[], bool] = lambda: False) -> None:
        self._held = held
        self._kafka = config.kafka
        self._keep = config.job.keep_private_log
        self._tp = TopicPartition(topic, partition)
        self._wanted = 0
        self._done = 0
        self._task: asyncio.Task[None] | None = None

    def below(self, offset: int) -> None:
        """Everything under `offset` may go."""
        self._wanted = max(self._wanted, offset)
        if (
            self._keep
            or self._held()
            or self._wanted <= self._done
            or (self._task is not None and not self._task.done())
        ):
            return
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        # Asked once more after the last await: what is wanted while the client closes must not wait for the next step.
        while self._done < self._wanted:
            try:
                await self._delete()
            except (KafkaError, PrivstreamError, OSError, TimeoutError) as error:
                log.warning("%s-%s was not trimmed: %s", self._tp.topic, self._tp.partition, type(error).__name__)
                return

    async def _delete(self) -> None:
        async with admin_client(self._kafka) as admin:
            while self._done < self._wanted:
                offset = self._wanted
                await admin.delete_records({self._tp: RecordsToDelete(offset)})
                self._done = offset
