"""What a job that has run can no longer find on the cluster. Asks, and changes nothing.

A topic that is gone is never made again: empty, what it held would be taken for never said. A bounds topic that was
made again or cut is seen here by its offsets alone, which is cheap; the proof, bucket by bucket, is made where the
ingest restores (`agents.protocol.ingest.snapshots`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from agents.kafka.clients import close_client, read_to_end
from agents.kafka.refusals import no_answer
from agents.kafka.security import security_kwargs
from agents.kafka.topics.ids import TopicIdentity
from agents.protocol.fingerprint import holding
from agents.protocol.partitioner import bounds_partition, home_partition
from schemas.blocks import Block
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Config, Kafka

RECENT = 100  # records at the end of a blocks partition, among which the newest blocks of its streams are looked for
WHAT_TO_DO = (
    "put the private topics back as they were, all of one moment; else start anew: another name for the job and for "
    "its streams, and what was released counts for the same people (explain --earlier)"
)


@dataclass(frozen=True, slots=True)
class Lost:
    """A topic of the job's history, and how it is known that it has lost something."""

    topic: str
    reason: str


async def lost_topics(config: Config, existing: Mapping[str, TopicIdentity]) -> list[Lost]:
    """Topics of the job's history that are missing although another of them holds, or has held, records.

    Raises: BrokerError.
    """
    names = Topics(config.job.name, config.kafka.partitions).history
    missing = [name for name in names if name not in existing]
    if not missing:
        return []
    for name in names:
        if name in existing and any((await ends_of(config.kafka, name, existing[name].partitions))[1]):
            reason = f"is gone, with all it held: {name} shows that the job has run. It must not be made again empty"
            return [Lost(each, reason) for each in missing]
    return []


async def lost_public(config: Config, existing: Mapping[str, TopicIdentity]) -> list[Lost]:
    """Public topics that are missing of streams that were started: all were there at the first start.

    Raises: BrokerError, WireError.
    """
    topics = Topics(config.job.name, config.kafka.partitions)
    names = {name: stream.name for stream in config.streams for name in topics.published(stream.name)}
    missing = {topic: stream for topic, stream in names.items() if topic not in existing}
    if not missing or topics.fingerprints not in existing:
        return []
    _, _, records = await read_to_end(config.kafka, topics.fingerprints, 0, 0)
    started = holding(record.value for record in records)
    reason = "is gone, with all it held: {stream} was started with it. It must not be made again empty"
    return [Lost(topic, reason.format(stream=stream)) for topic, stream in missing.items() if stream in started]


async def lost_bounds(config: Config, existing: Mapping[str, TopicIdentity]) -> list[Lost]:
    """Whether the offsets of the bounds topic show that it was cut, or made again while the job had bounds in it.

    Raises: BrokerError, WireError.
    """
    topics = Topics(config.job.name, config.kafka.partitions)
    if topics.bounds not in existing or topics.blocks not in existing:
        return []
    written = await _written_partitions(config, topics)
    # After the blocks: what a block speaks of was committed with it or before.
    begins, ends = await ends_of(config.kafka, topics.bounds, existing[topics.bounds].partitions)
    if any(begins):  # compaction leaves the first offset where it is
        return [Lost(topics.bounds, "has lost its first records: by retention, or while it had another cleanup.policy")]
    if any(ends[partition] == 0 for partition in written if partition < len(ends)):
        return [Lost(topics.bounds, "is empty where blocks speak of bounds in it: it was deleted and made again")]
    return []


async def _written_partitions(config: Config, topics: Topics) -> Collection[int]:
    """Partitions of the bounds topic that hold snapshots, as the newest blocks say."""
    bounded = {stream.name for stream in config.streams if stream.privacy.bounds_users}
    written = set()
    for home in {home_partition(name, topics.partitions) for name in bounded}:
        end = (await ends_of(config.kafka, topics.blocks, topics.partitions))[1][home]
        _, _, records = await read_to_end(config.kafka, topics.blocks, home, max(0, end - RECENT))
        for record in records:
            if record.key.decode() in bounded:
                block = Block.decode(record.value)
                if block.snapshots.any():
                    written.add(bounds_partition(block.stream, block.partition, topics.partitions))
    return written


async def ends_of(kafka: Kafka, topic: str, partitions: int) -> tuple[list[int], list[int]]:
    """First and next offset of each partition."""
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap, **security_kwargs(kafka))
    try:
        await consumer.start()
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        begins, ends = await consumer.beginning_offsets(asked), await consumer.end_offsets(asked)
    except (KafkaError, OSError) as error:
        raise await no_answer(kafka, f"{topic} cannot be looked at", error) from error
    finally:
        await close_client(consumer)
    return [begins[each] for each in asked], [ends[each] for each in asked]
