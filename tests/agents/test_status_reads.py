"""What `status` reads is deleted while it reads: it looks again, and never calls a stream idle that is well."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import TopicPartition

from agents.kafka.tail import Tail
from agents.operator.status import LOOKS, _newest_blocks
from schemas.blocks import Block
from schemas.config import Stream
from schemas.config.load import load_config

PLACE = ("job.blocks", 0)
STREAM: Stream = load_config(Path(__file__).parents[2] / "examples" / "taxi.toml").streams[0]


@dataclass(frozen=True)
class Record:
    offset: int
    key: bytes
    value: bytes


@dataclass
class Topic:
    """A consumer of one partition. Each look at it is followed by a block, and by the end of those before it.

    Args: trims: how often that happens.
    """

    trims: int
    begin: int = 0
    records: list[Record] = field(default_factory=list)
    at: int = 0

    def write(self) -> None:
        offset = self.begin + len(self.records)
        block = Block(stream=STREAM.name, partition=0, lo=0, hi=70, tick=offset, steps={}, counts={"ACCEPTED": 70})
        self.records.append(Record(offset, STREAM.name.encode(), block.encode()))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        if self.trims:
            self.trims -= 1
            self.write()
            self.begin, self.records = self.begin + len(self.records) - 1, self.records[-1:]
        # What is no longer there is read from the end on, as Kafka's consumers do.
        self.at = offset if offset >= self.begin else self.end

    @property
    def end(self) -> int:
        return self.begin + len(self.records)

    async def position(self, partition: TopicPartition) -> int:
        return self.at

    async def getmany(self, partition: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[Record]]:
        found, self.at = self.records[self.at - self.begin :], self.end
        return {partition: found}

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.begin)

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.end)


def read(trims: int, *, written: int = 1) -> tuple[dict[int, Block], Any]:
    topic = Topic(trims)
    for _ in range(written):
        topic.write()
    return asyncio.run(_newest_blocks(Tail(topic, {PLACE: 0}, {PLACE: topic.end}), PLACE, STREAM, 1))


def test_blocks_that_are_deleted_meanwhile_are_looked_for_again() -> None:
    for trims in range(LOOKS):
        blocks, recent = read(trims)
        assert blocks[0].hi == 70, trims
        assert recent[("ACCEPTED", "")] == 70


def test_a_stream_without_blocks_is_asked_once() -> None:
    blocks, recent = read(0, written=0)
    assert blocks == {}
    assert not recent


def test_who_is_always_too_late_is_told_nothing_after_some_looks() -> None:
    assert read(LOOKS)[0] == {}
