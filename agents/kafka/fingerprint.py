"""Whether a stream and its source are still what they were when the stream was started: at a start, and while it runs.

Before a worker starts, each stream is what its first record in the fingerprints topic says, or nothing starts; see
`agents.protocol.fingerprint` for what is compared. A topic can be deleted and made again, or be given a partition, at
any time, and Kafka's consumer goes on as if nothing had happened: at offsets that name other events, or without the
users that moved. So a running worker looks at its sources again and again (`SourceWatch`).
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aiokafka.errors import KafkaError

from agents.kafka.clients import read_to_end, write
from agents.kafka.schema_registry import schema_ids
from agents.kafka.topics import TopicIdentity, ends_of, existing_topics, topic_identities
from agents.protocol.fingerprint import ROUTED_FROM, ROUTED_PARTITIONS, SOURCE, Fingerprint, holding
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.record_formats import schema_text
from schemas.config import Config, Stream
from schemas.errors import BrokerError, FingerprintError, LostTopicError, SourceError
from schemas.topics import Topics

log = logging.getLogger(__name__)


LOOK_S = 5.0
SURE_S = 2.0  # a broker that has just started may not know of a topic for a moment
GIVE_UP_S = 10.0  # on a question about offsets: of a topic that is gone it would wait for ever


def change_of(topic: str, was: TopicIdentity, now: TopicIdentity | None, *, routed: bool = False) -> SourceError | None:
    """Return how a topic differs from what it was; None where it does not.

    Args: routed: whether it is a routed topic, or the source of a routed replay: no bounds can be taken to partitions
        that are added to these.
    """
    if now is None:
        return SourceError(f"source {topic} is gone. Made again it is another topic, whose offsets name other events")
    if now.id != was.id:
        return SourceError(
            f"source {topic} was deleted and made again: its offsets name other events than those that were read"
        )
    if now.partitions != was.partitions and routed:
        return SourceError(
            f"source {topic} has {now.partitions} partitions and had {was.partitions}: the job routes users by those "
            "that it had, and takes none in that are added. Start a new stream under another name (explain --earlier)"
        )
    if now.partitions != was.partitions:
        return SourceError(
            f"source {topic} has {now.partitions} partitions and had {was.partitions}: producers now place users where "
            "their bounds are not. With all workers stopped, privstream topics CONFIG --add-partitions "
            f"{topic}={now.partitions} takes the bounds there, or names a number that does"
        )
    return None


def changed_source(
    config: Config, stream: Stream, stored: Fingerprint | None, found: Mapping[str, TopicIdentity]
) -> SourceError | None:
    """Return how a stream's source differs from the one it was started with; None if it does not, or never started."""
    if stored is None:
        return None
    was = TopicIdentity(str(stored.fields["source_topic_id"]), int(stored.fields["source_partitions"]))
    read = config.read_by(stream)
    if (change := change_of(read, was, found.get(read), routed=stream.routed)) is not None or not stream.routed:
        return change
    now = found.get(stream.source)
    partitions = stored.fields.get(ROUTED_PARTITIONS, 0 if now is None else now.partitions)
    routed = TopicIdentity(str(stored.fields[ROUTED_FROM]), int(partitions))
    return change_of(stream.source, routed, now, routed=True)


class SourceWatch:
    """A running worker's look at its sources.

    Args:
        specs: topic -> what each stream does with it.
        sources: topic -> what it was when it was held against the fingerprints; what is absent is learnt when seen.
    """

    def __init__(self, specs: Mapping[str, Sequence[SourceSpec]], sources: Mapping[str, TopicIdentity]) -> None:
        self._specs = specs
        self._was = dict(sources)
        # A router of each partition that comes finds the same places for users as those that were there. Only who is
        # replayed has to know them all.
        self._may_grow = {
            topic for topic, each in specs.items() if all(spec.role == "route" and not spec.replay for spec in each)
        }
        self._routed = {
            topic for topic, each in specs.items() if any(spec.role == "route" or spec.routed_from for spec in each)
        }

    async def look(self, consumer: Any, topics: Collection[str]) -> dict[str, SourceError]:
        """Return the topics that have changed, and how. A cluster that does not answer is no answer."""
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
            was = self._was.setdefault(topic, TopicIdentity(identity.id, self._specs[topic][0].partitions))
            if topic in self._may_grow:
                self._was[topic] = replace(was, partitions=identity.partitions)
        known = self._was.keys() & topics
        changes = {
            topic: change_of(topic, self._was[topic], found.get(topic), routed=topic in self._routed)
            for topic in sorted(known)
        }
        return {topic: change for topic, change in changes.items() if change is not None}


