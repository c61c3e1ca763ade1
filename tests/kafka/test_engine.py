"""Engine and publisher shells on the real broker: steps come out once, in order, over restarts too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import faust
import numpy as np
import orjson
import pytest

from agents.kafka.topics import create_topics
from agents.protocol.partitioner import home_partition
from agents.worker.app import build_app
from agents.worker.job import Job
from schemas.blocks import Block, Folded
from schemas.config import Config
from schemas.errors import ForkError, GapError
from schemas.releases import STEP_HEADER, Seed, decode_log_record
from schemas.topics import Topics
from tests.kafka.support import (
    delete_records,
    fresh_name,
    job_config,
    producing,
    records_of,
    stream_table,
    until,
)

STOP_S = 120.0
"""One that has not left is still a member of its group, and its successor gets nothing."""
CRASHED_S = 15.0
"""The same of one that has crashed, whose clients may wait for ever: its session, of 6 s, is over by then."""
SOURCE_PARTITIONS = 2
END_OF_STEP_0_MS = 1_577_836_800_000 + 60_000


def one_stream(bootstrap: str, folder: Path, **overrides: Any) -> Config:
    name = fresh_name("s")
    return job_config(bootstrap, folder, streams=[stream_table(name, **overrides)])


def block(stream: str, *, partition: int, step: int, events: int = 5) -> Block:
    """All events of `step` on one source partition, and its tick; offsets go on from step to step."""
    keys = (np.arange(events, dtype=np.uint64) * np.uint64(2) + np.uint64(64 * step)).reshape(-1, 1) % np.uint64(512)
    return Block(
        stream,
        partition,
        step * (events + 1),
        (step + 1) * (events + 1),
        step,
        {step: Folded.from_keys(keys)} if events else {},
    )


async def feed(config: Config, steps: range) -> None:
    topics = config.topics
    async with producing(config.kafka.bootstrap) as producer:
        for step in steps:
            for stream in config.streams:
                home = home_partition(stream.name, config.kafka.partitions)
                for partition in range(SOURCE_PARTITIONS):
                    value = block(stream.name, partition=partition, step=step).encode()
                    await producer.send_and_wait(topics.blocks, value, partition=home)


@asynccontextmanager
async def running(config: Config, *, roles: Sequence[str] = ("engine", "publish"), **job: Any) -> AsyncIterator[Any]:
    """A worker's engine and publisher in this process; yields the application."""
    counts: Mapping[str, int] = {stream.name: SOURCE_PARTITIONS for stream in config.streams}
    app = build_app(Job(config=config, source_partitions=counts, **job), roles=roles)
    await app.start()
    try:
        yield app
    finally:
        # As a worker leaves, whom nobody waits for.
        patience_s = STOP_S if app.crash_reason is None else CRASHED_S
        await asyncio.wait([asyncio.ensure_future(app.stop())], timeout=patience_s)


async def ledger(config: Config, *, committed: bool = True) -> list[Any]:
    return await records_of(config.kafka.bootstrap, Topics.ledger(config.streams[0].name), committed=committed)


async def log_records(config: Config) -> list[Any]:
    home = home_partition(config.streams[0].name, config.kafka.partitions)
    records = await records_of(config.kafka.bootstrap, f"{config.job.name}.releases", partition=home)
    return [(record.offset, decode_log_record(record.value)) for record in records]


async def published(config: Config, steps: int) -> None:
    await until(lambda: ledger(config), lambda found: len(found) >= steps)


async def test_each_step_is_published_once_with_its_time_and_number(bootstrap: str, tmp_path: Path) -> None:
    config = one_stream(bootstrap, tmp_path, options={"depth": 8, "initial_steps": 1})
    await create_topics(config)
    await feed(config, range(4))
    async with running(config):
        await published(config, 4)
    entries = await ledger(config)
    assert [int(entry.key) for entry in entries] == [0, 1, 2, 3]
    assert [orjson.loads(entry.value)["guarantee"]["private"] for entry in entries] == [True] * 4
    synthetic = await records_of(bootstrap, Topics.synthetic(config.streams[0].name))
    for record in [*entries, *synthetic]:
        (header,) = record.headers
        assert header[0] == STEP_HEADER
        assert record.timestamp == END_OF_STEP_0_MS + 60_000 * int(header[1])


