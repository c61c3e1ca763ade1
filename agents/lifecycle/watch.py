"""Looks at the job's topics while a worker runs: clients wait in silence for one that is gone, and read on where
another has taken its name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiokafka.admin import AIOKafkaAdminClient
from mode import Service

from agents.lifecycle import stop_log
from agents.lifecycle.cancellations import LongService
from agents.lifecycle.stops import Part, Stops
from agents.topic_admin import admin_client, needed_topics
from agents.topic_ids import TopicIdentity, topic_identities
from schemas.errors import BrokerError, LostTopicError
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Config

log = logging.getLogger(__name__)

LOOK_S = 5.0
LOOKS = 2
"""A broker that has just started may not know a topic yet: it is gone if it was missing so many times in a row."""


class LostCacheError(BrokerError):
    """The changelog of the state tables is gone: the next life of this worker makes it again."""


class Looks:
    """What of the topics known at the start is there. Fed with one look after the other."""

    def __init__(self, known: Mapping[str, TopicIdentity]) -> None:
        self._known = dict(known)
        self._missing: dict[str, int] = {}

    def look(self, found: Mapping[str, TopicIdentity]) -> dict[str, str]:
        """Topic -> what has happened to it; each is told once."""
        lost: dict[str, str] = {}
        for topic, before in self._known.items():
            now = found.get(topic)
            self._missing[topic] = 0 if now is not None else self._missing.get(topic, 0) + 1
            if now is not None and now.id != before.id:
                lost[topic] = "was deleted and made again while the worker ran: what it held is gone"
            elif self._missing[topic] >= LOOKS:
                lost[topic] = "was deleted while the worker ran"
        for topic in lost:
            del self._known[topic]
        return lost


def concerned(topic: str, config: Config) -> list[tuple[str, Part]]:
    """The streams that cannot go on without a topic of the job, and which part of them. Their sources are looked at by
    the ingest, see `agents.source_check`.
    """
    topics, found = Topics(config.job.name, config.kafka.partitions), list[tuple[str, Part]]()
    for stream in config.streams:
        own = topics.published(stream.name)
        if topic in (topics.blocks, topics.releases, topics.bounds, topics.fingerprints, *own):
            found.append((stream.name, "topics"))
        elif stream.audit is not None and topic in (topics.truth, topics.utility(stream.name)):
            found.append((stream.name, "audit"))
    return found


class TopicWatch(LongService):
    """A Faust service. Also writes down what has stopped, see `agents.lifecycle.stop_log`."""

    def __init__(
        self, config: Config, stops: Stops, known: Mapping[str, TopicIdentity], **service_settings: Any
    ) -> None:
        super().__init__(**service_settings)
        self._config = config
        self._stops = stops
        self._looks = Looks(known)
        self._recorded = 0

    @Service.task
    async def _watch(self) -> None:
        while not self.should_stop:
            try:
                async with admin_client(self._config.kafka) as admin:
                    await self._look(admin)
            except stop_log.NOT_KEPT as error:
                if isinstance(error, LostCacheError):
                    raise
                await self.sleep(LOOK_S)  # a cluster that does not answer says nothing of its topics

    async def _look(self, admin: AIOKafkaAdminClient) -> None:
        names = [topic.name for topic in needed_topics(self._config)]
        while not self.should_stop:
            await self.sleep(LOOK_S)
            await self.record()
            self.judge(await topic_identities(admin, names))

    def judge(self, found: Mapping[str, TopicIdentity]) -> None:
        """Raises: LostTopicError, if nothing is left to do; LostCacheError for one that is made again at a start."""
        changelog = Topics(self._config.job.name, self._config.kafka.partitions).changelog
        for topic, reason in self._looks.look(found).items():
            for stream, part in concerned(topic, self._config):
                error = LostTopicError(f"stream {stream}: topic {topic} {reason}")
                self._stops.add(stream, part, None, error)
            if topic == changelog:
                raise LostCacheError(f"topic {topic} {reason}; it is made again and filled from the release log")

    async def record(self) -> None:
        """Write down what has stopped since. The log has it too: nothing waits for this."""
        stops = list(self._stops)
        if len(stops) == self._recorded:
            return
        try:
            async with asyncio.timeout(2 * LOOK_S):
                await stop_log.record(self._config, stops[self._recorded :])
        except stop_log.NOT_KEPT as error:
            log.debug("what has stopped was not written down: %s", type(error).__name__)
            return
        self._recorded = len(stops)


def watch_service(config: Config, stops: Stops, known: Mapping[str, TopicIdentity]) -> type[TopicWatch]:
    """The service as a class, which is what `app.service` takes."""

    class ConfiguredWatch(TopicWatch):
        def __init__(self, **service_settings: Any) -> None:
            super().__init__(config, stops, known, **service_settings)

    return ConfiguredWatch
