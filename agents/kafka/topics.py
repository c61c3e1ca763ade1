"""Creating and checking the job's topics, their ids, what is missing of them, and the access rules of private ones.

Names and settings come from `schemas.topics`; here they meet a cluster. A topic is known by the id that Kafka gives it
at its creation: one that was deleted and created again has another. aiokafka 0.14 speaks Metadata up to version 5,
which has no ids; here is version 12 (Kafka 3.1 and later) in the few lines it takes.

A topic that a job has lost is never made again: empty, what it held would be taken for never said. A bounds topic that
was made again or cut is seen here by its offsets alone, which is cheap; the proof, bucket by bucket, is made where the
ingest restores (`agents.protocol.ingest.snapshots`).
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import chain
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

from agents.kafka.clients import log_reader, read_to_end, reading
from agents.kafka.cluster import no_answer
from agents.kafka.security import security_kwargs
from agents.protocol.fingerprint import holding
from agents.protocol.partitioner import bounds_partition, home_partition
from schemas.blocks import Block
from schemas.config import Config, Kafka
from schemas.errors import BrokerError, ConfigError, TopicError
from schemas.topics import Topic, Topics

NO_ID = bytes(16)


class Id(AbstractType):
    """Sixteen bytes of the protocol."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


TEXT = CompactString("utf-8")
TAGS = ("tags", TaggedFields)
BROKERS = CompactArray(("node_id", Int32), ("host", TEXT), ("port", Int32), ("rack", TEXT), TAGS)
PARTITIONS = CompactArray(
    ("error_code", Int16), ("partition", Int32), ("leader", Int32), ("leader_epoch", Int32),
    ("replicas", CompactArray(Int32)), ("isr", CompactArray(Int32)), ("offline_replicas", CompactArray(Int32)), TAGS,
)  # fmt: skip
TOPICS = CompactArray(
    ("error_code", Int16), ("name", TEXT), ("topic_id", Id), ("is_internal", Boolean), ("partitions", PARTITIONS),
    ("authorized_operations", Int32), TAGS,
)  # fmt: skip


class MetadataResponse12(Response):
    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("brokers", BROKERS), ("cluster_id", TEXT), ("controller_id", Int32),
        ("topics", TOPICS), TAGS,
    )  # fmt: skip


class MetadataRequest12(RequestStruct):
    API_KEY = 3
    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = MetadataResponse12
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", Id), ("name", TEXT), TAGS)),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        TAGS,
    )


class MetadataWithIds(Request[MetadataRequest12]):
    API_KEY = 3

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: Any) -> Any:
        # Never let the question create the topic.
        return request_struct_class([(NO_ID, name, {}) for name in self._topics], False, False, {})


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """What tells a topic from another one of the same name."""

    id: str
    partitions: int


async def topic_answers(
    asking: AIOKafkaAdminClient | AIOKafkaConsumer, topics: Collection[str]
) -> tuple[dict[str, TopicIdentity], dict[str, KafkaError]]:
    """Return topic -> identity, and topic -> why it is unknown; missing topics are in neither. Raises: KafkaError."""
    client = asking._client
    response = await client.send(client.get_random_node(), MetadataWithIds(topics))
    found: dict[str, TopicIdentity] = {}
    untold: dict[str, KafkaError] = {}
    for error, name, topic_id, _, partitions, *_ in response.topics:
        if error == UnknownTopicOrPartitionError.errno:
            continue
        if error:
            untold[name] = for_code(error)(name)
        else:
            found[name] = TopicIdentity(topic_id.hex(), len(partitions))
    return found, untold


async def topic_identities(
    asking: AIOKafkaAdminClient | AIOKafkaConsumer, topics: Collection[str]
) -> dict[str, TopicIdentity]:
    """Return topic -> identity; what does not exist is absent. Raises: KafkaError, also if one of them is not told."""
    found, untold = await topic_answers(asking, topics)
    for error in untold.values():
        raise error
    return found


async def existing_topics(kafka: Kafka, topics: Collection[str], *, fix: str = "") -> dict[str, TopicIdentity]:
    """Return topic -> identity, asked by a client of its own; what does not exist is absent.

    Args: fix: what to do where one does not exist, which is an error then.
    Raises: BrokerError.
    """
    async with admin_client(kafka) as admin:
        found = await topic_identities(admin, topics)
    if fix and (missing := [topic for topic in topics if topic not in found]):
        raise not_there(missing, fix)
    return found