async def test_a_seed_that_was_committed_before_a_crash_is_used(bootstrap: str, tmp_path: Path) -> None:
    config = one_stream(bootstrap, tmp_path, options={"depth": 8, "initial_steps": 1})
    name = config.streams[0].name
    await create_topics(config)
    home = home_partition(name, config.kafka.partitions)
    async with producing(bootstrap) as producer:
        seed = Seed(name, 0, b"7" * 32)
        await producer.send_and_wait(f"{config.job.name}.releases", seed.encode(), partition=home)
    await feed(config, range(1))
    async with running(config):
        await published(config, 1)
    seeds = [record for _, record in await log_records(config) if isinstance(record, Seed)]
    assert seeds == [seed]


async def test_an_insecure_seed_marks_every_ledger_entry_as_not_private(bootstrap: str, tmp_path: Path) -> None:
    config = one_stream(bootstrap, tmp_path)
    await create_topics(config)
    await feed(config, range(3))
    async with running(config, insecure_seed=1):
        await published(config, 3)
    assert all(not orjson.loads(entry.value)["guarantee"]["private"] for entry in await ledger(config))


async def test_old_private_records_are_deleted_and_the_newest_candidate_stays(bootstrap: str, tmp_path: Path) -> None:
    config = one_stream(bootstrap, tmp_path)
    await create_topics(config)
    await feed(config, range(6))
    async with running(config):
        await published(config, 6)
        await until(lambda: log_records(config), lambda found: bool(found[0][1].step >= 5))
    left = [(type(record), record.step) for _, record in await log_records(config)]
    assert left[0] == (Seed, 5)
    assert left[-1][1] == 5
    assert len(left) >= 2
    # And the job goes on from what is left.
    fresh = config.model_copy(update={"job": config.job.model_copy(update={"data_dir": tmp_path / "new"})})
    await feed(config, range(6, 7))
    async with running(fresh):
        await published(config, 7)


async def crash_of(
    config: Config, monkeypatch: pytest.MonkeyPatch, *, roles: Sequence[str] = ("engine", "publish")
) -> BaseException:
    """The error that stops a worker on these topics."""
    errors: list[BaseException] = []

    async def crash(app: faust.App, reason: BaseException) -> None:
        errors.append(reason)

    monkeypatch.setattr(faust.App, "crash", crash)
    async with running(config, roles=roles):
        await until(lambda: bool(errors))
    return errors[0]


async def test_two_seeds_for_one_step_stop_the_worker(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = one_stream(bootstrap, tmp_path)
    name = config.streams[0].name
    await create_topics(config)
    home = home_partition(name, config.kafka.partitions)
    async with producing(bootstrap) as producer:
        for byte in (b"1", b"2"):
            value = Seed(name, 0, byte * 32).encode()
            await producer.send_and_wait(f"{config.job.name}.releases", value, partition=home)
    assert isinstance(await crash_of(config, monkeypatch), ForkError)
    assert "What to do" in caplog.text


async def test_a_missing_block_stops_the_worker(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = one_stream(bootstrap, tmp_path)
    await create_topics(config)
    await feed(config, range(1))
    await feed(config, range(2, 3))
    assert isinstance(await crash_of(config, monkeypatch), GapError)
    assert "What to do" in caplog.text


async def test_a_deleted_answer_stops_the_worker(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release log lost a step that the state table knows: going on could answer it again."""
    config = one_stream(bootstrap, tmp_path)
    await create_topics(config)
    await feed(config, range(3))
    async with running(config):
        await published(config, 3)
    home = home_partition(config.streams[0].name, config.kafka.partitions)
    await delete_records(bootstrap, f"{config.job.name}.releases", home)
    assert isinstance(await crash_of(config, monkeypatch), GapError)
