"""Bringing the owners of newly assigned partitions to where their last committed transaction left them.

Fenced first: nothing below can change any more. Then the group's offset, the latest bound snapshots, and all of the
partition's own blocks that are still there. Block and offset were committed together, so they must agree; where an
earlier version let a late commit cut a transaction in two, blocks decide, or it is said what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer

from agents.kafka.clients import log_reader
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.places import Places, Standing, starts
from agents.protocol.ingest.snapshots import BucketLog
from agents.protocol.ingest.user_table import BUCKETS
from agents.protocol.partitioner import bounds_partition
from agents.worker.ingest.partition_task import SourceOwner, place_of_blocks
from schemas.blocks import Block
from schemas.errors import WireError
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Config

log = logging.getLogger(__name__)


async def restore(config: Config, consumer: AIOKafkaConsumer, owners: Sequence[SourceOwner]) -> None:
    """Fence, restore and seek. Streams whose stored history contradicts itself are left out by their owners.

    Raises: GapError, TornError, if nothing is left to do in this job; BrokerError.
    """
    specified = {owner: list(owner.machines) for owner in owners}
    for owner in owners:
        owner.leave_out_stopped()
    await asyncio.gather(*(owner.fence() for owner in owners))
    topics = Topics(config.job.name, config.kafka.partitions)
    committed = await consumer._coordinator.fetch_committed_offsets([owner.source for owner in owners])
    for owner in owners:
        if (found := committed.get(owner.source)) is not None:
            owner.places = Places.decode(found.metadata)
    # One pass over each private partition, whoever needs it: a worker often owns many source partitions of a stream.
    await _load_snapshots(config, topics, owners)
    await _fold_blocks(config, topics, owners)
    beginnings = await consumer.beginning_offsets([owner.source for owner in owners])
    for owner in owners:
        found = committed.get(owner.source)
        offset = None if found is None or found.offset < 0 else int(found.offset)
        begin = _begin(owner, offset, beginnings[owner.source], group=f"{config.job.name}-ingest")
        left_out = [machine for machine in specified[owner] if machine not in owner.machines]
        owner.restored(offset, left_out, begin=begin)
        log.info("ingest of %s goes on at offset %d", owner, owner.position)
        owner.lose(beginnings[owner.source])
        consumer.seek(owner.source, owner.position)


def _begin(owner: SourceOwner, committed: int | None, beginning: int, *, group: str) -> int:
    """Put each machine where it goes on; those that are further than others pass over what they have already. Returns:
    the source offset at which a stream begins of which nothing is known.
    """
    found = starts(
        [Standing(each.spec.name, each.last_begin, each.next_offset) for each in owner.machines],
        committed=committed,
        places=owner.places,
        beginning=beginning,
        where=str(owner),
        group=group,
    )
    for machine in list(owner.machines):
        with owner.serving(machine):
            if (refused := found.refused.get(machine.spec.name)) is not None:
                raise refused
            machine.resume(found.offsets[machine.spec.name])
    for name in found.behind_offset:
        log.warning(
            "ingest of %s, %s: the last block was committed and its offset %d was not (a commit that came late over "
            "a bad network, or the group was set back by one block). Nothing is missing: it goes on behind the block",
            owner, name, found.offsets[name],
        )  # fmt: skip
    if committed is None and any(machine.has_history for machine in owner.machines):
        log.warning(
            "ingest of %s: group %s has no offset (expired while nobody was there, offsets.retention.minutes of the "
            "brokers, or deleted). Each stream goes on where its own blocks end; one without blocks begins at %d",
            owner, group, found.begin,
        )  # fmt: skip
    behind = [machine for machine in owner.machines if machine.next_offset < owner.next_offset]
    for machine in behind:
        log.info("ingest of %s: %s was left out and goes on at %d", owner, machine.spec.name, machine.next_offset)
    owner.position = min((machine.next_offset for machine in owner.machines), default=beginning)
    return found.begin


async def _load_snapshots(config: Config, topics: Topics, owners: Sequence[SourceOwner]) -> None:
    wanted: dict[int, dict[bytes, tuple[SourceOwner, PartitionIngest]]] = defaultdict(dict)
    for owner, machine in _machines(owners):
        if machine.spec.bounds is not None:
            partition = bounds_partition(machine.spec.stream, machine.partition, topics.partitions)
            for bucket in range(BUCKETS):
                key = BucketLog.key(machine.spec.stream, machine.partition, bucket)
                wanted[partition][key] = owner, machine
    for partition, keys in sorted(wanted.items()):
        latest: dict[bytes, bytes] = {}
        async with log_reader(config.kafka, topics.bounds, partition) as reader:
            async for records in reader.read():
                latest.update((record.key, record.value) for record in records if record.key in keys)
        for key, value in latest.items():
            owner, machine = keys[key]
            with owner.serving(machine):
                machine.load(value)
            await asyncio.sleep(0)


def _machines(owners: Sequence[SourceOwner]) -> list[tuple[SourceOwner, PartitionIngest]]:
    return [(owner, machine) for owner in owners for machine in owner.machines]


async def _fold_blocks(config: Config, topics: Topics, owners: Sequence[SourceOwner]) -> None:
    wanted: dict[tuple[str, int], dict[tuple[str, int], tuple[SourceOwner, PartitionIngest]]] = defaultdict(dict)
    for owner, machine in _machines(owners):
        wanted[place_of_blocks(machine.spec, topics)][machine.spec.stream, machine.partition] = owner, machine
    for (topic, partition), mine in sorted(wanted.items()):
        streams = {stream.encode() for stream, _ in mine}
        async with log_reader(config.kafka, topic, partition) as reader:
            async for records in reader.read():
                for record in records:
                    if record.key in streams:
                        _fold(record, mine, reader.beginning)
                        await asyncio.sleep(0)
            for owner, machine in mine.values():
                with owner.serving(machine):  # once more where it has failed: the first error stands
                    machine.check_restored(trimmed_to=reader.beginning)


def _fold(record: Any, mine: Mapping[tuple[str, int], tuple[SourceOwner, PartitionIngest]], beginning: int) -> None:
    """Give a block to its machine. One that cannot be read stops all machines of its stream: it may be anyone's."""
    try:
        block = Block.decode(record.value)
    except WireError as error:
        for (stream, _), (owner, machine) in mine.items():
            if stream.encode() == record.key:
                with owner.serving(machine):
                    raise error
        return
    if (owned := mine.get((block.stream, block.partition))) is not None and owned[1] in owned[0].machines:
        owner, machine = owned
        with owner.serving(machine):
            machine.apply(block, at=record.offset, trimmed_to=beginning)
