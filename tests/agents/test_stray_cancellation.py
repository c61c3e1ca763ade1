"""A library's own cancellation, passed on, ends no part of a worker in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from mode import Service

import agents.kafka.clients
from agents.kafka.clients import close_client
from agents.lifecycle.cancellations import LongService, to_the_end, told
from agents.worker.partition_tasks import PartitionTask, PartitionTasks
from schemas.errors import BrokerError, StrayCancellationError


async def stray() -> None:
    """What aiokafka's fetcher does at its end: it waits for a task that it has cancelled."""
    task = asyncio.create_task(asyncio.sleep(3600))
    task.cancel()
    await task


class Torn(LongService):
    @Service.task
    async def _run(self) -> None:
        await stray()


class Whole(LongService):
    @Service.task
    async def _run(self) -> None:
        await asyncio.sleep(3600)


class TornTask(PartitionTask):
    role = "engine"

    async def open(self) -> None: ...

    async def handle(self, event: Any) -> None: ...

    async def run(self) -> None:
        await stray()


def test_a_service_that_is_cut_off_crashes() -> None:
    async def scenario() -> BaseException | None:
        service = Torn()
        await service.start()
        async with asyncio.timeout(30):
            await service._crashed.wait()
        reason = service.crash_reason
        await service.stop()
        return reason

    assert isinstance(asyncio.run(scenario()), StrayCancellationError)


def test_a_service_that_is_stopped_does_not() -> None:
    async def scenario() -> BaseException | None:
        service = Whole()
        await service.start()
        await asyncio.sleep(0)
        await service.stop()
        return service.crash_reason

    assert asyncio.run(scenario()) is None


def test_a_task_that_is_cut_off_stops_the_worker() -> None:
    async def scenario() -> BaseException:
        crashed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        async def crash(error: BaseException) -> None:
            crashed.set_result(error)

        tasks = PartitionTasks({"engine": TornTask}, crash)
        tasks.open([0])
        async with asyncio.timeout(30):
            error = await crashed
        await tasks.stop()
        return error

    assert isinstance(asyncio.run(scenario()), StrayCancellationError)


def test_who_is_cancelled_is_cancelled() -> None:
    async def scenario() -> bool:
        task = asyncio.create_task(told(asyncio.sleep(3600), "a part"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(scenario())


def test_the_last_work_is_done_to_its_end_by_who_is_cancelled_meanwhile() -> None:
    async def scenario() -> tuple[bool, list[str]]:
        done: list[str] = []
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def last() -> None:
            begun.set()
            await may_end.wait()
            done.append("closed")

        task = asyncio.create_task(to_the_end(last()))
        await begun.wait()
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        may_end.set()
        await asyncio.wait([task])
        return task.cancelled(), done

    assert asyncio.run(scenario()) == (True, ["closed"])


def test_the_last_work_may_fail() -> None:
    with pytest.raises(BrokerError):
        asyncio.run(to_the_end(_breaks()))


async def _breaks() -> None:
    raise BrokerError("a sender's last error")


@pytest.mark.parametrize("end", [stray, _breaks])
def test_closing_a_client_hides_no_error_and_leaves_no_connection(end: Callable[[], Awaitable[None]]) -> None:
    closed: list[str] = []

    async def close() -> None:
        closed.append("connections")

    async def scenario() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1")
        consumer._fetcher = SimpleNamespace(close=end)
        consumer._client.close = close
        try:
            raise RuntimeError("why it is closed")
        finally:
            await close_client(consumer)

    with pytest.raises(RuntimeError, match="why it is closed"):
        asyncio.run(scenario())
    assert closed == ["connections"]


def test_a_client_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents.kafka.clients, "CLOSE_S", 0.01)
    closed: list[str] = []

    async def close() -> None:
        closed.append("connections")

    async def scenario() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1")
        consumer._fetcher = SimpleNamespace(close=asyncio.Event().wait)
        consumer._client.close = close
        await close_client(consumer)

    asyncio.run(scenario())
    assert closed == ["connections"]


def test_closing_a_client_is_not_cut_off() -> None:
    async def scenario() -> bool:
        closing, may_close, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def close() -> None:
            closing.set()
            await may_close.wait()
            closed.set()

        consumer = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1")
        consumer._fetcher = SimpleNamespace(close=close)
        task = asyncio.create_task(close_client(consumer))
        await closing.wait()
        task.cancel()
        await asyncio.sleep(0)
        may_close.set()
        await asyncio.wait([task])
        return closed.is_set()

    assert asyncio.run(scenario())
