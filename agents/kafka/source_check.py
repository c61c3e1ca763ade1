"""Whether sources are still those with which their streams were started. Asks, and changes nothing.

A topic can be deleted and made again, or be given a partition, at any time, and Kafka's consumer goes on as if nothing
had happened: at offsets that name other events, or without the users that moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaError

from agents.kafka.topics.ids import TopicIdentity, topic_identities
from agents.protocol.fingerprint import Fingerprint
from agents.protocol.ingest.spec import SourceSpec
from schemas.errors import SourceError

if TYPE_CHECKING:
    from schemas.config import Stream

LOOK_S = 5.0
SURE_S = 2.0  # a broker that has just started may not know of a topic for a moment
GIVE_UP_S = 10.0  # on a question about offsets: of a topic that is gone it would wait for ever


def change_of(topic: str, was: TopicIdentity, now: TopicIdentity | None) -> SourceError | None:
    """How a topic differs from what it was; None where it does not."""
    if now is None:
        return SourceError(f"source {topic} is gone. Made again it is another topic, whose offsets name other events")
    if now.id != was.id:
        return SourceError(
            f"source {topic} was deleted and made again: its offsets name other events than those that were read"
        )
    if now.partitions != was.partitions:
        return SourceError(
            f"source {topic} has {now.partitions} partitions and had {was.partitions}: producers now place users where "
            "their bounds are not. With all workers stopped, privstream topics CONFIG --add-partitions "
            f"{topic}={now.partitions} takes the bounds there, or names a number that does"
        )
    return None


def changed_source(
    stream: Stream, stored: Fingerprint | None, found: Mapping[str, TopicIdentity]
) -> SourceError | None:
    """How a stream's source differs from the one it was started with; None where it does not, or never started."""
    if stored is None:
        return None
    was = TopicIdentity(str(stored.fields["source_topic_id"]), int(stored.fields["source_partitions"]))
    return change_of(stream.source, was, found.get(stream.source))


class SourceWatch:
    """A running worker's look at its sources.

    Args:
        specs: topic -> what each stream does with it.
        sources: topic -> what it was when it was held against the fingerprints; what is absent is learnt when seen.
    """

    def __init__(self, specs: Mapping[str, Sequence[SourceSpec]], sources: Mapping[str, TopicIdentity]) -> None:
        self._specs = specs
        self._was = dict(sources)

    async def look(self, consumer: Any, topics: Collection[str]) -> dict[str, SourceError]:
        """Those of the topics that have changed. A cluster that does not answer is no answer."""
        if not (seen := await self._changes(consumer, topics)):
            return {}
        await asyncio.sleep(SURE_S)
        return await self._changes(consumer, seen)

    async def _changes(self, consumer: Any, topics: Collection[str]) -> dict[str, SourceError]:
        try:
            async with asyncio.timeout(GIVE_UP_S):
                found = await topic_identities(consumer, topics)
        except (KafkaError, OSError, TimeoutError):
            return {}
        for topic, identity in found.items():
            self._was.setdefault(topic, TopicIdentity(identity.id, self._specs[topic][0].partitions))
        known = self._was.keys() & topics
        changes = {topic: change_of(topic, self._was[topic], found.get(topic)) for topic in sorted(known)}
        return {topic: change for topic, change in changes.items() if change is not None}