def not_there(missing: Sequence[str], fix: str) -> BrokerError:
    """Return the error that topics do not exist, with what to do."""
    said = f"topic {missing[0]} does not" if len(missing) == 1 else f"topics {', '.join(missing)} do not"
    return BrokerError(f"{said} exist. Fix: {fix}.")


RECENT = 100  # records at the end of a blocks partition, among which the newest blocks of its streams are looked for
WHAT_TO_DO = (
    "put the private topics back as they were, all of one moment; else start anew: another name for the job and for "
    "its streams, and what was released counts for the same people (explain --earlier)"
)


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """Why the job cannot use a topic as it is, and what to do. `gone`: it is not there, or has lost what it held."""

    topic: str
    reason: str
    fix: str
    gone: bool = False

    def __str__(self) -> str:
        return f"{self.topic}: {self.reason}\n    fix: {self.fix}"


def _lost(topic: str, reason: str) -> TopicProblem:
    return TopicProblem(topic, reason, WHAT_TO_DO, gone=True)


async def lost_topics(config: Config, existing: Mapping[str, TopicIdentity]) -> dict[str, TopicProblem]:
    """Return topics that are missing and were there: those of the job's history, if another one of it holds or has held
    records, and the routed and public ones of streams that were started.

    Raises: BrokerError, WireError.
    """
    topics = config.topics
    lost: dict[str, str] = {}
    missing = [name for name in topics.history if name not in existing]
    if missing:
        there = {name: existing[name].partitions for name in topics.history if name in existing}
        filled = [name for name, (_, ends) in (await ends_of(config.kafka, there)).items() if any(ends)]
        lost |= dict.fromkeys(missing if filled else (), f"{''.join(filled[:1])} shows that the job has run")
    published = {topic: stream.name for stream in config.streams for topic in topics.published(stream.name)}
    published |= {topics.routed(stream.name): stream.name for stream in config.streams if stream.routed}
    if published.keys() - existing.keys() and topics.fingerprints in existing:
        records = await read_to_end(config.kafka, topics.fingerprints, 0)
        started = holding(record.value for record in records)
        gone = {topic: name for topic, name in published.items() if topic not in existing and name in started}
        lost |= {topic: f"{name} was started with it" for topic, name in gone.items()}
    reason = "is gone, with all it held: {}. It must not be made again empty"
    return {topic: _lost(topic, reason.format(why)) for topic, why in lost.items()}


async def lost_bounds(config: Config, existing: Mapping[str, TopicIdentity]) -> list[TopicProblem]:
    """Return what the offsets of the bounds topic show: that it was cut, or made again while the job had bounds in it.

    Raises: BrokerError, WireError.
    """
    topics = config.topics
    if topics.bounds not in existing or topics.blocks not in existing:
        return []
    written = await _written_partitions(config, topics)
    # After the blocks: what a block speaks of was committed with it or before.
    begins, ends = (await ends_of(config.kafka, {topics.bounds: existing[topics.bounds].partitions}))[topics.bounds]
    if any(begins):  # compaction leaves the first offset where it is
        return [
            _lost(topics.bounds, "has lost its first records: by retention, or while it had another cleanup.policy")
        ]
    if any(ends[partition] == 0 for partition in written if partition < len(ends)):
        return [_lost(topics.bounds, "is empty where blocks speak of bounds in it: it was deleted and made again")]
    return []


async def _written_partitions(config: Config, topics: Topics) -> Collection[int]:
    """Return the partitions of the bounds topic that hold snapshots, as the newest blocks say."""
    bounded = {stream.name for stream in config.streams if stream.privacy.bounds_users}
    written = set()
    for home in {home_partition(name, topics.partitions) for name in bounded}:
        async with log_reader(config.kafka, topics.blocks, home) as reader:
            records = [record async for batch in reader.read(reader.end - RECENT) for record in batch]
        for block in (Block.decode(record.value) for record in records if record.key.decode() in bounded):
            if block.snapshots.any():
                written.add(bounds_partition(block.stream, block.partition, topics.partitions))
    return written


async def ends_of(kafka: Kafka, topics: Mapping[str, int]) -> dict[str, tuple[list[int], list[int]]]:
    """Return topic -> the first and the next offset of each partition.

    Args: topics: topic -> its number of partitions.
    Raises: BrokerError.
    """
    if not topics:
        return {}
    asked = {topic: [TopicPartition(topic, each) for each in range(number)] for topic, number in topics.items()}
    every = list(chain.from_iterable(asked.values()))
    name, *rest = topics
    named = f"{name} and {len(rest):,} more" if rest else name
    what = f"{named} cannot be looked at"
    # What was written counts, committed or not: a topic that holds something was not made anew.
    async with reading(kafka, what, topics, isolation="read_uncommitted") as (consumer, _):
        begins, ends = await consumer.beginning_offsets(every), await consumer.end_offsets(every)
    return {topic: ([begins[each] for each in its], [ends[each] for each in its]) for topic, its in asked.items()}


