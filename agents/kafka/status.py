"""What each stream has come to, for the operator: lag is a count of private events, so none of this is public.

Read from committed records alone; it needs no worker to be up, and disturbs none.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aiokafka import TopicPartition

from agents.kafka.clients import Tail, tail
from agents.kafka.fingerprint import changed_source, stored_fingerprints
from agents.kafka.lifecycle.advice import explain
from agents.kafka.lifecycle.refusals import Seen, by_reason_and_field, percent
from agents.kafka.lifecycle.stops import Stop
from agents.kafka.membership import members_of
from agents.kafka.schema_registry import WHAT_TO_DO, RegistryClient, RegistryError
from agents.kafka.stop_log import recorded
from agents.kafka.topics import TopicIdentity, admin_client, not_there, topic_identities
from agents.kafka.witness.places import within
from agents.kafka.witness.streams import store_of
from agents.protocol.formats.build import NEEDS
from agents.protocol.ingest.partition import nested
from agents.protocol.ingest.places import NEW, Places
from agents.protocol.partitioner import Hashing, home_partition
from agents.protocol.release.witness import Mark
from schemas.blocks import Block, Tally
from schemas.errors import ConfigError, SourceError, WireError, WitnessAwayError, WitnessError
from schemas.ledger import LedgerEntry
from schemas.topics import TopicAndPartition, Topics

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient

    from schemas.config import Config, Stream

MOST_BLOCKS = 2_000  # looked at from the end for the newest of each source partition
LOOKS = 5
"""At the blocks, which are deleted as soon as nothing needs them: maybe between two questions."""
RECENT_RECORDS, RECENT_BLOCKS = 1_000, 200  # looked at for what is refused lately; older blocks may be deleted


NO_WORKER = "no worker"
ROLES = 3  # of `_idle`


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a stream cannot be said to be well, though nothing of it is known to have stopped.

    Attributes:
        health: in a word or two. detail: a sentence, with what to do.
    """

    health: str
    detail: str


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """What one stream has come to.

    Attributes:
        published: last public step, -1 before any. published_at: end of that step.
        records: synthetic records alive. epsilon_spent, epsilon: of the configured unit.
        ingest_lag: records of the source that are in no block yet, ticks included. A partition with very many of them
            counts offsets, which transaction markers have, too (`Tail.left`).
        unrouted: those of them that the job has not yet copied to their users' partitions; None where it need not.
        over: last step that every source partition has closed, -1 before any.
        waiting: steps that are over and not public yet; a growing number means that engines are down or too slow.
        live: source partitions that have gone live after a replay; None where the clock is on the wall from the start.
        partitions: of the source, or of the routed topic.
        totals: all records ever read, by reason and configured field. recent: the same of the last ones.
        lost: source offsets that were deleted before they were read.
        source_problem: why the source is no longer the one with which the stream was started; None: it is.
        witness: the last step that the configured witness has seen, or what is wrong with it; None: none is configured.
        stopped: what has stopped of it and has not gone on since, with reason and advice; and what ended the worker,
            where no worker is there.
        doubt: see there; None: workers serve it.
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
    totals: Tally
    recent: Tally
    lost: int
    source_problem: str | None
    live: int | None
    partitions: int
    unrouted: int | None = None
    witness: str | None = None
    stopped: tuple[Stop, ...] = ()
    doubt: Doubt | None = None

    @property
    def clock(self) -> str:
        """What ends its steps, in a word."""
        return "wall" if self.live is None else "replay" if self.live == 0 else "live"

    @property
    def refusing(self) -> Seen | None:
        """The last records, or all where no last ones are kept, if many of them were refused; None if not."""
        recent = Seen.of(self.recent)
        seen = recent if recent.records else Seen.of(self.totals)
        return seen if seen.much else None

    @property
    def producers(self) -> Hashing | None:
        """The partitioner of those producers whose records were lately on the wrong partition; None: neither."""
        return Seen.of(self.recent or self.totals).producers

    @property
    def health(self) -> str:
        """What is worst of it, in a word or two; "ok" where nothing is found."""
        if self.stopped:
            return "stopped"
        if self.source_problem:
            return "source has changed"
        if self.doubt is not None:
            return self.doubt.health
        return f"refuses {percent(seen.share)}" if (seen := self.refusing) is not None else "ok"


async def status(config: Config) -> list[StreamStatus]:
    """Return each stream's status. Raises: BrokerError if a topic is missing, or the cluster does not say who works."""
    topics = config.topics
    sources = {topic for stream in config.streams for topic in (stream.source, config.read_by(stream))}
    wanted = {
        topics.blocks,
        topics.fingerprints,
        topics.stops,
        *(topics.ledger(stream.name) for stream in config.streams),
    }
    async with admin_client(config.kafka) as admin:
        found = await topic_identities(admin, sorted({*wanted, *sources}))
        idle = await _idle(admin, config)
        routed = await _routed(admin, config, found)
    stored = await stored_fingerprints(config) if topics.fingerprints in found else {}
    # The source of a stream that has run is told apart from one that was never there; what has lost its ledger is a
    # stream that has stopped, and is shown as one.
    new = [stream for stream in config.streams if stream.name not in stored]
    needed = {topics.blocks, *(topic for stream in new for topic in (stream.source, config.read_by(stream)))}
    if missing := sorted(needed - found.keys()):
        raise not_there(missing, "privstream topics CONFIG --check says of each what to do")
    read = sorted(found.keys() - {topics.fingerprints, topics.stops})
    tps = [(topic, partition) for topic in read for partition in range(found[topic].partitions)]
    stops = list((await recorded(config)).values()) if topics.stops in found else []
    doubt, ended = _doubt(config, idle, stops, kept=topics.stops in found)
    async with tail(config.kafka, tps, wait=False) as end:
        streams = [
            await _stream_status(
                config, stream, end, changed_source(config, stream, stored.get(stream.name), found), found, routed
            )
            for stream in config.streams
        ]
        return [
            replace(
                each,
                stopped=(*[stop for stop in stops if await _still(config, stop, each, end)], *ended),
                doubt=each.doubt or doubt,
                witness=await witness_state(config, each.stream, each.published),
            )
            for each in streams
        ]


