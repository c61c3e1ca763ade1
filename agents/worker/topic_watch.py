"""Looks at the job's topics while a worker runs: clients wait in silence for one that is gone, and read on where
another has taken its name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from mode import Service

from agents.kafka import stop_log
from agents.kafka.cluster import access_error, until_it_answers
from agents.kafka.lifecycle.advice import explain
from agents.kafka.lifecycle.cancellations import LongService
from agents.kafka.lifecycle.logs import Reminder
from agents.kafka.lifecycle.stops import STOPPED, Part, Stop, Stops
from agents.kafka.lifecycle.vitals import Vitals
from agents.kafka.status import status
from agents.kafka.topics import TopicIdentity, admin_client, needed_topics, topic_answers
from agents.protocol.partitioner import home_partition
from schemas.config import Config
from schemas.errors import AccessError, BrokerError, LostTopicError

log = logging.getLogger(__name__)

LOOK_S = 5.0
AGAIN_S = 60.0
"""How often what has stopped here is looked for in the record of it, from which another worker's start takes it."""
LOOKS = 2
"""A broker that has just started may not know a topic yet: it is gone if it was missing so many times in a row."""


class LostCacheError(BrokerError):
    """The changelog of the state tables is gone: the next life of this worker makes it again."""


class Looks:
    """What of the topics known at the start is there. Fed with one look after the other."""

    def __init__(self, known: Mapping[str, TopicIdentity]) -> None:
        self._known = dict(known)
        self._missing: dict[str, int] = {}

    def look(self, found: Mapping[str, TopicIdentity], untold: Collection[str] = ()) -> dict[str, str]:
        """Tell what has happened to which topic, each thing once. Of those that are `untold` nothing is known now."""
        lost: dict[str, str] = {}
        for topic, before in self._known.items():
            if topic in untold:
                continue
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
    """Return the streams that cannot go on without a topic of the job, and which part of them. Their sources are looked
    at by the ingest, see `agents.kafka.fingerprint`.
    """
    topics, found = config.topics, list[tuple[str, Part]]()
    for stream in config.streams:
        own = topics.published(stream.name)
        if topic in (topics.blocks, topics.releases, topics.bounds, topics.fingerprints, *own):
            found.append((stream.name, "topics"))
        elif stream.audit is not None and topic in (topics.held_out, topics.utility(stream.name)):
            found.append((stream.name, "audit"))
    return found


class TopicWatch(LongService):
    """A Faust service. Also writes down what stops while the worker lives, see `agents.kafka.stop_log`."""

    def __init__(
        self,
        config: Config,
        stops: Stops,
        known: Mapping[str, TopicIdentity],
        vitals: Vitals,
        **service_settings: Any,
    ) -> None:
        super().__init__(**service_settings)
        self._config = config
        self._stops = stops
        self._looks = Looks(known)
        self._vitals = vitals
        self._before: list[Stop] | None = None
        self._record_s = 0.0
        self._reminder = Reminder()

    @Service.task
    async def _watch(self) -> None:
        while not self.should_stop:
            try:
                async with admin_client(self._config.kafka) as admin:
                    await self._look(admin)
            except stop_log.NOT_KEPT as error:
                if isinstance(error, LostCacheError):
                    raise
                self._say_refused(error)
                await self.sleep(LOOK_S)  # a cluster that does not answer says nothing of its topics
                await self._wait_for_it()

    async def _wait_for_it(self) -> None:
        """While nothing is under way that could fail, clients look for their brokers in silence: who reads the log
        hears of it here.
        """
        try:
            await until_it_answers(self._config.kafka)
        except AccessError as error:
            self._say_refused(error)

    async def _look(self, admin: AIOKafkaAdminClient) -> None:
        names = [topic.name for topic in needed_topics(self._config)]
        while not self.should_stop:
            await self.sleep(LOOK_S)
            await self.end_if_nothing_waits()
            found, untold = await topic_answers(admin, names)
            for error in untold.values():
                self._say_refused(error)
            self.judge(found, untold)

    def _say_refused(self, error: BaseException) -> None:
        """A cluster that refuses will do so for as long as nobody hears of it; one that does not answer says so."""
        if (refused := access_error(error)) is not None and self._reminder.due(str(refused)):
            log.error("topics of the job cannot be looked at: %s", explain(refused))

    def judge(self, found: Mapping[str, TopicIdentity], untold: Collection[str] = ()) -> None:
        """Raises: LostTopicError, if nothing is left to do; LostCacheError for one that is made again at a start."""
        for topic, reason in self._looks.look(found, untold).items():
            for stream, part in concerned(topic, self._config):
                error = LostTopicError(f"stream {stream}: topic {topic} {reason}")
                self._stops.add(stream, part, None, error)
            if topic == self._config.topics.changelog:
                raise LostCacheError(f"topic {topic} {reason}; it is made again, and filled from state stores")

    async def end_if_nothing_waits(self) -> None:
        """End the worker where every stream has stopped, once what was taken in and answered before is public.

        Raises: what stopped last; BrokerError if that cannot be told now.
        """
        if self._stops.error is None or not self._stops.nothing_left:
            return
        states = await status(self._config)
        if not any(self._stops.waits(each.stream, published=each.published, closed=each.over) for each in states):
            raise self._stops.error

    @Service.task
    async def _keep_record(self) -> None:
        while not self.should_stop:
            await self.record()
            await self.wait(self._stops.news, timeout=LOOK_S)

    async def record(self) -> None:
        """Write down what has stopped. The log has it too: nothing waits for this."""
        self._stops.news.clear()
        try:
            async with asyncio.timeout(2 * LOOK_S):
                await stop_log.keep(self._config, self._stops)
                await self._look_back()
                if (stops := list(self._stops)) and time.monotonic() >= self._record_s:
                    await stop_log.record(self._config, stops)
                    self._record_s = time.monotonic() + AGAIN_S
        except stop_log.NOT_KEPT as error:
            self._say_refused(error)
            log.debug("what has stopped was not written down: %s", type(error).__name__)

    async def _look_back(self) -> None:
        """Count what had stopped before this worker started until it is over."""
        if self._before is None:
            mine = {"", *(stream.name for stream in self._config.streams)}
            self._before = [each for each in (await stop_log.recorded(self._config)).values() if each.stream in mine]
            for stop in self._before:
                STOPPED.labels(stop.stream, stop.part).set(1)
        if over := [stop for stop in self._before if self.over(stop)]:
            await stop_log.clear(self._config, over)
            self._before = [stop for stop in self._before if stop not in over]
            still = {(stop.stream, stop.part) for stop in (*self._before, *self._stops)}
            for stop in over:
                STOPPED.labels(stop.stream, stop.part).set((stop.stream, stop.part) in still)

    def over(self, stop: Stop) -> bool:
        """Whether this worker has read again all that a stop before its time could have come of, and has not met it."""
        vitals, topics = self._vitals, self._config.topics
        if vitals.unready or self._stops.has(stop.stream, stop.part, stop.partition):
            return False
        if stop.part == "worker":
            return True
        stream = next(each for each in self._config.streams if each.name == stop.stream)
        if stop.part == "audit" and stream.audit is None:
            return True
        read = set[tuple[str, int]]().union(*vitals.caught_up.values())
        if stop.part == "ingest":
            sources = (stream.source, self._config.read_by(stream))
            return any(topic in sources and stop.partition in (None, at) for topic, at in read)
        topic = {"publish": topics.releases, "audit": topics.held_out}.get(stop.part, topics.blocks)
        return (topic, home_partition(stream.name, topics.partitions)) in read
