"""A source that lost its tail: no event is counted twice, and none is missing without a word. No broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.worker.ingest.partition_task import SourceTask
from agents.worker.ingest.service import pass_over
from tests.agents.test_ingest_ticks import record, task_of

END = 10


class Consumer:
    """A Kafka consumer on a log that ends at `end`: further than that it knows nothing, and begins again."""

    def __init__(self, task: SourceTask, end: int) -> None:
        self._task, self.end, self.at = task, end, task.position
        self.asked = 0

    async def end_offsets(self, sources: Any) -> Any:
        self.asked += 1
        return {self._task.source: self.end}

    def seek(self, source: Any, offset: int) -> None:
        self.at = offset

    async def fetch(self, most: int) -> None:
        """As the service does with what it is given, and with where that ends."""
        if self.at > self.end:
            self.at = 0
        begin, self.at = self.at, min(self.at + most, self.end)
        if begin < self.at:
            await pass_over(self, self._task, begin, look=nothing)
            await self._task.take([record(offset) for offset in range(begin, self.at)])
        await pass_over(self, self._task, self.at, look=nothing)


async def nothing() -> None: ...


def counts(task: SourceTask, stream: str) -> tuple[int, int]:
    """Accepted and lost."""
    (machine,) = (each for each in task.clocked if each.spec.stream == stream)
    block = machine.seal()[0]
    return (0, 0) if block is None else (block.counts.get("ACCEPTED", 0), block.counts.get("LOST", 0))


@given(
    cut=st.integers(0, END - 1),
    ahead=st.integers(0, 3),
    grown=st.lists(st.integers(0, 6), min_size=1, max_size=8),
    most=st.integers(1, 20),
)
def test_each_new_event_is_counted_once_or_as_lost(cut: int, ahead: int, grown: list[int], most: int) -> None:
    """Stream b had read further than a, which catches up."""

    async def scenario() -> None:
        task = task_of("a", "b")
        for machine, begin in zip(task.clocked, (END, END + ahead), strict=True):
            machine.resume(begin)
        task.position = END
        consumer = Consumer(task, END)
        consumer.end = cut
        for more in [0, *grown, 0, 0]:
            consumer.end += more
            for _ in range(consumer.end + 2):
                await consumer.fetch(most)
        new = consumer.end - cut
        behind = max(0, consumer.end - END)
        ahead_of = max(0, consumer.end - END - ahead)
        await task.take([record(END + 40)])  # sealed even if nothing has come beyond
        assert counts(task, "a") == (behind + 1, new - behind)
        assert counts(task, "b") == (ahead_of + 1, new - ahead_of)

    asyncio.run(scenario())


async def test_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    task = task_of()
    task.clocked[0].resume(END)
    task.position = END
    consumer = Consumer(task, 4)
    for consumer.end in (4, 6, 9, 14, 20):
        for _ in range(5):
            await consumer.fetch(2)
    assert counts(task, "s") == (10, 6)
    assert consumer.asked == 1
    [line] = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert "read up to offset 10" in line
    assert "counted as LOST from 4 on" in line


async def test_a_source_that_has_grown_again_before_it_is_asked_is_named_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = task_of()
    task.clocked[0].resume(END)
    task.position = END
    consumer = Consumer(task, 12)
    consumer.at = 0  # it asked while the source was short
    for _ in range(6):
        await consumer.fetch(3)
    assert counts(task, "s") == (2, 0)
    assert caplog.text.count("how many cannot be told") == 1
