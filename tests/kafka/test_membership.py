"""Two processes with one place in the consumer groups: the newer one works, the older one is told and stops."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from agents.kafka.lifecycle.advice import explain
from agents.kafka.membership import members_of, take_place
from agents.kafka.topics import admin_client, create_topics
from agents.worker.ingest.service import IngestService
from schemas.errors import ReplacedError
from tests.kafka.ingest_support import Bench, check, crowd
from tests.kafka.support import until
from tests.kafka.test_engine import feed, one_stream, published, running


def test_a_place_is_held_by_one_and_is_the_same_again(tmp_path: Path) -> None:
    first = take_place(tmp_path)
    second = take_place(tmp_path)
    assert first is not None
    assert second is not None
    assert first.instance_id != second.instance_id
    os.close(first.lock)
    again = take_place(tmp_path)
    assert again is not None
    assert again.instance_id == first.instance_id
    os.close(again.lock)
    os.close(second.lock)


def test_a_copy_of_the_folder_is_another_place(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    original = take_place(here)
    shutil.copytree(here, there)
    copy = take_place(there)
    assert original is not None
    assert copy is not None
    assert original.instance_id != copy.instance_id
    os.close(original.lock)
    os.close(copy.lock)


def test_a_folder_without_locks_is_no_reason_not_to_work(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert take_place(tmp_path / "missing") is None
    assert "until its session ends" in caplog.text


class _Leaves(IngestService):
    """Its reading heeds `should_stop` before it is cancelled, and is giving its partitions up when that comes."""

    leaving: asyncio.Event

    async def on_stop(self) -> None:
        await self.leaving.wait()

    async def _give_up(self) -> None:
        if self.should_stop:
            self.leaving.set()
            await asyncio.sleep(0.1)
        await super()._give_up()


async def test_who_is_told_to_stop_while_it_leaves_is_no_member_any_more(bootstrap: str, tmp_path: Path) -> None:
    bench = Bench(bootstrap, tmp_path)
    await bench.create()
    service = _Leaves(bench.config, bench.specs())
    service.leaving = asyncio.Event()
    await service.start()
    await bench.tick(0)
    await bench.until_ticked(0)
    await service.stop()
    async with admin_client(bench.config.kafka) as admin:
        assert await members_of(admin, f"{bench.job}-ingest") == []


async def test_the_older_ingest_is_told_and_does_not_come_back(bootstrap: str, tmp_path: Path) -> None:
    bench = Bench(bootstrap, tmp_path)
    await bench.create()
    older, newer = (IngestService(bench.config, bench.specs(), instance_id="one-place") for _ in range(2))
    try:
        await older.start()
        await bench.send(crowd(0))
        await bench.tick(0)
        await bench.until_ticked(0)
        await newer.start()
        await until(lambda: older.crash_reason is not None)
        assert isinstance(older.crash_reason, ReplacedError)
        assert "a copy of this machine" in explain(older.crash_reason)
        await bench.send(crowd(1))
        await bench.tick(1)
        check(await bench.until_ticked(1), [*crowd(0), *crowd(1)])
        assert newer.crash_reason is None
    finally:
        await older.stop()
        await newer.stop()


async def test_the_older_engine_is_told_and_does_not_come_back(bootstrap: str, tmp_path: Path) -> None:
    config = one_stream(bootstrap, tmp_path / "older")
    await create_topics(config)
    apart = config.model_copy(update={"job": config.job.model_copy(update={"data_dir": tmp_path / "newer"})})
    await feed(config, range(2))
    async with running(config, instance_id="one-place") as older:
        await published(config, 2)
        async with running(apart, instance_id="one-place"):
            await until(lambda: older.crash_reason is not None)
            assert isinstance(older.crash_reason, ReplacedError)
            await feed(config, range(2, 4))
            await published(config, 4)
