"""A task that has much to do keeps no other waiting, and says when its partition should not be fetched."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agents.worker.partition_tasks import QUEUE_RECORDS, PartitionTask, PartitionTasks, RecordQueue


class Slow(PartitionTask):
    """Works on its first record until it is told to go on."""

    role = "slow"

    def __init__(self, partition: int, go_on: asyncio.Event, seen: list[tuple[int, int]]) -> None:
        super().__init__(partition)
        self._go_on, self._seen = go_on, seen

    async def open(self) -> None:
        pass

    async def handle(self, event: Any) -> None:
        self._seen.append((self.partition, event.message.offset))
        if self.partition == 0:
            await self._go_on.wait()


async def test_a_partition_that_is_slow_holds_up_no_other() -> None:
    go_on, seen = asyncio.Event(), list[tuple[int, int]]()
    held: dict[int, list[bool]] = {0: [], 1: []}
    tasks = PartitionTasks(
        {"slow": lambda partition: Slow(partition, go_on, seen)},
        lambda error: None,
        hold=lambda role, partition, hold: held[partition].append(hold),
    )
    tasks.open([0, 1])
    await asyncio.sleep(0.01)
    for offset in range(3 * QUEUE_RECORDS):
        for partition in (0, 1):
            tasks.deliver(
                "slow", SimpleNamespace(message=SimpleNamespace(topic="t", partition=partition, offset=offset))
            )
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    assert [offset for partition, offset in seen if partition == 1] == list(range(3 * QUEUE_RECORDS))
    assert [offset for partition, offset in seen if partition == 0] == [0]
    assert held[0]
    assert all(held[0])
    assert True not in held[1]
    go_on.set()
    await asyncio.sleep(0.05)
    assert [offset for partition, offset in seen if partition == 0] == list(range(3 * QUEUE_RECORDS))
    assert held[0][-1] is False
    await tasks.stop()


@given(st.lists(st.booleans(), max_size=200))
def test_a_queue_is_held_exactly_while_it_is_long(puts: list[bool]) -> None:
    queue, held = RecordQueue(), False

    def hold(now: bool) -> None:
        nonlocal held
        held = now

    queue.hold = hold
    for put in puts:
        if put:
            queue.put_nowait(0)
        elif not queue.empty():
            queue.get_nowait()
        assert held or queue.qsize() < QUEUE_RECORDS
        assert not held or queue.qsize() > QUEUE_RECORDS // 2
