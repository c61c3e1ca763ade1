"""Adding partitions to a source, with all workers stopped: what `agents.protocol.ingest.added` asks for, on Kafka.

Run again after a crash, it completes what was begun. It also takes over a topic that somebody has given partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import NewPartitions
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from agents.kafka.clients import close_client, fenced_producer, log_reader
from agents.kafka.fingerprint import fingerprint_now, started, stored_fingerprints
from agents.kafka.lifecycle.stops import Stops
from agents.kafka.membership import members_of
from agents.kafka.security import security_kwargs
from agents.kafka.topics import TopicProblem, admin_client, topic_identities
from agents.protocol.fingerprint import PARTITIONS, ROUTED_PARTITIONS, Fingerprint
from agents.protocol.ingest.added import AddPartitions, Commit, StorePartitions, added, possible
from agents.protocol.ingest.places import NEW, Places
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.partitioner import bounds_partition
from agents.worker.failpoints import failpoint
from agents.worker.ingest.counters import IngestCounters
from agents.worker.ingest.partition_task import IngestOptions, SourceTask, place_of_blocks
from agents.worker.ingest.restore import restore
from agents.worker.ingest.specs import source_specs, user_key_ids
from schemas.errors import BrokerError, OutcomeUnknownError, PrivstreamError, TopicError

if TYPE_CHECKING:
    from agents.kafka.topics import TopicIdentity
    from schemas.config import Config, Stream

VISIBLE_TRIES = 300
VISIBLE_S = 0.1
OPEN_TRANSACTION_S = 15.0
AGAIN = "Fix: run the same command again, which completes it; until then no worker takes in records of this topic."


@dataclass(frozen=True, slots=True)
class Added:
    """The outcome: the topic has so many partitions in place of `before`, and `streams` go on with them.

    None of them does where no stream had begun to read it, or nothing was left to do.
    """

    topic: str
    before: int
    partitions: int
    streams: Sequence[str]


@dataclass(frozen=True)
class _Source:
    """The topic, and the streams that read it.

    Attributes:
        config: of the streams that were started with fewer partitions, and of those that have it as their audit.
        stored: their fingerprints, of the former.
    """

    config: Config
    topic: str
    found: TopicIdentity
    stored: Mapping[str, Fingerprint]
    wanted: int

    @property
    def drained_first(self) -> bool:
        """Whether what waits must be taken in before: workers cannot do it where the partitions are there already."""
        return all(int(each.fields[PARTITIONS]) == self.found.partitions for each in self.stored.values())


async def add_partitions(config: Config, topic: str, wanted: int) -> Added:
    """Raise a source or audit topic to so many partitions, and take the bounds of users who move with them.

    Raises: TopicError with reason and fix, and nothing was changed; what is wrong with a stream's history; BrokerError.
    """
    source = await _read_by(config, topic, wanted)
    names, before = [stream.name for stream in source.config.streams], source.found.partitions
    if not names and before == wanted:
        return Added(topic, before, wanted, [])
    specs = _specs(source) if names else []
    await _check_nobody_works(config, topic)
    try:
        if not names:
            await _add(source, wanted)
            return Added(topic, before, wanted, [])
        await _end_replays(config, topic)
        async with _tasks(source, specs) as (tasks, committed):
            if source.drained_first:
                await _check_drained(source, [task for task in tasks if task.machines])
            await _carry_out(source, tasks, committed)
    except (KafkaError, OutcomeUnknownError) as error:
        raise BrokerError(f"adding partitions to {topic} was cut off: {type(error).__name__}. {AGAIN}") from error
    return Added(topic, before, wanted, names)


async def _read_by(config: Config, topic: str, wanted: int) -> _Source:
    readers = [stream for stream in config.streams if topic in (stream.source, stream.audit)]
    if not readers:
        raise _refused(topic, "no stream of this configuration reads it", "name the source or audit topic of a stream")
    async with admin_client(config.kafka) as admin:
        found = (await topic_identities(admin, [topic])).get(topic)
    if found is None:
        raise _refused(topic, "does not exist", "create it with as many partitions as you like")
    if wanted < found.partitions:
        raise _refused(topic, f"has {found.partitions} partitions, and Kafka takes none away", "ask for more")
    stored = await stored_fingerprints(config)
    if whole := [
        each.name for each in readers if each.name in stored and ROUTED_PARTITIONS in stored[each.name].fields
    ]:
        reason = (
            f"stream {', '.join(whole)} routes a replay of it, whose steps are over once they are in each partition"
        )
        raise _refused(topic, reason, "start the stream anew, under another name, with the partitions that it needs")
    left_out = {
        name
        for name, each in stored.items()
        if each.fields["source"] == topic
        and name not in {stream.name for stream in config.streams} | set(config.job.retired)
    }
    if left_out:
        reason = f"stream {', '.join(sorted(left_out))} reads it and is not configured: it could never go on"
        raise _refused(topic, reason, "put the stream into the configuration, or name it in [job] retired")
    keys = user_key_ids(config)
    raised: dict[str, Fingerprint] = {}
    for stream in readers:
        # One that was never started begins with what is there then.
        if config.read_by(stream) == topic and (before := stored.get(stream.name)) is not None:
            partitions = int(before.fields[PARTITIONS])
            insecure = before.fields["seeds"] == "insecure"
            now = fingerprint_now(stream, config, {topic: found}, keys[stream.name], insecure=insecure, stored=before)
            before.check(Fingerprint(now.stream, {**now.fields, PARTITIONS: partitions}, now.start))
            if partitions != wanted:
                raised[stream.name] = before
    concerned: list[Stream] = [
        started(stream, stored[stream.name].start)
        for stream in readers
        if stream.name in raised or (stream.audit == topic and stream.name in stored)
    ]
    if not raised and found.partitions == wanted and topic not in {stream.audit for stream in concerned}:
        concerned = []  # of an audit topic nobody has stored whether its new partitions have their first blocks
    return _Source(config.model_copy(update={"streams": tuple(concerned)}), topic, found, raised, wanted)


def _specs(source: _Source) -> list[SourceSpec]:
    """Return specs of all that reads the topic. Raises: TopicError where users could not be kept together."""
    specs = source_specs(
        source.config,
        source_partitions={
            stream.name: int(source.stored[stream.name].fields[PARTITIONS]) if stream.name in source.stored else 1
            for stream in source.config.streams
        },
        audit_partitions={stream.name: source.wanted for stream in source.config.streams if stream.audit},
    )[source.topic]
    specs = [spec for spec in specs if spec.role == "held_out" or spec.stream in source.stored]
    for spec in specs:
        if spec.role == "blocks" and not possible(spec.partitions, source.wanted, spec):
            raise _refused(source.topic, *_impossible(spec, source))
    return specs


def _impossible(spec: SourceSpec, source: _Source) -> tuple[str, str]:
    if spec.partitioner == "none":
        reason = (
            f'stream {spec.stream} has partitioner = "none": its users are kept together by the one partition alone'
        )
        return reason, "start a new stream on another topic, keyed by user"
    number = spec.partitions
    first = number * -(-max(source.found.partitions, number + 1) // number)
    reason = (
        f"with {source.wanted} partitions in place of {number} the users of a new one would come from several, and no "
        f"table knows them all (stream {spec.stream})"
    )
    return reason, f"ask for a multiple of {number}: {first}, {first + number}, {first + 2 * number}, ..."


async def _check_nobody_works(config: Config, topic: str) -> None:
    groups = (config.job.name, config.topics.ingest_group)
    async with admin_client(config.kafka) as admin:
        working = [group for group in groups if await members_of(admin, group)]
    if working:
        raise _refused(
            topic,
            f"workers are running, or were killed a moment ago: group {', '.join(working)} has members",
            "stop them all; a worker that was killed is one until [kafka] session_timeout_s is over",
        )


async def _end_replays(config: Config, topic: str) -> None:
    """Fence replays that are under way, and end what a killed one left open. One that began before the partitions were
    added ticks the old ones alone; went it live there, the new ones never would.
    """
    for stream in config.streams:
        if stream.time.clock == "replay" and topic in (stream.source, stream.audit):
            await close_client(await fenced_producer(config.kafka, f"{config.job.name}-replay-{stream.name}"))


@asynccontextmanager
async def _tasks(
    source: _Source, specs: Sequence[SourceSpec]
) -> AsyncIterator[tuple[list[SourceTask], dict[int, OffsetAndMetadata]]]:
    """Yield a task for each partition that there is to be, fenced and restored, and what the group says of it.

    Raises: what is wrong with the history of a stream.
    """
    config, topic, names = source.config, source.topic, [stream.name for stream in source.config.streams]
    stops, counters = Stops.of(names), IngestCounters()
    tasks = []
    for partition in range(source.wanted):
        here = [s for s in specs if (partition < s.partitions if s.role == "blocks" else partition == 0)]
        place = TopicPartition(topic, partition)
        tasks.append(SourceTask(config, place, here, options=IngestOptions(), counters=counters, stops=stops))
    consumer = AIOKafkaConsumer(
        bootstrap_servers=config.kafka.bootstrap,
        group_id=config.topics.ingest_group,
        enable_auto_commit=False,
        isolation_level="read_committed",
        **security_kwargs(config.kafka),
    )
    there = [TopicPartition(topic, partition) for partition in range(source.found.partitions)]
    try:
        consumer.assign(there)
        await consumer.start()
        for task in tasks:
            if not task.machines:
                await task.fence()
        parents = [task for task in tasks if task.machines]
        await restore(config, consumer, parents, adding=True)
        for stop in stops:
            raise TopicError(f"{topic}: {stop}")
        found = await consumer._coordinator.fetch_committed_offsets(there)
        committed = {tp.partition: each for tp, each in found.items() if each is not None and each.offset >= 0}
        for task in tasks:
            if not task.machines and (each := committed.get(task.source.partition)) is not None:
                task.places = Places.decode(each.metadata)
                task.restored(each.offset, [])
        yield tasks, committed
    finally:
        await close_client(consumer)
        for task in tasks:
            await task.close()


async def _check_drained(source: _Source, parents: Sequence[SourceTask]) -> None:
    """Check that all that was sent is in blocks: what waits of users who move would be refused, and so lost."""
    waiting = []
    for task in parents:
        # Held-out events that wait may go on waiting, but not what closes steps, which is on the old partitions alone.
        ends = [each.next_offset for each in task.clocked if each.spec.role == "blocks" or not each.live]
        if not ends:
            continue
        start = min(ends)
        async with log_reader(source.config.kafka, source.topic, task.source.partition) as log:
            try:
                async for records in log.read(start, timeout_s=OPEN_TRANSACTION_S):
                    if records:
                        waiting.append(f"{task} is read up to offset {start} of {log.end}")
                        break
            except BrokerError:
                waiting.append(f"{task} has a transaction of a producer that is not ended")
    if waiting:
        raise _refused(
            source.topic,
            "not everything that was sent is taken in by every stream that reads it: " + "; ".join(waiting),
            "pause the producers, start the workers and let them come to the end (privstream status), stop them, and "
            "run this again. A stream that has stopped must go on first",
        )


async def _carry_out(source: _Source, tasks: Sequence[SourceTask], committed: Mapping[int, OffsetAndMetadata]) -> None:
    machines = [(task, machine) for task in tasks for machine in task.clocked]
    truth = [machine for _, machine in machines if machine.spec.role == "held_out"]
    unread = {
        machine.spec.name: [
            task.source.partition
            for task in tasks[1:]
            if not {machine.spec.name, NEW + machine.spec.name} & task.places.keys()
        ]
        for machine in truth
    }
    parents = [machine for _, machine in machines if machine.spec.role == "blocks"]
    for effect in added(parents, source.wanted, truth=truth, unread=unread):
        match effect:
            case AddPartitions(partitions):
                await _add(source, partitions)
                failpoint("partitions_added")
            case Commit(partition):
                before = committed.get(partition)
                await _commit(source.config, tasks[partition], effect, 0 if before is None else before.offset)
                failpoint("partition_block_committed" if effect.block is not None else "partition_bounds_committed")
            case StorePartitions(streams, partitions):
                await _store(source, [source.stored[name].raised(partitions) for name in sorted(streams)])


async def _add(source: _Source, partitions: int) -> None:
    async with admin_client(source.config.kafka) as admin:
        if source.found.partitions < partitions:
            await admin.create_partitions({source.topic: NewPartitions(total_count=partitions)})
        for _ in range(VISIBLE_TRIES):
            found = (await topic_identities(admin, [source.topic])).get(source.topic)
            if found is not None and found.id == source.found.id and found.partitions == partitions:
                return
            await asyncio.sleep(VISIBLE_S)
    raise BrokerError(f"partitions were added to {source.topic} and did not appear. {AGAIN}")


async def _commit(config: Config, task: SourceTask, effect: Commit, offset: int) -> None:
    """Commit one transaction: snapshots, or a block with its place and the group's offset, which never goes back."""
    producer, spec, block = task.producer, effect.spec, effect.block
    topics = config.topics
    await producer.begin_transaction()
    bounds = bounds_partition(spec.stream, effect.partition, topics.partitions)
    sent = [await producer.send(topics.bounds, each.value, key=each.key, partition=bounds) for each in effect.snapshots]
    if block is not None:
        topic, partition = place_of_blocks(spec, topics)
        sent.append(await producer.send(topic, block.encode(), key=spec.stream.encode(), partition=partition))
    for each in sent:
        await each
    if block is not None:
        task.places = task.places.with_blocks({spec.name: block.hi})
        place = OffsetAndMetadata(max(offset, task.next_offset, block.hi), task.places.encode())
        await producer.send_offsets_to_transaction({task.source: place}, topics.ingest_group)
    await producer.commit_transaction()


async def _store(source: _Source, raised: Sequence[Fingerprint]) -> None:
    if not raised:
        return
    job = source.config.job.name
    producer = await fenced_producer(source.config.kafka, f"{job}-ingest-{source.topic}-partitions")
    try:
        await producer.begin_transaction()
        for each in raised:
            topic = source.config.topics.fingerprints
            await (await producer.send(topic, each.encode(), key=each.stream.encode(), partition=0))
        failpoint("partitions_stored")
        await producer.commit_transaction()
    finally:
        await close_client(producer)


def _refused(topic: str, reason: str, fix: str) -> PrivstreamError:
    return TopicError(str(TopicProblem(topic, reason, fix)))
