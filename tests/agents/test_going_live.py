"""Ends of steps by the wall clock on a partition that goes live: each has its place before reading comes to it, and
holds there if the partition has gone live before that place. No broker.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from aiokafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.ingest.events import RawRecord
from agents.worker.ingest.counters import IngestCounters
from agents.worker.ingest.partition_task import IngestOptions, SourceTask
from agents.worker.ingest.service import IngestService
from agents.worker.ingest.specs import source_specs
from schemas.events import TICK_HEADER, encode_going_live
from tests.agents.test_ingest_ticks import RECORDS, START_S, record
from tests.kafka.support import job_config, stream_table


def task_of(*clocks: str) -> SourceTask:
    """A stream for each clock, all on one source partition."""
    tables = [
        stream_table(
            f"s{number}",
            source="raw.s",
            privacy={"epsilon": 1.0, "unit": "event"},
            time={"field": "at", "format": "s", "start": "2020-01-01T00:00:00", "step": "60s", "clock": clock},
        )
        for number, clock in enumerate(clocks)
    ]
    config = job_config("localhost:1", Path("unused"), streams=tables, job="ticks")
    specs = source_specs(config, source_partitions=dict.fromkeys([t["name"] for t in tables], 1), audit_partitions=None)
    source = TopicPartition("raw.s", 0)
    return SourceTask(config, source, specs[source.topic], options=IngestOptions(), counters=IngestCounters())


def marker(offset: int, step: int) -> RawRecord:
    value = encode_going_live(step, live_from=0, row=0, source="test")
    return RawRecord(offset, -1, None, None, ((TICK_HEADER, value),))


@given(
    live_at=st.integers(0, RECORDS),
    over=st.integers(-1, 3),
    places=st.lists(st.integers(0, RECORDS), max_size=6).map(sorted),
    cuts=st.lists(st.integers(1, RECORDS - 1), max_size=6),
)
def test_an_end_holds_where_it_stands_if_the_partition_has_gone_live_before(
    live_at: int, over: int, places: list[int], cuts: list[int]
) -> None:
    """However far behind reading is, and however Kafka cuts what is fetched. A stream by the wall clock beside it is
    none the wiser: it refuses the record, and its own ends hold wherever they stand.
    """

    async def scenario() -> None:
        task = task_of("replay", "wall")
        replayed, wall = task.machines
        for machine in task.machines:
            for step, place in enumerate(places):
                task.awaited.put(machine, step, place)
        everything = [marker(offset, over) if offset == live_at else record(offset) for offset in range(RECORDS)]
        for low, high in pairwise(sorted({0, *cuts, RECORDS})):
            await task.take(everything[low:high])
            task.reached(high)
        expected: dict[Any, Counter[int]] = {replayed: Counter(), wall: Counter()}
        closed = {replayed: -1, wall: -1}
        for offset in range(RECORDS + 1):
            for step, place in enumerate(places):
                if place == offset:
                    closed[wall] = max(closed[wall], step)
                    if live_at < offset:
                        closed[replayed] = max(closed[replayed], step)
            if offset == live_at < RECORDS:
                closed[replayed] = max(closed[replayed], over)
            elif offset < RECORDS:
                for machine in task.machines:
                    expected[machine][closed[machine] + 1] += 1
        for machine in task.machines:
            block = machine.seal()[0]
            assert block is not None
            assert Counter({step: folded.total for step, folded in block.steps.items()}) == expected[machine]
            assert (block.tick, block.hi) == (closed[machine], RECORDS)
        assert replayed.live is (live_at < RECORDS)

    asyncio.run(scenario())


def test_an_end_that_was_void_is_placed_once_more_when_the_partition_has_gone_live() -> None:
    """Where the clock beside the replay was a little behind the worker's, and nothing else would close the step."""

    async def scenario() -> None:
        task = task_of("replay")
        (machine,) = task.machines
        task.awaited.put(machine, 4, 2)
        await task.take([record(0), record(1)])
        task.reached(2)
        assert (machine.ticked, task.awaited.asked(machine)) == (-1, 4), (
            "not asked again and again while nothing is live"
        )
        await task.take([marker(2, 3)])
        assert (machine.ticked, task.awaited.asked(machine)) == (3, 3)
        task.awaited.put(machine, 4, 5)
        task.reached(5)
        assert machine.ticked == 4

    asyncio.run(scenario())


def test_ends_of_replayed_streams_get_their_places_too_and_nobody_is_warned_of_them(caplog: Any) -> None:
    class Partition:
        asked = 0

        async def end_offsets(self, sources: list[TopicPartition]) -> dict[TopicPartition, int]:
            self.asked += 1
            return dict.fromkeys(sources, 7)

    async def scenario() -> None:
        task, partition = task_of("replay"), Partition()
        (machine,) = task.machines
        service = IngestService(task._config, {"raw.s": [machine.spec]}, now_us=lambda: (START_S + 10**8) * 10**6)
        service._grace_us = {"s0": 0}
        service._consumer = partition
        service.partition_tasks[task.source] = task
        await service._place_ticks()
        assert partition.asked == 0, "nobody has told the time yet"
        service._broker_clock._bound.measured((START_S + 10**8) * 10**6, at_s=time.monotonic())
        for _ in range(3):
            await service._place_ticks()
        assert (partition.asked, machine.ticked) == (1, -1)
        await task.take([record(offset) for offset in range(4)])
        await task.take([marker(4, 0), record(5)])
        task.reached(7)
        assert machine.ticked == task.awaited.asked(machine) == 10**8 // 60 - 1

    asyncio.run(scenario())
    assert "are over and not published" not in caplog.text