SAFE_BROKERS = 3  # from here on a record survives the loss of a broker
ADMIN_TIMEOUT_MS = 20_000
APPEAR_S = 60.0
"""How long brokers may take to hear of topics that were created."""
REQUEST_RECORDS = 5_000
"""What one request may make of topics, partitions and settings: a controller of KRaft refuses more than 10,000."""
TIMES = frozenset(f"message.timestamp.{limit}.max.ms" for limit in ("before", "after", "difference"))
"""Settings of a topic, by the age of the broker, that refuse records for their timestamps."""
NO_LIMIT = str(2**63 - 1)
ADMIN_PROPERTIES = "admin.properties"
"""Client settings of somebody who may change access rules, as Kafka's own tools read them."""
COMPACTED_SOURCE = (
    "is a source with cleanup.policy = compact: of events with one key all but the last are deleted, those too that "
    "nobody has read yet"
)
NO_SOURCE = (
    "create it, or correct source in the stream; a stream that has read it needs the very topic back, or goes on as a "
    "new stream under another name"
)
ONE_PARTITION = (
    'in a source of one partition alone; or set partitioner = "any", and the job routes them, or key the records by '
    'user and set "murmur2" or "crc32", before the stream has begun to read'
)
DO_NOT_COMPACT = (
    "{command}, with a retention longer than the longest outage; or, where lost events do not matter, set "
    "allow_compacted = true in each stream that reads it"
)


def needed_topics(config: Config) -> list[Topic]:
    """Return every topic that the job writes, and those it reads from others (whose `partitions` is None)."""
    topics = config.topics
    replayed = all(stream.time.clock == "replay" for stream in config.streams)  # may go live, and need not
    needed = [replace(topic, optional=replayed and topic.name == topics.clock) for topic in topics.private()]
    for stream in config.streams:
        needed += topics.public(stream.name)
    sources = dict.fromkeys(topic for s in config.streams for topic in (s.source, s.audit) if topic is not None)
    routed = [topics.routing(stream.name, stream.source) for stream in config.streams if stream.routed]
    return [*needed, *(Topic(name, "private", None, {}, "raw events") for name in sources), *routed]


@contextlib.asynccontextmanager
async def admin_client(kafka: Kafka) -> AsyncIterator[AIOKafkaAdminClient]:
    """Start an admin client. Raises: BrokerError if the cluster does not answer."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=kafka.bootstrap, request_timeout_ms=ADMIN_TIMEOUT_MS, **security_kwargs(kafka)
    )
    try:
        await admin.start()
    except BaseException as error:
        with contextlib.suppress(Exception):
            await admin.close()
        if isinstance(error, (KafkaError, OSError)):
            raise await no_answer(kafka, f"no answer from the cluster at {kafka.bootstrap}", error) from error
        raise
    try:
        yield admin
    except KafkaError as error:
        raise await no_answer(kafka, f"the cluster at {kafka.bootstrap} did not do what was asked", error) from error
    finally:
        await admin.close()


async def create_topics(config: Config, *, source_partitions: int | None = None) -> list[str]:
    """Create what is missing; topics that exist are left as they are. Returns the names of those created.

    Args:
        source_partitions: create missing source and audit topics too, with so many partitions; None leaves them to
        their producers. A source that must have one partition gets one.
    Raises: BrokerError, also where the job has run and has lost a topic: made again, it would be empty.
    """
    async with admin_client(config.kafka) as admin:
        present = await topic_identities(admin, [topic.name for topic in needed_topics(config)])
        if lost := await lost_topics(config, present):
            raise TopicError("\n".join(map(str, lost.values())))
        counts = {name: identity.partitions for name, identity in present.items()}
        new = []
        for topic in needed_topics(config):
            partitions = topic.partitions or source_partitions
            if source_partitions is not None and _kept_together(topic.name, config) is not None:
                partitions = 1
            if topic.like is not None:
                partitions = counts.get(topic.like)
            if topic.name not in present and partitions is not None:
                counts[topic.name] = partitions
                new.append(replace(topic, partitions=partitions))
        made = await _create(admin, config.kafka, [topic for topic in new if topic.like is None])
        routed = [topic for topic in new if topic.like is not None]
        if routed:  # behind the others: one that is there shows which settings these brokers have
            known = config.topics.blocks
            there = (await _settings(admin, [known]))[known]
            routed = [replace(topic, settings=_needed(topic, there)) for topic in routed]
        return made + await _create(admin, config.kafka, routed)


def _needed(topic: Topic, found: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a topic must have.

    A copy is written later than its record, so it must not be refused for a timestamp with which the source took that.

    Args: found: settings of a topic of the same brokers.
    """
    return {**topic.settings, **(dict.fromkeys(TIMES & found.keys(), NO_LIMIT) if topic.like is not None else {})}