@dataclass(frozen=True, slots=True)
class Checked:
    """A configuration whose streams may go on.

    Attributes:
        config: with every `start = "now"` replaced by the time that was decided at first start.
        source_partitions, audit_partitions: stream -> partitions of that topic, of those that may go on. Of a changed
            source, as many as it had; where records are routed, those of the routed topic.
        sources: each source, routed and audit topic as it was found.
        refused: streams that must not go on, and why; never all of them.
        changed: streams of which the source alone is another one: they may answer what they have, and read no more.
        others: streams that were started and are not configured now.
        schema_ids: stream -> id of the schema with which its records are written, of those that have one.
    """

    config: Config
    source_partitions: Mapping[str, int]
    audit_partitions: Mapping[str, int]
    sources: Mapping[str, TopicIdentity]
    refused: Mapping[str, FingerprintError] = field(default_factory=dict)
    changed: Mapping[str, SourceError] = field(default_factory=dict)
    others: frozenset[str] = frozenset()
    schema_ids: Mapping[str, int] = field(default_factory=dict)


async def check_fingerprints(
    config: Config,
    *,
    user_key_ids: Mapping[str, str | None],
    insecure: bool = False,
    without: Collection[str] = (),
) -> Checked:
    """Store the fingerprints of new streams and compare those of known ones.

    Args:
        user_key_ids: stream -> id of its user key, None where it has none.
        insecure: whether this worker draws seeds that can be repeated.
        without: streams that cannot start, and are not looked at.
    Raises: FingerprintError with field and fix, if no stream may go on, or while another one is new: a start that is
        refused in part decides nothing for it; LostTopicError if fingerprints were lost; BrokerError if a source topic
        is missing; ConfigError where the registry does not take the schema of a new stream.
    """
    streams = [stream for stream in config.streams if stream.name not in without]
    sources = {topic for s in streams for topic in (s.source, config.read_by(s), s.audit) if topic is not None}
    ledgers = {Topics.ledger(stream.name) for stream in streams}
    found = await existing_topics(config.kafka, sorted(sources | ledgers))
    if missing := sorted(sources - found.keys()):
        raise BrokerError(
            f"topic {', '.join(missing)} does not exist; create it (privstream topics --create), "
            "or correct source and audit"
        )

    def asked() -> dict[str, Fingerprint]:
        """Return what the streams would be started with, those that are known as of their own start."""
        return {
            s.name: fingerprint_now(
                s,
                config,
                found,
                user_key_ids.get(s.name),
                insecure=insecure,
                stored=stored.get(s.name),
                schema_id=registered.get(s.name),
            )
            for s in streams
        }

    stored = await stored_fingerprints(config)
    registered: Mapping[str, int] = {}
    now = asked()
    # Known streams first: a start that is refused must not decide anything for new ones.
    refused, changed = _refused(now, stored)
    begun = [stream for stream in streams if stream.name not in stored]
    if refused and (begun or refused.keys() == now.keys()):
        raise next(iter(refused.values()))
    if begun:
        await _check_unanswered(config, [stream.name for stream in begun], found)
        registered = await schema_ids(config, begun)
        now = asked()
        new = [now[stream.name] for stream in begun]
        records = {each.stream.encode(): each.encode() for each in new}
        await write(config.kafka, config.topics.fingerprints, records, enable_idempotence=True)
        for each in new:
            log.info("stream %s starts for the first time; its fingerprint is stored", each.stream)
        # Another worker may have been first: what stands first on the topic holds for both.
        stored = await stored_fingerprints(config)
        again, changed = _refused(asked(), stored)
        if again:
            raise next(iter(again.values()))
    # Those that cannot start, too: what they have on the private topics is theirs, and their steps have their times.
    known = [started(s, stored[s.name].start) if s.name in stored else s for s in config.streams]
    streams = [stream for stream in streams if stream.name not in refused]
    return Checked(
        config.model_copy(update={"streams": tuple(known)}),
        {stream.name: int(stored[stream.name].fields["source_partitions"]) for stream in streams},
        {stream.name: found[stream.audit].partitions for stream in streams if stream.audit},
        {name: found[name] for name in sources},
        refused,
        {
            s.name: error
            for s in streams
            if s.name in changed and (error := changed_source(config, s, stored[s.name], found))
        },
        frozenset(stored) - {stream.name for stream in config.streams},
        {s.name: int(stored[s.name].fields["output"]["schema_id"]) for s in streams if s.output.typed},
    )


