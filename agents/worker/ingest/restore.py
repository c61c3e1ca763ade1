"""Bringing the tasks of newly assigned partitions to where their last committed transaction left them.

Fenced first: nothing below can change any more. Then the group's offset, the latest bound snapshots, and all of the
partition's own blocks that are still there. Block and offset were committed together, so they must agree.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer

from agents.kafka.clients import log_reader
from agents.kafka.lifecycle.cancellations import together
from agents.kafka.lifecycle.logs import about
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.places import Places, starts
from agents.protocol.partitioner import bounds_partition
from agents.worker.ingest.partition_task import Machine, SourceTask, place_of_blocks
from schemas.blocks import Block
from schemas.config import Config
from schemas.errors import WireError
from schemas.topics import Topics

log = logging.getLogger(__name__)

AT_ONCE = 2
"""Private partitions that are read beside each other: one is waited for while the snapshots of another are unpacked, in
threads. All snapshots of so many are in memory until then.
"""


async def restore(
    config: Config, consumer: AIOKafkaConsumer, tasks: Sequence[SourceTask], *, adding: bool = False
) -> None:
    """Fence, restore and seek. Streams whose stored history contradicts itself are left out by their tasks.

    Args: adding: partitions, and not to take in records (`agents.worker.ingest.add_partitions`).
    Raises: GapError, if nothing is left to do in this job; BrokerError.
    """
    specified = {task: list(task.machines) for task in tasks}
    for task in tasks:
        task.leave_out_stopped()
    await asyncio.gather(*(task.fence() for task in tasks))
    topics = config.topics
    committed = await consumer._coordinator.fetch_committed_offsets([task.source for task in tasks])
    for task in tasks:
        if (found := committed.get(task.source)) is not None:
            task.places = Places.decode(found.metadata)
    # One pass over each private partition, whoever needs it: a worker often owns many source partitions of a stream.
    await _load_snapshots(config, topics, tasks)
    await _fold_blocks(config, topics, tasks)
    for task, machine in () if adding else _clocked(tasks):
        with task.serving(machine):
            machine.check_partitions()
    beginnings = await consumer.beginning_offsets([task.source for task in tasks])
    for task in tasks:
        found = committed.get(task.source)
        offset = None if found is None or found.offset < 0 else int(found.offset)
        with about(role="ingest", topic=task.source.topic, partition=task.source.partition):
            begin = _begin(task, offset, beginnings[task.source], group=topics.ingest_group)
            left_out = [machine for machine in specified[task] if machine not in task.machines]
            task.restored(offset, left_out, begin=begin)
            log.info("ingest of %s goes on at offset %d", task, task.position)
            task.lose(beginnings[task.source])
        consumer.seek(task.source, task.position)


def _begin(task: SourceTask, committed: int | None, beginning: int, *, group: str) -> int:
    """Put each machine where it goes on; those that are further than others pass over what they have already. Returns:
    the source offset at which a stream begins of which nothing is known.
    """
    found = starts(
        {each.spec.name: each.next_offset if each.has_history else None for each in task.machines},
        committed=committed,
        places=task.places,
        beginning=beginning,
        where=str(task),
        group=group,
    )
    for machine in list(task.machines):
        with task.serving(machine):
            if (refused := found.refused.get(machine.spec.name)) is not None:
                raise refused
            machine.resume(found.offsets[machine.spec.name])
    if committed is None and any(machine.has_history for machine in task.machines):
        log.warning(
            "ingest of %s: group %s has no offset (expired while nobody was there, offsets.retention.minutes of the "
            "brokers, or deleted). Each stream goes on where its own blocks end; one without blocks begins at %d",
            task, group, found.begin,
        )  # fmt: skip
    behind = [machine for machine in task.machines if machine.next_offset < task.next_offset]
    for machine in behind:
        log.info("ingest of %s: %s was left out and goes on at %d", task, machine.spec.name, machine.next_offset)
    task.position = min((machine.next_offset for machine in task.machines), default=beginning)
    return found.begin


async def _load_snapshots(config: Config, topics: Topics, tasks: Sequence[SourceTask]) -> None:
    wanted: dict[int, dict[bytes, tuple[SourceTask, Machine]]] = defaultdict(dict)
    for task in tasks:
        for machine in task.machines:
            partition = bounds_partition(machine.spec.stream, machine.partition, topics.partitions)
            for key in machine.snapshot_keys:
                wanted[partition][key] = task, machine
    room = asyncio.Semaphore(AT_ONCE)

    async def load(partition: int, keys: Mapping[bytes, tuple[SourceTask, Machine]]) -> None:
        latest: dict[bytes, bytes] = {}
        found: dict[tuple[SourceTask, Machine], list[bytes]] = defaultdict(list)
        async with room:
            async with log_reader(config.kafka, topics.bounds, partition) as reader:
                async for records in reader.read():
                    latest.update((record.key, record.value) for record in records if record.key in keys)
            while latest:
                key, value = latest.popitem()
                found[keys[key]].append(value)
            while found:
                (task, machine), snapshots = found.popitem()
                with task.serving(machine):
                    await asyncio.to_thread(machine.load, snapshots)

    await together("restoring bounds", *(load(*each) for each in sorted(wanted.items())))


def _clocked(tasks: Sequence[SourceTask]) -> list[tuple[SourceTask, PartitionIngest]]:
    return [(task, machine) for task in tasks for machine in task.clocked]


async def _fold_blocks(config: Config, topics: Topics, tasks: Sequence[SourceTask]) -> None:
    wanted: dict[tuple[str, int], dict[tuple[str, int], tuple[SourceTask, PartitionIngest]]] = defaultdict(dict)
    for task, machine in _clocked(tasks):
        wanted[place_of_blocks(machine.spec, topics)][machine.spec.stream, machine.partition] = task, machine
    room = asyncio.Semaphore(AT_ONCE)

    async def fold(place: tuple[str, int], mine: Mapping[tuple[str, int], tuple[SourceTask, PartitionIngest]]) -> None:
        streams = {stream.encode() for stream, _ in mine}
        async with room, log_reader(config.kafka, *place) as reader:
            async for records in reader.read():
                for record in records:
                    if record.key in streams:
                        _fold(record, mine, reader.beginning)
                        await asyncio.sleep(0)
            for task, machine in mine.values():
                with task.serving(machine):  # once more where it has failed: the first error stands
                    machine.check_restored(trimmed_to=reader.beginning)

    await together("restoring places", *(fold(*each) for each in sorted(wanted.items())))


def _fold(record: Any, mine: Mapping[tuple[str, int], tuple[SourceTask, PartitionIngest]], beginning: int) -> None:
    """Give a block to its machine. One that cannot be read stops all machines of its stream: it may be anyone's."""
    try:
        block = Block.decode(record.value)
    except WireError as error:
        for (stream, _), (task, machine) in mine.items():
            if stream.encode() == record.key:
                with task.serving(machine):
                    raise error
        return
    if (owned := mine.get((block.stream, block.partition))) is not None and owned[1] in owned[0].machines:
        task, machine = owned
        with task.serving(machine):
            machine.apply(block, at=record.offset, trimmed_to=beginning)