async def _create(admin: AIOKafkaAdminClient, kafka: Kafka, new: Sequence[Topic]) -> list[str]:
    """Create topics, and wait until brokers know them: for a moment they answer "unknown topic"."""
    if not new:
        return []
    brokers = len((await admin.describe_cluster())["brokers"])
    replication = kafka.replication_factor or min(SAFE_BROKERS, brokers)
    safe = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
    extra = safe if replication >= SAFE_BROKERS else {}
    made = [NewTopic(t.name, t.partitions, replication, topic_configs={**t.settings, **extra}) for t in new]
    created = []
    for some in requests_of(made):
        for name, error, *_ in (await admin.create_topics(some)).topic_errors:
            if error == 0:
                created.append(name)
            elif error != TopicAlreadyExistsError.errno:  # another worker was faster
                raise BrokerError(f"topic {name} could not be created: {for_code(error).__name__}")
    names = [topic.name for topic in new]
    end = time.monotonic() + APPEAR_S
    while len(await topic_identities(admin, names)) < len(names):
        if time.monotonic() > end:
            raise BrokerError(f"topics were created and did not appear: {', '.join(names)}; try again")
        await asyncio.sleep(0.1)
    return created


def requests_of(topics: Sequence[NewTopic]) -> Iterator[list[NewTopic]]:
    """Yield topics in order, as many at a time as one request may create."""
    some: list[NewTopic] = []
    size = 0
    for topic in topics:
        more = 1 + topic.num_partitions + len(topic.topic_configs)
        if some and size + more > REQUEST_RECORDS:
            yield some
            some, size = [], 0
        some.append(topic)
        size += more
    if some:
        yield some


async def restore_changelog(config: Config) -> bool:
    """Make the changelog of the state tables again where it is gone: the next steps' states come to it from the workers
    whose stores have the last ones.

    Only if the job has run, which its other topics show. Returns whether it was made. Raises: BrokerError.
    """
    topics = config.topics
    async with admin_client(config.kafka) as admin:
        present = await topic_identities(admin, [topics.changelog, *topics.history])
        if topics.changelog in present or not set(topics.history) <= present.keys():
            return False
        topic = next(topic for topic in topics.private() if topic.name == topics.changelog)
        await _create(admin, config.kafka, [topic])
    return True


async def check_topics(config: Config, *, bounds: bool = False) -> list[TopicProblem]:
    """Return what keeps the job from running on the topics that are there; empty when all is well.

    Args: bounds: look at the offsets of the bounds topic too. A worker need not: it proves more when it restores.
    Raises: BrokerError, WireError.
    """
    needed = needed_topics(config)
    async with admin_client(config.kafka) as admin:
        found = await topic_identities(admin, [topic.name for topic in needed])
        settings = await _settings(admin, [topic.name for topic in needed if topic.name in found])
    lost = await lost_topics(config, found)
    problems = []
    for topic in needed:
        if topic.name in lost:
            problems.append(lost[topic.name])
        elif topic.name in found:
            problems += _problems_of(topic, found[topic.name].partitions, settings[topic.name], config)
        elif not topic.optional:
            fix = NO_SOURCE if topic.of_others else "run privstream topics --create"
            problems.append(TopicProblem(topic.name, "does not exist", fix, gone=True))
    if bounds and not problems:
        problems = await lost_bounds(config, found)
    return problems


