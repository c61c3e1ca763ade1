"""A revoked task is told once to end: no await on its way may lose that, or it goes on beside its successor."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

import agents.kafka.clients
import agents.worker.partition_tasks
from agents.kafka.clients import fenced_producer
from agents.worker.partition_tasks import PartitionTask, PartitionTasks
from agents.worker.table import DurableTable
from schemas.config.server import Kafka

Work = Coroutine[Any, Any, Any]
Start = Callable[[asyncio.Future[Any], list[str], pytest.MonkeyPatch], Work]


def save(answer: asyncio.Future[Any], done: list[str], patch: pytest.MonkeyPatch) -> Work:
    """A write to the state table, which must not reach the store of a partition that was given up."""

    async def send(**_: Any) -> asyncio.Future[Any]:
        return answer

    store = SimpleNamespace(write=lambda batch: done.append("written"))
    data = SimpleNamespace(offset_key=b"offset", use=lambda partition, work: work(store))
    table: Any = SimpleNamespace(
        changelog_topic=SimpleNamespace(send=send),
        _writing={0: asyncio.Lock()},
        _write=lambda *record: DurableTable._write(table, *record),
        data=data,
    )
    return DurableTable._put(table, 0, (b"key", b"value"))


def fence(answer: asyncio.Future[Any], done: list[str], patch: pytest.MonkeyPatch) -> Work:
    class Producer:
        def __init__(self, **_: Any) -> None: ...

        async def start(self) -> None:
            await answer

        async def stop(self) -> None:
            pass

    patch.setattr(agents.kafka.clients, "OneChanceProducer", Producer)
    return fenced_producer(Kafka(bootstrap="127.0.0.1:1"), "id")


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("start", [save, fence])
async def test_the_end_is_not_lost_where_an_answer_comes_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, start: Start, turns: int
) -> None:
    """`asyncio.wait_for` of Python 3.11 returns the answer and forgets the cancellation."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    done: list[str] = []
    task = asyncio.create_task(start(answer, done, monkeypatch))
    for _ in range(8):
        await asyncio.sleep(0)
    answer.set_result(SimpleNamespace(offset=1))
    for _ in range(turns):
        await asyncio.sleep(0)
    told = task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() == told
    assert not (told and done)


async def test_a_task_that_missed_its_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries have such awaits as well."""
    monkeypatch.setattr(agents.worker.partition_tasks, "AGAIN_S", 0.01)
    ended = asyncio.Event()

    class Deaf(PartitionTask):
        role = "deaf"

        async def open(self) -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
            try:
                await asyncio.sleep(3600)
            finally:
                ended.set()

        async def handle(self, event: Any) -> None:
            raise AssertionError

        async def close(self) -> None:
            assert ended.is_set(), "closed while it works"
            await super().close()

    tasks = PartitionTasks({"deaf": Deaf}, lambda error: None)
    tasks.open([0])
    await asyncio.sleep(0)
    await tasks.stop()
    assert ended.is_set()
