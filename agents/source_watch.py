"""A running worker's look at its sources: another topic id or another number of partitions stops what reads them.

At start the fingerprint is compared; but a topic can be deleted and made again, or be given a partition, at any time,
and Kafka's consumer goes on as if nothing had happened: at offsets that name other events, or without the users that
moved.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka.errors import KafkaError

from agents.protocol.ingest_spec import SourceSpec
from agents.source_check import Change, change_of
from agents.topic_ids import TopicIdentity, topic_identities
from schemas.errors import FingerprintError

log = logging.getLogger(__name__)

LOOK_S = 5.0
SURE_S = 2.0  # a broker that has just started may not know of a topic for a moment
SAY_S = 60.0
GIVE_UP_S = 10.0  # on a question about offsets: of a topic that is gone it would wait for ever


class SourceWatch:
    """Knows what the sources were, and which of them stopped.

    Args:
        specs: topic -> what each stream does with it.
        sources: topic -> what it was when it was held against the fingerprints; what is absent is learnt when seen.
    """

    def __init__(self, specs: Mapping[str, Sequence[SourceSpec]], sources: Mapping[str, TopicIdentity]) -> None:
        self._specs = specs
        self._was = dict(sources)
        self._said: dict[str, float] = {}
        self.stopped: dict[str, Change] = {}

    async def look(self, consumer: Any) -> list[Change]:
        """What has stopped since the last look. A cluster that does not answer is no answer."""
        if not (seen := await self._changes(consumer)):
            return []
        await asyncio.sleep(SURE_S)
        again = await self._changes(consumer)
        new = [change for topic, change in again.items() if topic in seen and topic not in self.stopped]
        self.stopped.update({change.topic: change for change in new})
        return new

    async def _changes(self, consumer: Any) -> dict[str, Change]:
        topics = sorted(self._specs.keys() - self.stopped.keys())
        try:
            async with asyncio.timeout(GIVE_UP_S):
                found = await topic_identities(consumer, topics)
        except (KafkaError, OSError, TimeoutError):
            return {}
        for topic in topics:
            if topic in found:
                was = TopicIdentity(found[topic].id, self._specs[topic][0].partitions)
                self._was.setdefault(topic, was)
        changes = (change_of(topic, self._was[topic], found.get(topic)) for topic in topics if topic in self._was)
        return {change.topic: change for change in changes if change is not None}

    def say(self) -> None:
        """Which streams stand still, and why: at once, and then once a minute."""
        now = time.monotonic()
        for topic, change in self.stopped.items():
            if now - self._said.get(topic, -SAY_S) >= SAY_S:
                self._said[topic] = now
                log.critical("STOPPED: ingest of stream %s: %s", ", ".join(self.streams(topic)), change)

    def streams(self, topic: str) -> list[str]:
        """The streams that read a topic."""
        return sorted({spec.stream for spec in self._specs[topic]})

    def check_any_left(self) -> None:
        """Raises: FingerprintError where every source has stopped: there is nothing left to do."""
        if self.stopped and self.stopped.keys() == self._specs.keys():
            raise FingerprintError("; ".join(str(change) for change in self.stopped.values()))
