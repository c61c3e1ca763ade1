"""What each stream has come to, for the operator: lag is a count of private events, so none of this is public.

Read from committed records alone; it needs no worker to be up, and disturbs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from agents.protocol.partitioner import home_partition
from agents.tail import Tail, tail
from agents.topic_admin import admin_client
from agents.topic_ids import topic_identities
from schemas.blocks import Block
from schemas.errors import BrokerError
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Config, Stream

MOST_BLOCKS = 2_000  # looked at from the end for the newest of each source partition


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One stream.

    Attributes:
        published: last public step, -1 before any. published_at: end of that step.
        records: synthetic records alive. epsilon_spent, epsilon: of the configured unit.
        ingest_lag: offsets of the source that are in no block yet, ticks and transaction markers included.
        over: last step that every source partition has closed, -1 before any.
        waiting: steps that are over and not public yet; a growing number means that engines are down or too slow.
    """

    stream: str
    published: int
    published_at: str | None
    records: int
    epsilon_spent: float
    epsilon: float
    private: bool
    ingest_lag: int
    over: int
    waiting: int


async def status(config: Config) -> list[StreamStatus]:
    """The status of every stream. Raises: BrokerError if a topic is missing."""
    topics = Topics(config.job.name, config.kafka.partitions)
    sources = {stream.source for stream in config.streams}
    wanted = {topics.blocks, *sources, *(topics.ledger(stream.name) for stream in config.streams)}
    async with admin_client(config.kafka) as admin:
        found = await topic_identities(admin, sorted(wanted))
    if missing := sorted(wanted - found.keys()):
        raise BrokerError(f"topic {', '.join(missing)} does not exist. Mend: privstream topics CONFIG --create.")
    lanes = [(topic, partition) for topic in sorted(wanted) for partition in range(found[topic].partitions)]
    async with tail(config.kafka, lanes, wait=False) as end:
        return [await _stream_status(config, stream, end, found[stream.source].partitions) for stream in config.streams]


async def _stream_status(config: Config, stream: Stream, end: Tail, partitions: int) -> StreamStatus:
    topics = Topics(config.job.name, config.kafka.partitions)
    newest = await end.newest((topics.ledger(stream.name), 0))
    ledger: Mapping[str, Any] = {} if newest is None else orjson.loads(newest.value)
    blocks = await _newest_blocks(
        end, (topics.blocks, home_partition(stream.name, config.kafka.partitions)), stream, partitions
    )
    lag = 0
    for partition in range(partitions):
        lane = (stream.source, partition)
        done = blocks[partition].hi if partition in blocks else end.begins[lane]
        lag += max(0, end.ends[lane] - done)
    over = min((blocks[partition].tick if partition in blocks else -1 for partition in range(partitions)), default=-1)
    published = int(ledger.get("step", -1))
    return StreamStatus(
        stream=stream.name,
        published=published,
        published_at=ledger.get("end"),
        records=int(ledger.get("synthetic_records", 0)),
        epsilon_spent=float(ledger.get("epsilon_spent", 0.0)),
        epsilon=float(ledger.get("epsilon", float(stream.privacy.epsilon))),
        private=bool(ledger.get("guarantee", {}).get("private", True)),
        ingest_lag=lag,
        over=over,
        waiting=max(0, over - published),
    )


async def _newest_blocks(end: Tail, lane: tuple[str, int], stream: Stream, partitions: int) -> dict[int, Block]:
    """The last block of each source partition of a stream."""
    found: dict[int, Block] = {}
    looked_at = 0
    async for record in end.backwards(lane):
        block = Block.decode(record.value)
        if block.stream == stream.name:
            found.setdefault(block.partition, block)
        looked_at += 1
        if len(found) == partitions or looked_at >= MOST_BLOCKS:
            break
    return found