async def registry_doubts(config: Config, states: Sequence[StreamStatus]) -> list[StreamStatus]:
    """Return the states, in doubt where records are to be read and the registry with their schemas does not help: only
    the workers know for which schemas they wait, and where nothing is said of them a stream would look well.
    """
    registry = config.kafka.registry
    read_by_schema = {each.name for each in config.streams if NEEDS.keys() & {each.format, each.key_format}}
    if registry is None or not any(each.ingest_lag for each in states if each.stream in read_by_schema):
        return list(states)
    try:
        async with RegistryClient(registry) as client:
            await client.check()
    except (ConfigError, RegistryError) as error:
        said = f"records are to be read, and the registry with their schemas does not help: {error}. Fix: {WHAT_TO_DO}"
        doubt = Doubt("registry is away", said)
        return [
            replace(each, doubt=each.doubt or doubt) if each.ingest_lag and each.stream in read_by_schema else each
            for each in states
        ]
    return list(states)


async def _routed(
    admin: AIOKafkaAdminClient, config: Config, found: Mapping[str, TopicIdentity]
) -> dict[str, dict[TopicAndPartition, int]]:
    """Return of each stream whose users the job routes itself how far it has come in each source partition."""
    routed = {}
    for stream in config.streams:
        if stream.routed and stream.source in found:
            tps = [TopicPartition(stream.source, partition) for partition in range(found[stream.source].partitions)]
            group = await admin.list_consumer_group_offsets(config.topics.ingest_group, partitions=tps)
            name = f"route:{stream.name}"
            places = {tp: Places.decode(each.metadata) for tp, each in group.items()}
            routed[stream.name] = {
                (tp.topic, tp.partition): each.get(name, each.get(NEW + name, 0)) for tp, each in places.items()
            }
    return routed


async def _idle(admin: AIOKafkaAdminClient, config: Config) -> list[str]:
    """Return the roles that no worker has. One that has a role is in a consumer group for as long as it gives signs of
    life, and subscribes there to what it reads.
    """
    topics = config.topics
    job, ingest = await members_of(admin, topics.job), await members_of(admin, topics.ingest_group)
    there = {"ingest": bool(ingest)}
    for role, topic in (("engine", topics.blocks), ("publish", topics.releases)):
        there[role] = any(subscribed is None or topic in subscribed for subscribed in job)
    return [role for role, at_work in there.items() if not at_work]


def _doubt(
    config: Config, idle: Sequence[str], stops: Iterable[Stop], *, kept: bool
) -> tuple[Doubt | None, list[Stop]]:
    """Return what speaks against all streams, and what ended the worker where that explains it.

    Args:
        idle: roles that no worker has.
        kept: whether there is a record of what has stopped.
    """
    ended = [stop for stop in stops if stop.part == "worker"]
    if idle:
        what = NO_WORKER if len(idle) == ROLES else f"no {' and no '.join(idle)}"
        why = f"no worker is in its consumer group for {', '.join(idle)}"
        return Doubt(what, f"{why}: none runs, or it waits. Start one, or see its log"), ended
    if not kept:
        fix = "stop all workers and run privstream topics CONFIG --create"
        return Doubt("unknown", f"topic {config.topics.stops} is gone, and with it what has stopped. Fix: {fix}"), []
    return next((Doubt("a worker stopped", str(stop)) for stop in ended), None), []


async def _still(config: Config, stop: Stop, stream: StreamStatus, end: Tail) -> bool:
    """Return whether what has stopped has not gone on since: neither a step that was to come next, nor a block."""
    if stop.stream != stream.stream:
        return False
    if stop.step is not None:
        return stream.published < stop.step
    if stop.part != "ingest" or stop.partition is None:
        return True  # cleared by the next worker that finds nothing wrong at its start
    tp = (config.topics.blocks, home_partition(stop.stream, config.kafka.partitions))
    newest = await end.newest(tp, lambda record: _is_of(record, stop))
    return newest is None or newest.timestamp <= stop.at_ms


