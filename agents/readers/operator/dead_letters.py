"""Dead letters read back: which records were refused, why, and, for whoever may read the source, what they were.

OPERATOR ONLY: positions of private records, and with `raw_record` the records themselves.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka import TopicPartition

from agents.kafka.clients import follower, log_reader
from agents.kafka.schema_registry import RegistryClient, RegistryError
from agents.kafka.topics import existing_topics
from agents.protocol.formats.build import NEEDS, InputFormat
from agents.protocol.formats.contract import SchemaBook, UnreadableError
from agents.protocol.formats.reader import RecordReader
from agents.protocol.ingest.dead_letters import DeadLetter
from agents.protocol.ingest.decode import MAX_VALUE_BYTES
from schemas.config import Config
from schemas.errors import ConfigError, WireError

Wanted = Callable[[DeadLetter], bool]
BINARY = (*NEEDS, "msgpack")
"""Formats of which a record is no text."""


@dataclass
class Found:
    """What was refused, by stream, reason and field; up to which offset of each partition; and how many letters cannot
    be read, since another program or a later version wrote them.
    """

    most: int
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    ends: dict[int, int] = field(default_factory=dict)
    unreadable: int = 0
    _newest: list[tuple[int, int, DeadLetter]] = field(default_factory=list)

    @property
    def newest(self) -> list[DeadLetter]:
        """The last ones, by when they were written."""
        return [letter for _, _, letter in self._newest]

    def take(self, record: Any, wanted: Wanted) -> DeadLetter | None:
        """Take in the next record of the topic. Returns: its letter, if it is wanted."""
        try:
            letter = DeadLetter.decode(record.value or b"")
        except WireError:
            self.unreadable += 1
            return None
        if not wanted(letter):
            return None
        self.counts[letter.stream, letter.reason.name, letter.field] += 1
        bisect.insort(self._newest, (record.timestamp, letter.offset, letter), key=lambda entry: entry[:2])
        del self._newest[: -self.most or None]
        return letter


async def dead_letters(
    config: Config, wanted: Wanted, *, most: int, read: Callable[[int, int], None] = lambda done, total: None
) -> Found:
    """Return all letters that are there now. Raises: BrokerError.

    Args: most: newest positions to keep. read: told how many offsets of a partition are read, and of how many.
    """
    found = Found(most)
    topic, partitions = await _topic(config)
    for partition in range(partitions):
        async with log_reader(config.kafka, topic, partition) as log:
            found.ends[partition] = log.end
            async for records in log.read():
                for record in records:
                    found.take(record, wanted)
                if records:
                    read(records[-1].offset + 1 - log.beginning, log.end - log.beginning)
    return found


async def follow(config: Config, wanted: Wanted, found: Found) -> AsyncIterator[DeadLetter]:
    """Yield letters that come after those that were `found`, for as long as somebody looks. Raises: BrokerError."""
    topic, _ = await _topic(config)
    ends = {TopicPartition(topic, partition): end for partition, end in found.ends.items()}
    async with follower(config.kafka, ends) as consumer:
        while True:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for record in records:
                    if (letter := found.take(record, wanted)) is not None:
                        yield letter


@asynccontextmanager
async def raw_records(config: Config) -> AsyncIterator[Callable[[DeadLetter], Any]]:
    """Give what asks for the record of a letter: None where it is no longer there. PRIVATE, as it stands."""
    async with follower(config.kafka, {}) as consumer:

        async def ask(letter: DeadLetter) -> Any:
            tp = TopicPartition(letter.topic, letter.partition)
            consumer.assign([tp])
            begin = (await consumer.beginning_offsets([tp]))[tp]
            if letter.offset < begin or letter.offset >= (await consumer.end_offsets([tp]))[tp]:
                return None
            consumer.seek(tp, letter.offset)
            record = await consumer.getone(tp)
            return record if record.offset == letter.offset else None

        yield ask


class Readings:
    """What is in records that no terminal shows as they stand, by their schemas. PRIVATE.

    Attributes:
        problem: why some could not be read, in a sentence; None: nothing but the records themselves is in the way.
    """

    def __init__(self, config: Config) -> None:
        self.problem: str | None = None
        self._registry, self._book = config.kafka.registry, SchemaBook()
        self._streams = {each.name: each for each in config.streams if each.format in BINARY}

    async def values(self, stream: str, record: Any) -> list[Any] | None:
        """Return the value of each event of a record of a stream's source, with the types of JSON, and bytes; None
        where it is to be shown as it stands, since it can be, or cannot be read.
        """
        if stream not in self._streams or record is None or not record.value:
            return None
        form = InputFormat.from_stream(self._streams[stream])
        reader = RecordReader.of_values(form, self._book, max_value_bytes=MAX_VALUE_BYTES)
        try:
            if self._registry is not None and (wanted := reader.missing([record])[1]):
                async with RegistryClient(self._registry, not_there_s=0.0) as client:
                    await client.learn(self._book, wanted)
            return reader.values(record)
        except UnreadableError:
            return None
        except (ConfigError, RegistryError) as error:
            self.problem = f"some records are shown as they stand, since their schemas are not known: {error}"
            return None


async def _topic(config: Config) -> tuple[str, int]:
    topic = config.topics.dead_letters
    found = await existing_topics(config.kafka, [topic], fix="privstream topics CONFIG --create")
    return topic, found[topic].partitions
