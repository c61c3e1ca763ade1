"""A library's own cancellation, passed on, ends no part of a worker in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer
from mode import Service

import agents.kafka.clients
import agents.worker.audit
from agents.kafka.clients import close_client
from agents.kafka.lifecycle.cancellations import (
    LongService,
    finish_before_cancellation,
    raise_stray_cancellation,
    together,
)
from agents.worker.audit import AuditStreamTask
from agents.worker.ingest import service
from agents.worker.ingest.service import IngestService
from agents.worker.partition_tasks import PartitionTask, PartitionTasks
from schemas.config import Config
from schemas.config.server import Kafka
from schemas.errors import BrokerError, StrayCancellationError
from tests.kafka.support import job_config, stream_table


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


async def test_a_service_that_is_cut_off_crashes() -> None:
    service = Torn()
    await service.start()
    async with asyncio.timeout(30):
        await service._crashed.wait()
    reason = service.crash_reason
    await service.stop()
    assert isinstance(reason, StrayCancellationError)


async def test_a_service_that_is_stopped_does_not() -> None:
    service = Whole()
    await service.start()
    await asyncio.sleep(0)
    await service.stop()
    assert service.crash_reason is None


async def test_a_task_that_is_cut_off_stops_the_worker() -> None:
    crashed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def crash(error: BaseException) -> None:
        crashed.set_result(error)

    tasks = PartitionTasks({"engine": TornTask}, crash)
    tasks.open([0])
    async with asyncio.timeout(30):
        error = await crashed
    await tasks.stop()
    assert isinstance(error, StrayCancellationError)


async def test_who_is_cancelled_is_cancelled() -> None:
    task = asyncio.create_task(raise_stray_cancellation(asyncio.sleep(3600), "a part"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_the_last_work_is_done_to_its_end_by_who_is_cancelled_meanwhile() -> None:
    done: list[str] = []
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def last() -> None:
        begun.set()
        await may_end.wait()
        done.append("closed")

    task = asyncio.create_task(finish_before_cancellation(last()))
    await begun.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    await asyncio.wait([task])
    assert (task.cancelled(), done) == (True, ["closed"])


def test_the_last_work_may_fail() -> None:
    with pytest.raises(BrokerError):
        asyncio.run(finish_before_cancellation(_breaks()))


async def _breaks() -> None:
    raise BrokerError("a sender's last error")


@pytest.mark.parametrize("end", [stray, _breaks])
async def test_closing_a_client_hides_no_error_and_leaves_no_connection(end: Callable[[], Awaitable[None]]) -> None:
    closed: list[str] = []

    async def close() -> None:
        closed.append("connections")

    async def fail() -> None:
        try:
            raise RuntimeError("why it is closed")
        finally:
            await close_client(consumer)

    consumer = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1")
    consumer._fetcher = SimpleNamespace(close=end)
    consumer._client.close = close
    with pytest.raises(RuntimeError, match="why it is closed"):
        await fail()
    assert closed == ["connections"]


async def test_a_client_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents.kafka.clients, "CLOSE_S", 0.01)
    closed: list[str] = []

    async def close() -> None:
        closed.append("connections")

    consumer = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1")
    consumer._fetcher = SimpleNamespace(close=asyncio.Event().wait)
    consumer._client.close = close
    await close_client(consumer)
    assert closed == ["connections"]


async def test_closing_a_client_is_not_cut_off() -> None:
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
    assert closed.is_set()


def consumer_of(module: Any, patch: pytest.MonkeyPatch) -> list[Any]:
    """Consumers that a module makes; each waits where it starts, for ever, and takes a moment to stop."""
    made: list[Any] = []

    class Consumer(SimpleNamespace):
        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__(begun=asyncio.Event(), stopping=asyncio.Event(), stopped=False, _coordinator=None)
            self._client = SimpleNamespace(send=None, cluster=SimpleNamespace(_listeners=set()))
            made.append(self)

        def assign(self, _: Any) -> None: ...

        async def start(self) -> None:
            self.begun.set()
            await asyncio.Event().wait()

        async def stop(self) -> None:
            self.stopping.set()
            for _ in range(9):
                await asyncio.sleep(0)
            self.stopped = True

    patch.setattr(module, "AIOKafkaConsumer", Consumer)
    return made


async def _log(_: Config) -> None:
    async with agents.kafka.clients.log_reader(Kafka(bootstrap="127.0.0.1:1"), "topic", 0):
        pass


async def _tail(_: Config) -> None:
    async with agents.kafka.clients.tail(Kafka(bootstrap="127.0.0.1:1"), [("topic", 0)]):
        pass


async def _ingest(config: Config) -> None:
    await cast(Any, IngestService._run)(IngestService(config, {}))


async def _audit(config: Config) -> None:
    machine = SimpleNamespace(stream=config.streams[0], synthetic_offset=0)
    job = SimpleNamespace(config=config, topics=config.topics)
    await AuditStreamTask.follow(cast(Any, SimpleNamespace(_task=SimpleNamespace(job=job), _machine=machine)))


@pytest.mark.parametrize("again", [False, True], ids=["once", "and while it stops"])
@pytest.mark.parametrize(
    ("module", "work"),
    [(agents.kafka.clients, _log), (agents.kafka.clients, _tail), (agents.kafka.clients, _audit), (service, _ingest)],
    ids=["log", "tail", "audit", "ingest"],
)
async def test_who_is_cancelled_leaves_no_consumer_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: Any, work: Callable[[Any], Any], again: bool
) -> None:
    """While the first one starts; and once more while what was made is stopped."""
    made = consumer_of(module, monkeypatch)
    config = job_config("127.0.0.1:1", tmp_path, streams=[stream_table("taxi")])
    task = asyncio.create_task(work(config))
    while not made:  # noqa: ASYNC110  what is waited for sets no event
        await asyncio.sleep(0)
    await made[0].begun.wait()
    task.cancel()
    if again:
        stopping = asyncio.create_task(made[0].stopping.wait())
        await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert [each.stopped for each in made] == [True] * len(made)


async def test_of_pieces_of_work_beside_each_other_the_first_to_fail_ends_all() -> None:
    """By its own error, and not by a group of them; what was under way is over when it is raised."""
    ended: list[str] = []

    async def long() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("long")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise BrokerError("not now")

    with pytest.raises(BrokerError, match="not now"):
        await together("restoring", long(), fails())
    assert ended == ["long"]


async def test_a_piece_of_work_that_a_library_cuts_off_is_not_done() -> None:
    with pytest.raises(StrayCancellationError, match="restoring was cut off"):
        await together("restoring", asyncio.sleep(0), stray())
