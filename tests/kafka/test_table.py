"""The durable table: what `save` returned for is found again, by this worker and by one that has only the changelog."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import faust
from aiokafka.admin import NewTopic
from yarl import URL

import agents.worker.table
from agents.kafka.transport import JobTransport
from agents.worker.table import DurableTable, durable_table
from tests.kafka.support import create, fresh_name, producing, records_of, until


def make_app(bootstrap: str, folder: Path, job: str) -> tuple[faust.App, DurableTable]:
    app = faust.App(
        job,
        broker=[URL(f"kafka://{bootstrap}")],
        store="rocksdb://",
        datadir=folder,
        Table=DurableTable,
        key_serializer="raw",
        value_serializer="raw",
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        stream_recovery_delay=0.0,
        producer_max_request_size=2 << 20,
        consumer_auto_offset_reset="earliest",
    )
    app.transport = JobTransport(app.conf.broker, app, starts={})
    return app, durable_table(app, "state", 1)


async def with_table(
    bootstrap: str, folder: Path, job: str, act: Callable[[DurableTable], Awaitable[Any]], *, fresh: bool = False
) -> Any:
    """Run `act` on a recovered table, in a worker of its own; `fresh` gives it an empty folder."""
    app, table = make_app(bootstrap, folder / ("fresh" if fresh else "kept"), job)
    ready = False

    @table.on_recover
    async def recovered() -> None:
        nonlocal ready
        ready = True

    async def nothing(stream: Any) -> None:
        async for _ in stream.noack().events():
            pass

    app.agent(app.topic(f"{job}.in", key_serializer="raw", value_serializer="raw"), name=f"{job}.nothing")(nothing)
    async with app:
        await until(lambda: ready)
        return await act(table)


async def new_job(bootstrap: str) -> str:
    job = fresh_name("table")
    changelog = NewTopic(f"{job}-state-changelog", 1, 1, topic_configs={"cleanup.policy": "compact"})
    await create(bootstrap, NewTopic(f"{job}.in", 1, 1), changelog)
    return job


def test_a_saved_body_survives_in_the_store_and_in_the_changelog(bootstrap: str, tmp_path: Path) -> None:
    bodies = [b"first", bytes(2_500_000), b"", b"last" * 400_000]

    async def scenario() -> None:
        job = await new_job(bootstrap)

        async def save(table: DurableTable) -> None:
            assert table.load(0, "s") is None
            assert table.facts(0, "s") is None
            for step, body in enumerate(bodies):
                await table.save(0, "s", body, facts={"step": step})
                assert table.load(0, "s") == body

        async def load(table: DurableTable) -> tuple[bytes | None, Any]:
            return table.load(0, "s"), table.facts(0, "s")

        await with_table(bootstrap, tmp_path, job, save)
        assert await with_table(bootstrap, tmp_path, job, load) == (bodies[-1], {"step": len(bodies) - 1})
        assert await with_table(bootstrap, tmp_path, job, load, fresh=True) == (bodies[-1], {"step": len(bodies) - 1})

    asyncio.run(scenario())


def test_a_save_that_stops_half_way_leaves_the_body_before(bootstrap: str, tmp_path: Path, monkeypatch: Any) -> None:
    class StopHereError(Exception):
        pass

    async def scenario() -> None:
        job = await new_job(bootstrap)

        async def save(table: DurableTable) -> None:
            await table.save(0, "s", b"one" * 500_000)
            for name in ("table_chunk", "table_before_head"):

                def stop(reached: str, name: str = name) -> None:
                    if reached == name:
                        raise StopHereError

                monkeypatch.setattr(agents.worker.table, "failpoint", stop)
                try:
                    await table.save(0, "s", b"two" * 500_000)
                except StopHereError:
                    assert table.load(0, "s") == b"one" * 500_000
                else:
                    raise AssertionError("the save did not stop")

        async def load(table: DurableTable) -> bytes | None:
            return table.load(0, "s")

        await with_table(bootstrap, tmp_path, job, save)
        assert await with_table(bootstrap, tmp_path, job, load, fresh=True) == b"one" * 500_000

    asyncio.run(scenario())


def test_a_torn_body_is_as_good_as_none(bootstrap: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        job = await new_job(bootstrap)

        async def save(table: DurableTable) -> None:
            await table.save(0, "s", b"one" * 500_000, facts={"step": 1})
            await table.save(0, "kept", b"other")

        async def load(table: DurableTable) -> Any:
            return table.load(0, "s"), table.facts(0, "s"), table.load(0, "kept")

        await with_table(bootstrap, tmp_path, job, save)
        # A worker that was stopped past its session writes into the slot of its successor.
        async with producing(bootstrap) as zombie:
            await zombie.send_and_wait(f"{job}-state-changelog", b"zombie", key=b"s/0/1", partition=0)
        assert await with_table(bootstrap, tmp_path, job, load) == (None, None, b"other")

    asyncio.run(scenario())


def test_the_store_is_never_ahead_of_the_changelog(bootstrap: str, tmp_path: Path) -> None:
    """The stored offset is that of a record which is there, and the last one that was written."""

    async def scenario() -> None:
        job = await new_job(bootstrap)

        async def save(table: DurableTable) -> int:
            await table.save(0, "s", b"x" * 2_000_000)
            return int(table.data._db_for_partition(0).get(table.data.offset_key))

        offset = await with_table(bootstrap, tmp_path, job, save)
        assert (await records_of(bootstrap, f"{job}-state-changelog"))[-1].offset == offset

    asyncio.run(scenario())
