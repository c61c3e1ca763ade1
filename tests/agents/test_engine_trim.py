"""Two streams of different steps on one partition: a restart must not delete blocks that the slow one still needs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.worker import engine
from agents.worker import job as worker_job
from agents.worker.job import Job
from agents.worker.table import DurableTable
from schemas.blocks import Block
from tests.kafka.support import job_config, stream_table

MINUTES = 50


class Table:
    """The state table of one worker, in a dictionary that has all of its changelog."""

    records = DurableTable.records
    committed = DurableTable.committed
    load = DurableTable.load
    _head = DurableTable._head

    def __init__(self) -> None:
        self.store: dict[bytes, bytes] = {}
        self._writing: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._written: dict[int, set[str]] = defaultdict(set)

    async def catch_up(self, *_: Any, **__: Any) -> None:
        pass

    def _get(self, partition: int, key: bytes) -> bytes | None:
        return self.store.get(key)

    def _write(self, partition: int, records: Any, offset: int) -> None:
        self.store.update(records)


class Producer:
    """Commits to a list."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log
        self.open: list[tuple[bytes, bytes]] = []

    async def begin_transaction(self) -> None:
        self.open = []

    async def send(self, topic: str, value: bytes, key: bytes, partition: int) -> asyncio.Future[Any]:
        if not topic.endswith("-changelog"):
            self.open.append((key, value))
        sent = asyncio.get_running_loop().create_future()
        sent.set_result(SimpleNamespace(offset=len(self.log) + len(self.open) - 1))
        return sent

    async def commit_transaction(self) -> None:
        self.log += [
            SimpleNamespace(offset=len(self.log) + at, key=key, value=value)
            for at, (key, value) in enumerate(self.open)
        ]


@contextlib.asynccontextmanager
async def reading(log: list[Any], batch: int = 3) -> AsyncIterator[Any]:
    """What `log_reader` gives, of a list."""

    async def read() -> AsyncIterator[list[Any]]:
        for begin in range(0, len(log), batch):
            yield log[begin : begin + batch]

    yield SimpleNamespace(beginning=0, read=read)


def block(stream: str, minute: int, *, tick: int, floor: int) -> Block:
    return Block(stream, 0, 10 * minute, 10 * minute + 10, tick, {}, floor=floor)


async def test_a_restart_deletes_no_block_that_another_stream_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = {"field": "at", "format": "s", "start": "2020-01-01T00:00:00", "step": "3600s", "clock": "replay"}
    streams = [stream_table("fast"), stream_table("slow", time=hour)]
    config = job_config("localhost:1", tmp_path, streams=streams, partitions=1, job="trim")
    blocks: list[Block] = []
    for minute in range(MINUTES):
        blocks.append(block("fast", minute, tick=minute, floor=max(0, len(blocks) - 2)))
        blocks.append(block("slow", minute, tick=-1, floor=0))
    log: list[Any] = []
    table: Any = Table()
    trimmed = [0]

    async def producer(*_: Any) -> Producer:
        return Producer(log)

    async def fingerprints(_: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(worker_job, "stored_fingerprints", fingerprints)
    monkeypatch.setattr(engine, "fenced_producer", producer)
    monkeypatch.setattr(engine, "log_reader", lambda *_: reading(log))
    monkeypatch.setattr(engine, "Trimmer", lambda *_, **__: SimpleNamespace(below=trimmed.append))
    job = Job(config=config, source_partitions={"fast": 1, "slow": 1})

    task = engine.EngineTask(job, table, 0)
    await task.open()
    for offset, each in enumerate(blocks):
        message = SimpleNamespace(offset=offset, key=each.stream.encode())
        event = SimpleNamespace(message=message, value=each.encode(), ack=lambda: None)
        await task.handle(event)
    await engine.EngineTask(job, table, 0).open()
    assert {key for key in table.store if b"/" not in key} == {b"fast"}, "the slow stream has not settled anything yet"
    assert max(trimmed) == 0
