"""Before a worker starts: each stream is what it was when it first started, or nothing starts.

The first record of a stream in the fingerprints topic holds. See `agents.protocol.fingerprint` for what is compared.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaProducer

from agents.kafka.clients import close_client, read_to_end
from agents.kafka.security import security_kwargs
from agents.kafka.source_check import changed_source
from agents.kafka.topics.admin import admin_client
from agents.kafka.topics.ids import TopicIdentity, topic_identities
from agents.kafka.topics.lost import ends_of
from agents.protocol.fingerprint import SOURCE, Fingerprint, holding
from schemas.errors import BrokerError, FingerprintError, LostTopicError, SourceError
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Config, Stream

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checked:
    """A configuration whose streams may go on.

    Attributes:
        config: with every `start = "now"` replaced by the time that was decided at first start.
        source_partitions, audit_partitions: stream -> partitions of that topic, of those that may go on. Of a changed
            source, as many as it had.
        sources: each source and audit topic as it was found.
        refused: streams that must not go on, and why; never all of them.
        changed: streams of which the source alone is another one: they may answer what they have, and read no more.
        others: streams that were started and are not configured now.
    """

    config: Config
    source_partitions: Mapping[str, int]
    audit_partitions: Mapping[str, int]
    sources: Mapping[str, TopicIdentity]
    refused: Mapping[str, FingerprintError] = field(default_factory=dict)
    changed: Mapping[str, SourceError] = field(default_factory=dict)
    others: frozenset[str] = frozenset()


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
        is missing.
    """
    streams = [stream for stream in config.streams if stream.name not in without]
    sources = {stream.source for stream in streams} | {s.audit for s in streams if s.audit}
    ledgers = {Topics.ledger(stream.name) for stream in streams}
    async with admin_client(config.kafka) as admin:
        found = await topic_identities(admin, sorted(sources | ledgers))
    if missing := sorted(sources - found.keys()):
        raise BrokerError(
            f"topic {', '.join(missing)} does not exist; create it (privstream topics --create), "
            "or correct source and audit"
        )

    def asked() -> dict[str, Fingerprint]:
        """What the streams would be started with, those that are known as of their own start."""
        keys = user_key_ids
        return {
            s.name: fingerprint_now(
                s, config, found[s.source], keys.get(s.name), insecure=insecure, stored=stored.get(s.name)
            )
            for s in streams
        }

    stored = await stored_fingerprints(config)
    now = asked()
    # Known streams first: a start that is refused must not decide anything for new ones.
    refused, changed = _refused(now, stored)
    new = [now[name] for name in now if name not in stored]
    if refused and (new or refused.keys() == now.keys()):
        raise next(iter(refused.values()))
    for name in [fingerprint.stream for fingerprint in new]:
        await _check_unanswered(config, name, found)
    if new:
        await _store(config, new)
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
        {s.name: error for s in streams if s.name in changed and (error := changed_source(s, stored[s.name], found))},
        frozenset(stored) - {stream.name for stream in config.streams},
    )


async def _check_unanswered(config: Config, stream: str, found: Mapping[str, TopicIdentity]) -> None:
    """A stream without a fingerprint must be new: nobody could tell with what guarantee its public steps were made.

    Raises: LostTopicError.
    """
    ledger = Topics.ledger(stream)
    if ledger in found and any((await ends_of(config.kafka, ledger, found[ledger].partitions))[1]):
        topic = Topics(config.job.name, config.kafka.partitions).fingerprints
        raise LostTopicError(
            f"stream {stream}: {topic} does not know it, and {ledger} has steps of it: the fingerprints were lost, or "
            "another job has a stream of this name. Restore the topic, or start the stream under another name"
        )


def _refused(
    now: Mapping[str, Fingerprint], stored: Mapping[str, Fingerprint]
) -> tuple[dict[str, FingerprintError], dict[str, FingerprintError]]:
    """The streams that must not go on, and those that may go on with what they have read."""
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
    source: TopicIdentity,
    user_key_id: str | None,
    *,
    insecure: bool,
    stored: Fingerprint | None = None,
) -> Fingerprint:
    """What a stream would be started with now.

    Args: stored: what it was started with, by which it counts its steps where the configuration says `now`.
    """
    start = stream.time.start
    if start == "now":
        start = stream.time.started_at(datetime.datetime.now(stream.time.zone)) if stored is None else stored.start
    fields = {
        **stream.fingerprint_fields(),
        "time": stream.time.fingerprint_from(start),
        "source_topic_id": source.id,
        "source_partitions": source.partitions,
        "user_key_id": user_key_id,
        "job_partitions": config.kafka.partitions,
        "seeds": "insecure" if insecure else "secure",
    }
    return Fingerprint(stream.name, fields, start)


def started(stream: Stream, start: str) -> Stream:
    """With the time at which its step 0 begins, where the configuration says `now`."""
    if stream.time.start != "now":
        return stream
    return stream.model_copy(update={"time": stream.time.model_copy(update={"start": start})})


async def stored_fingerprints(config: Config) -> dict[str, Fingerprint]:
    """Stream -> what it was first started with; empty before that. Raises: BrokerError, WireError."""
    topic = Topics(config.job.name, config.kafka.partitions).fingerprints
    _, _, records = await read_to_end(config.kafka, topic, 0, 0)
    return holding(record.value for record in records)


async def _store(config: Config, fingerprints: list[Fingerprint]) -> None:
    topic = Topics(config.job.name, config.kafka.partitions).fingerprints
    producer = AIOKafkaProducer(
        bootstrap_servers=config.kafka.bootstrap, acks="all", enable_idempotence=True, **security_kwargs(config.kafka)
    )
    try:
        await producer.start()
        for fingerprint in fingerprints:
            await producer.send_and_wait(topic, fingerprint.encode(), key=fingerprint.stream.encode(), partition=0)
            log.info("stream %s starts for the first time; its fingerprint is stored", fingerprint.stream)
    finally:
        await close_client(producer)