def _is_of(record: Any, stop: Stop) -> bool:
    if record.key != stop.stream.encode():
        return False
    try:
        return Block.decode(record.value).partition == stop.partition
    except WireError:
        return False


async def _stream_status(
    config: Config,
    stream: Stream,
    end: Tail,
    change: SourceError | None,
    found: Mapping[str, TopicIdentity],
    routed: Mapping[str, Mapping[TopicAndPartition, int]],
) -> StreamStatus:
    topics = config.topics
    ledger_topic, partitions = topics.ledger(stream.name), 0
    source = config.read_by(stream)
    if source in found:
        partitions = found[source].partitions
    place = (topics.blocks, home_partition(stream.name, config.kafka.partitions))
    blocks, recent = await _newest_blocks(end, place, stream, partitions)
    ledger, foreign = await _newest_entry(end, stream.name) if ledger_topic in found else (None, None)
    read = {(source, partition): blocks[partition].hi for partition in range(partitions) if partition in blocks}
    left = await end.left({(source, partition): 0 for partition in range(partitions)} | read)
    unrouted = sum((await end.left(routed[stream.name])).values()) if stream.name in routed else None
    over = min((blocks[partition].tick if partition in blocks else -1 for partition in range(partitions)), default=-1)
    published = -1 if ledger is None else ledger.step
    totals = Counter(sum((Seen.of(block.totals).tally for block in blocks.values()), Counter()))
    return StreamStatus(
        stream=stream.name,
        published=published,
        published_at=None if ledger is None else ledger.end,
        records=0 if ledger is None else ledger.synthetic_records,
        epsilon_spent=0.0 if ledger is None else ledger.epsilon_spent,
        epsilon=float(stream.privacy.epsilon) if ledger is None else ledger.epsilon,
        private=ledger is None or ledger.guarantee.private,
        ingest_lag=sum(left.values()) + (unrouted or 0),
        unrouted=unrouted,
        over=over,
        waiting=max(0, over - published),
        totals=nested(totals),
        recent=nested(recent),
        lost=Seen(totals).lost,
        source_problem=None if change is None else explain(change),
        live=sum(block.live_from is not None for block in blocks.values()) if stream.time.clock == "replay" else None,
        partitions=partitions,
        doubt=None if foreign is None else Doubt("foreign record", explain(foreign)),
    )


async def _newest_entry(end: Tail, stream: str) -> tuple[LedgerEntry | None, WireError | None]:
    """Return the last entry of a public ledger, and what is wrong with a record behind it."""
    foreign: WireError | None = None
    async for record in end.backwards((Topics.ledger(stream), 0)):
        try:
            return LedgerEntry.decode(record.value, stream), foreign
        except WireError as error:
            foreign = error
    return None, foreign


async def _newest_blocks(
    end: Tail, tp: TopicAndPartition, stream: Stream, partitions: int
) -> tuple[dict[int, Block], Counter[tuple[str, str]]]:
    """Return the last block of each source partition of a stream, and what the last blocks count.

    A worker deletes blocks once newer ones have taken their place. Where that falls between the question for the end
    and the reading, nothing is found of a stream that is well, so it is asked again.
    """
    for _ in range(LOOKS - 1):
        found, recent = await _look_back(end, tp, stream, partitions)
        if len(found) >= partitions or not await end.overtaken(tp):
            return found, recent
        await end.renew()
    return await _look_back(end, tp, stream, partitions)


async def _look_back(
    end: Tail, tp: TopicAndPartition, stream: Stream, partitions: int
) -> tuple[dict[int, Block], Counter[tuple[str, str]]]:
    found: dict[int, Block] = {}
    recent = Seen()
    looked_at = 0
    async for record in end.backwards(tp):
        if record.key == stream.name.encode():
            with contextlib.suppress(WireError):
                block = Block.decode(record.value)
                found.setdefault(block.partition, block)
                if recent.records < RECENT_RECORDS:
                    recent.tally.update(by_reason_and_field(block))
        looked_at += 1
        enough = recent.records >= RECENT_RECORDS or looked_at >= RECENT_BLOCKS
        if (len(found) >= partitions and enough) or looked_at >= MOST_BLOCKS:
            break
    return found, recent.tally


async def witness_state(config: Config, stream: str, published: int) -> str | None:
    """Say in a line what the witness has of a stream that is public up to a step; None where none is configured."""
    if config.job.witness is None:
        return None
    try:
        store = store_of(config.job)
        data = (await within(store.read(stream), store.place)).data
        mark = None if data is None else Mark.decode(data, stream=stream, place=store.place)
    except (ConfigError, WitnessAwayError, WitnessError) as error:
        return str(error)
    if mark is None:
        return "has never seen this stream" if published >= 0 else "waits for the first step"
    since = "" if mark.since < 0 else f", since step {mark.since + 1}: what was before is taken on the ledger's word"
    if mark.step < published:
        return f"ENDS AT STEP {mark.step}, before the public ledger{since}"
    return f"step {mark.step}{since}"
