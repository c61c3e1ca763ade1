"""Bringing the owners of newly assigned partitions to where their last committed transaction left them.

Fenced first: nothing below can change any more. Then the group's offset, the latest bound snapshots, and all of the
partition's own blocks that are still there. Block and offset were committed together, so they must agree; where an
earlier version let a late commit cut a transaction in two, blocks decide, or it is said what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer

from agents.ingest_owner import SourceOwner, place_of_blocks
from agents.kafka_clients import log_reader
from agents.protocol.ingest_snapshots import BucketLog
from agents.protocol.partition_ingest import PartitionIngest
from agents.protocol.partitioner import bounds_partition
from agents.protocol.user_table import BUCKETS
from schemas.blocks import Block
from schemas.errors import GapError, TornError
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Config

log = logging.getLogger(__name__)


async def restore(config: Config, consumer: AIOKafkaConsumer, owners: Sequence[SourceOwner]) -> None:
    """Fence, restore and seek. Raises: GapError, TornError where stored history contradicts itself; BrokerError."""
    await asyncio.gather(*(owner.fence() for owner in owners))
    topics = Topics(config.job.name, config.kafka.partitions)
    committed = {owner.source: await consumer.committed(owner.source) for owner in owners}
    machines = [machine for owner in owners for machine in owner.machines]
    # One pass over each private partition, whoever needs it: a worker often owns many source partitions of a stream.
    await _load_snapshots(config, topics, machines)
    await _fold_blocks(config, topics, machines)
    beginnings = await consumer.beginning_offsets([owner.source for owner in owners])
    for owner in owners:
        start = _start(owner, committed[owner.source], beginnings[owner.source], group=f"{config.job.name}-ingest")
        for machine in owner.machines:
            machine.resume(start)
        log.info("ingest of %s goes on at offset %d", owner, start)
        owner.lose(beginnings[owner.source])
        consumer.seek(owner.source, owner.next_offset)


def _start(owner: SourceOwner, committed: int | None, beginning: int, *, group: str) -> int:
    """The source offset from which to read on."""
    known = {machine.next_offset for machine in owner.machines if machine.has_history}
    if not known:
        if committed is not None:
            # Bounds that were used up may be gone with the blocks. Going on would give every user a second budget.
            raise GapError(
                f"ingest of {owner}: the group stands at offset {committed}, but no block of its streams is left. "
                f"Restore the private topics; or, if the streams are new, delete this topic's offsets of group {group}"
            )
        return beginning
    if len(known) == 1 and (committed is None or committed in known):
        return known.pop()
    ahead = [machine for machine in owner.machines if machine.has_history and machine.next_offset > (committed or 0)]
    if ahead and all(machine.last_begin == committed for machine in ahead):
        _check_whole_but_for_offset(owner, known, committed, ahead, group=group)
        return known.pop()
    raise GapError(
        f"ingest of {owner}: blocks end at {sorted(known)}, the group stands at {committed}; they are committed "
        f"together and must agree. Somebody changed the offsets of group {group} or the private topics"
    )


def _check_whole_but_for_offset(
    owner: SourceOwner, known: set[int], committed: int | None, ahead: Sequence[PartitionIngest], *, group: str
) -> None:
    """The last block is there and its offset is not: a commit came late and cut their transaction in two, which earlier
    versions could not rule out, or somebody set the offset back by a block. Blocks decide: that no snapshot is missing
    was proven when they were restored.

    Raises: TornError if more than the offset is missing.
    """
    if len(known) > 1:
        there = ", ".join(sorted(machine.spec.stream for machine in ahead))
        raise TornError(
            f"ingest of {owner}: one transaction was committed in part. The block from offset {committed} on is there "
            f"for stream {there} and missing for the others of this topic. Take {there} out of this job and go on with "
            "the others, or start the others anew under other names"
        )
    end = max(known)
    log.warning(
        "ingest of %s: the last block was committed and its offset %d was not (a commit that came late over a bad "
        "network, or the group was set back by one block). Nothing is missing: it goes on behind the block",
        owner,
        end,
    )


async def _load_snapshots(config: Config, topics: Topics, machines: Sequence[PartitionIngest]) -> None:
    wanted: dict[int, dict[bytes, PartitionIngest]] = defaultdict(dict)
    for machine in machines:
        if machine.spec.bounds is not None:
            partition = bounds_partition(machine.spec.stream, machine.partition, topics.partitions)
            for bucket in range(BUCKETS):
                wanted[partition][BucketLog.key(machine.spec.stream, machine.partition, bucket)] = machine
    for partition, keys in sorted(wanted.items()):
        latest: dict[bytes, bytes] = {}
        async with log_reader(config.kafka, topics.bounds, partition) as reader:
            async for records in reader.read():
                latest.update((record.key, record.value) for record in records if record.key in keys)
        for key, value in latest.items():
            keys[key].load(value)
            await asyncio.sleep(0)


async def _fold_blocks(config: Config, topics: Topics, machines: Sequence[PartitionIngest]) -> None:
    wanted: dict[tuple[str, int], dict[tuple[str, int], PartitionIngest]] = defaultdict(dict)
    for machine in machines:
        wanted[place_of_blocks(machine.spec, topics)][machine.spec.stream, machine.partition] = machine
    for (topic, partition), mine in sorted(wanted.items()):
        streams = {stream.encode() for stream, _ in mine}
        async with log_reader(config.kafka, topic, partition) as reader:
            async for records in reader.read():
                for record in records:
                    if record.key in streams:
                        block = Block.decode(record.value)
                        if (owned := mine.get((block.stream, block.partition))) is not None:
                            owned.apply(block, at=record.offset, trimmed_to=reader.beginning)
                        await asyncio.sleep(0)
            for machine in mine.values():
                machine.check_restored(trimmed_to=reader.beginning)