def acl_lines(
    config: Config, *, reader: str = "User:reader", worker: str = "User:privstream", reader_group: str | None = None
) -> list[str]:
    """Return commands for `kafka-acls.sh`: workers may do what the job does; readers may READ public topics alone.

    Readers get no DESCRIBE on private topics and groups either: an offset, and so a lag, is a count of private events.

    Args: reader_group: consumer group of the readers; absent: named like the principal.
    Raises: ConfigError if that is a group of the job.
    """
    job = config.job.name
    groups = [job, config.topics.ingest_group]
    reader_group = reader.partition(":")[2] if reader_group is None else reader_group
    if reader_group in groups:
        reason = f"{reader_group} is a group of the job: its offsets count private events"
        raise ConfigError.of("--reader-group", reason, "name the consumer group of the readers")
    topics = needed_topics(config)
    sources = [topic.name for topic in topics if topic.of_others]
    replayed = {name for s in config.streams if s.time.clock == "replay" for name in (s.source, s.audit) if name}
    public = [topic.name for topic in topics if topic.audience == "public"]
    publishers = [Topics.publisher_id(stream.name) for stream in config.streams]

    def allow(principal: str, operations: str, kind: str, names: Sequence[str], *more: str) -> str:
        allowed = [part for operation in operations.split() for part in ("--operation", operation)]
        resources = [part for name in names for part in (f"--{kind}", name)]
        command = [*_of_the_cluster("kafka-acls.sh", config.kafka), "--add", "--allow-principal", principal]
        return shlex.join([*command, *allowed, *resources, *more])

    ids = [f"{job}-{role}-" for role in ("ingest", "engine", "replay")]
    lines = [
        allow(worker, "All", "topic", [topic.name for topic in topics if not topic.of_others]),
        allow(worker, "Read DescribeConfigs", "topic", sources),
        allow(worker, "Read", "group", groups),
        allow(worker, "Write", "transactional-id", ids, "--resource-pattern-type", "prefixed"),
        allow(worker, "Write", "transactional-id", publishers),
        allow(reader, "Read", "topic", public),
        allow(reader, "Read", "group", [reader_group]),
    ]
    if replayed:  # `privstream replay` writes there
        lines.insert(2, allow(worker, "Write", "topic", sorted(replayed)))
    return lines


def _of_the_cluster(program: str, kafka: Kafka) -> list[str]:
    """Return a program of Kafka's with options for this cluster."""
    command = [program, "--bootstrap-server", kafka.servers[0]]
    if kafka.security_protocol != "PLAINTEXT":
        command += ["--command-config", ADMIN_PROPERTIES]
    return command


async def _settings(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    settings: dict[str, dict[str, str]] = {}
    for response in await admin.describe_configs(resources):
        for code, _, _, name, entries in response.resources:
            if code:
                raise for_code(code)(name)
            settings[name] = {entry[0]: entry[1] for entry in entries}
    return settings


def _kept_together(topic: str, config: Config) -> str | None:
    """Return a stream whose users are together only because this source has one partition; None: there is none."""
    for stream in config.streams:
        if stream.source == topic and stream.privacy.bounds_users and not stream.checks_partition:
            return stream.name
    return None


def altering(kafka: Kafka, topic: str, name: str, value: str) -> str:
    """Return the command that sets a setting of a topic, for somebody who may."""
    command = [*_of_the_cluster("kafka-configs.sh", kafka), "--alter", "--topic", topic]
    return " ".join([*command, "--add-config", f"{name}={value}"])


def _problems_of(topic: Topic, partitions: int, found: Mapping[str, Any], config: Config) -> Iterator[TopicProblem]:
    """Yield what is wrong with a topic that is there, of its partitions and settings."""
    if topic.partitions not in (None, partitions):
        fix = "set [kafka] partitions to the number with which the job was started; none can be removed"
        yield TopicProblem(topic.name, f"has {partitions} partitions and needs {topic.partitions}", fix)
        return
    for name, wanted in _needed(topic, found).items():
        value = found.get(name)
        larger = name == "max.message.bytes" and value is not None and int(value) > int(wanted)
        if value != wanted and not larger:
            fix = altering(config.kafka, topic.name, name, wanted)
            yield TopicProblem(topic.name, f"has {name} = {value} and needs {wanted}", fix)
    readers = [stream for stream in config.streams if topic.name in (stream.source, stream.audit)]
    compacted = topic.of_others and "compact" in str(found.get("cleanup.policy"))
    if compacted and not all(stream.allow_compacted for stream in readers):
        command = altering(config.kafka, topic.name, "cleanup.policy", "delete")
        yield TopicProblem(topic.name, COMPACTED_SOURCE, DO_NOT_COMPACT.format(command=command))
    alone = _kept_together(topic.name, config)
    if alone is not None and partitions > 1:
        reason = f'has {partitions} partitions, and stream {alone} with partitioner = "none" takes one'
        yield TopicProblem(topic.name, reason, f"keep the events of all users {ONE_PARTITION}")
