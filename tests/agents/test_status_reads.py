"""What `status` reads is deleted while it reads: it looks again, and never calls a stream idle that is well."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from agents.kafka.clients import COUNTED, Tail
from agents.kafka.status import LOOKS, _newest_blocks
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


class Ended:
    """A consumer of partitions whose records stand at some offsets; between them are markers, or what was aborted.

    It fetches at most ten offsets at a time.
    """

    def __init__(self, records: dict[TopicPartition, list[int]]) -> None:
        self.records = records
        self.at: dict[TopicPartition, int] = {}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.at[partition] = offset

    async def position(self, partition: TopicPartition) -> int:
        return self.at[partition]

    async def getmany(self, *partitions: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[Record]]:
        found = {}
        for each in partitions:
            begin, self.at[each] = self.at[each], self.at[each] + 10
            found[each] = [Record(at, b"", b"") for at in self.records[each] if begin <= at < self.at[each]]
        return found


@given(
    gaps=st.lists(st.lists(st.integers(1, 30), max_size=40), min_size=1, max_size=3),
    read=st.floats(0, 1.2),
    behind=st.integers(0, 30),
)
def test_lag_is_the_records_that_are_left_and_no_marker(gaps: list[list[int]], read: float, behind: int) -> None:
    tps = [("raw", partition) for partition in range(len(gaps))]
    offsets = {tp: list(itertools.accumulate(each)) for tp, each in zip(tps, gaps, strict=True)}
    ends = {tp: (each[-1] if each else 0) + behind for tp, each in offsets.items()}
    begins = {tp: ends[tp] // 3 for tp in tps}
    consumer = Ended({TopicPartition(*tp): [*each, ends[tp] + 1] for tp, each in offsets.items()})
    starts = {tp: int(read * ends[tp]) for tp in tps}
    left = asyncio.run(Tail(consumer, begins, ends).left(starts))
    assert left == {
        tp: sum(max(starts[tp], begins[tp]) <= at < ends[tp] for at in each) for tp, each in offsets.items()
    }


def test_of_very_many_records_offsets_are_counted_and_not_read() -> None:
    consumer = Ended({TopicPartition("raw", 0): list(range(0, 100_000, 2))})
    left = asyncio.run(Tail(consumer, {("raw", 0): 0}, {("raw", 0): 100_000}).left({("raw", 0): 0}))
    assert left == {("raw", 0): COUNTED + 100_000 - 2 * COUNTED}
    assert consumer.at[TopicPartition("raw", 0)] == 2 * COUNTED


def test_who_is_always_too_late_is_told_nothing_after_some_looks() -> None:
    assert read(LOOKS)[0] == {}