async def _check_unanswered(config: Config, streams: Sequence[str], found: Mapping[str, TopicIdentity]) -> None:
    """Check that streams without a fingerprint are new: nobody could tell how private their public steps are.

    Raises: LostTopicError.
    """
    ledgers = {Topics.ledger(stream): stream for stream in streams}
    there = {ledger: found[ledger].partitions for ledger in ledgers if ledger in found}
    for ledger, (_, ends) in (await ends_of(config.kafka, there)).items():
        if any(ends):
            raise LostTopicError(
                f"stream {ledgers[ledger]}: {config.topics.fingerprints} does not know it, and {ledger} has steps of "
                "it: the fingerprints were lost, or another job has a stream of this name. Restore the topic, or start "
                "the stream under another name"
            )


def _refused(
    now: Mapping[str, Fingerprint], stored: Mapping[str, Fingerprint]
) -> tuple[dict[str, FingerprintError], dict[str, FingerprintError]]:
    """Return the streams that must not go on, and those that may go on with what they have read."""
    refused: dict[str, FingerprintError] = {}
    changed: dict[str, FingerprintError] = {}
    for name in now.keys() & stored.keys():
        try:
            stored[name].check(now[name])
        except FingerprintError as error:
            only_source = stored[name].differing(now[name]).keys() <= SOURCE
            (changed if only_source else refused)[name] = error
    return refused, changed


def fingerprint_now(
    stream: Stream,
    config: Config,
    found: Mapping[str, TopicIdentity],
    user_key_id: str | None,
    *,
    insecure: bool,
    stored: Fingerprint | None = None,
    schema_id: int | None = None,
) -> Fingerprint:
    """Return what a stream would be started with now.

    Args:
        found: its source, and the routed topic where it has one.
        stored: what it was started with, by which it counts its steps where the configuration says `now`, and writes
            its records: a step has the same bytes whatever a registry says later.
        schema_id: of a new stream with typed output.
    """
    start, replayed = stream.time.start, stream.time.clock == "replay"
    if start == "now":
        start = stream.time.started_at(datetime.datetime.now(stream.time.zone)) if stored is None else stored.start
    fields = {
        **stream.fingerprint_from(start),
        **(_output(stream, stored, schema_id) if stream.output.typed else {}),
        "source_topic_id": found[config.read_by(stream)].id,
        "source_partitions": found[config.read_by(stream)].partitions,
        **({ROUTED_FROM: found[stream.source].id} if stream.routed else {}),
        **({ROUTED_PARTITIONS: found[stream.source].partitions} if stream.routed and replayed else {}),
        "user_key_id": user_key_id,
        "job_partitions": config.kafka.partitions,
        "seeds": "insecure" if insecure else "secure",
    }
    return Fingerprint(stream.name, fields, start)


def _output(stream: Stream, stored: Fingerprint | None, schema_id: int | None) -> dict[str, Any]:
    if stored is not None:
        schema_id = stored.fields.get("output", {}).get("schema_id")
    schema = hashlib.sha256(schema_text(stream).text.encode()).hexdigest()
    return {"output": {"format": stream.output.format, "schema": schema, "schema_id": schema_id}}


def started(stream: Stream, start: str) -> Stream:
    """Return a stream with the time at which its step 0 begins, where the configuration says `now`."""
    if stream.time.start != "now":
        return stream
    return stream.model_copy(update={"time": stream.time.model_copy(update={"start": start})})


async def stored_fingerprints(config: Config) -> dict[str, Fingerprint]:
    """Return stream -> what it was first started with; empty before that. Raises: BrokerError, WireError."""
    return holding(record.value for record in await read_to_end(config.kafka, config.topics.fingerprints, 0))
