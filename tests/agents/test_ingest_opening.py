"""A partition task goes to work only if it was restored to its end: without its bounds users would be counted again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition

import agents.worker.ingest.service
from agents.worker.ingest.partition_task import SourceTask
from agents.worker.ingest.service import IngestService
from schemas.errors import BrokerError, StrayCancellationError
from tests.agents.test_ingest_ticks import task_of

SOURCE = TopicPartition("raw.s", 0)


class Consumer:
    def __init__(self) -> None:
        self.resumed: list[TopicPartition] = []

    def pause(self, *sources: TopicPartition) -> None: ...

    def resume(self, *sources: TopicPartition) -> None:
        self.resumed += sources


async def whole() -> None: ...


async def cut_off() -> None:
    """A request of the client's that the client itself has cancelled, as it does where its broker goes away."""
    task = asyncio.create_task(asyncio.sleep(3600))
    task.cancel()
    await asyncio.gather(task)


async def failed() -> None:
    raise BrokerError("not now")


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, restoring: Any) -> None:
        config = task_of()._config
        self.service = IngestService(config, {"raw.s": [task_of().machines[0].spec]})
        self.consumer = self.service._consumer = Consumer()
        self.made: list[SourceTask] = []
        self.begun = asyncio.Event()

        async def restore(_: Any, consumer: Any, tasks: list[SourceTask]) -> None:
            self.made += tasks
            self.begun.set()
            await restoring()

        async def look(*_: Any) -> None: ...

        monkeypatch.setattr(agents.worker.ingest.service, "restore", restore)
        monkeypatch.setattr(self.service, "_look", look)
        self.service.assigned(frozenset([SOURCE]))

    async def open(self) -> None:
        async with asyncio.timeout(60):
            await self.service._open_assigned(self.consumer)

    @property
    def works(self) -> bool:
        return bool(self.service.partition_tasks or self.consumer.resumed)


async def test_who_is_restored_goes_to_work(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, whole)
    await bench.open()
    assert list(bench.service.partition_tasks.values()) == bench.made
    assert bench.consumer.resumed == [SOURCE]


@pytest.mark.parametrize(("restoring", "error"), [(failed, BrokerError), (cut_off, StrayCancellationError)])
async def test_who_is_not_does_not(monkeypatch: pytest.MonkeyPatch, restoring: Any, error: type[Exception]) -> None:
    bench = Bench(monkeypatch, restoring)
    with pytest.raises(error):
        await bench.open()
    assert not bench.works
    assert [task.closed for task in bench.made] == [True]


@pytest.mark.parametrize("given_up", [True, False])
async def test_an_opening_that_was_told_to_end_is_void(monkeypatch: pytest.MonkeyPatch, given_up: bool) -> None:
    """Whether the partitions were taken meanwhile, or somebody else cancelled it."""
    bench = Bench(monkeypatch, asyncio.Event().wait)
    opening = asyncio.create_task(bench.open())
    await bench.begun.wait()
    if given_up:
        await bench.service.revoked()
    else:
        assert bench.service._opening is not None
        bench.service._opening.cancel()
    await opening
    assert not bench.works
    assert [task.closed for task in bench.made] == [True]
