"""The durable table: what `save` returned for is found again, by this worker and by one that has only the changelog."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import faust
from aiokafka.admin import NewTopic
from yarl import URL

import agents.worker.table
from agents.kafka.clients import close_client, fenced_producer
from agents.kafka.transport import JobTransport
from agents.worker.table import DurableTable, EagerTables, Records, durable_table
from schemas.config.server import Kafka
from schemas.releases import SavedState, pieces_of, sha256
from tests.kafka.support import create, fresh_name, producing, until


def make_app(bootstrap: str, folder: Path, job: str) -> tuple[faust.App, DurableTable]:
    app = faust.App(
        job,
        broker=[URL(f"kafka://{bootstrap}")],
        store="rocksdb://",
        datadir=folder,
        Table=DurableTable,
        TableManager=EagerTables,
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
        await table.catch_up(Kafka(bootstrap=bootstrap), 0)
        return await act(table)


async def new_job(bootstrap: str) -> str:
    job = fresh_name("table")
    changelog = NewTopic(f"{job}-state-changelog", 1, 1, topic_configs={"cleanup.policy": "compact"})
    await create(bootstrap, NewTopic(f"{job}.in", 1, 1), changelog)
    return job


async def test_a_saved_body_survives_in_the_store_and_in_the_changelog(bootstrap: str, tmp_path: Path) -> None:
    bodies = [b"first", bytes(2_500_000), b"", b"last" * 400_000]
    job = await new_job(bootstrap)

    async def save(table: DurableTable) -> None:
        assert table.load(0, "s") is None
        assert table.position(0, "s") == 0
        for step, body in enumerate(bodies):
            await table.save(0, "s", body, step=step, position=10 * step)
            assert table.load(0, "s") == SavedState(step, sha256(body), body)

    async def load(table: DurableTable) -> tuple[SavedState | None, int]:
        return table.load(0, "s"), table.position(0, "s")

    last = len(bodies) - 1
    await with_table(bootstrap, tmp_path, job, save)
    for fresh in (False, True):
        found = await with_table(bootstrap, tmp_path, job, load, fresh=fresh)
        assert found == (SavedState(last, sha256(bodies[-1]), bodies[-1]), 10 * last)


async def test_a_save_that_stops_half_way_leaves_the_body_before_and_behind_its_head_the_new_one(
    bootstrap: str, tmp_path: Path, monkeypatch: Any
) -> None:
    class StopHereError(Exception):
        pass

    job = await new_job(bootstrap)

    async def save(table: DurableTable) -> None:
        await table.save(0, "s", b"one" * 500_000, step=1, position=1)
        for name in ("table_chunk", "table_before_head", "table_after_head"):

            def stop(reached: str, name: str = name) -> None:
                if reached == name:
                    raise StopHereError

            monkeypatch.setattr(agents.worker.table, "failpoint", stop)
            try:
                await table.save(0, "s", b"two" * 500_000, step=2, position=2)
            except StopHereError:
                assert body_of(table) == (b"two" if name == "table_after_head" else b"one") * 500_000
            else:
                raise AssertionError("the save did not stop")

    async def load(table: DurableTable) -> bytes | None:
        return body_of(table)

    await with_table(bootstrap, tmp_path, job, save)
    assert await with_table(bootstrap, tmp_path, job, load, fresh=True) == b"two" * 500_000


async def test_a_torn_body_is_as_good_as_none(bootstrap: str, tmp_path: Path) -> None:
    job = await new_job(bootstrap)

    async def save(table: DurableTable) -> None:
        await table.save(0, "s", b"one" * 500_000, step=1, position=1)
        await table.save(0, "kept", b"other", step=1, position=1)

    async def load(table: DurableTable) -> Any:
        return body_of(table), body_of(table, "kept")

    await with_table(bootstrap, tmp_path, job, save)
    # A worker that was stopped past its session writes into a slot of its successor.
    async with producing(bootstrap) as zombie:
        await zombie.send_and_wait(f"{job}-state-changelog", b"zombie", key=b"s/1", partition=0)
    assert await with_table(bootstrap, tmp_path, job, load) == (None, b"other")


def body_of(table: DurableTable, name: str = "s") -> bytes | None:
    saved = table.load(0, name)
    return None if saved is None else saved.body


async def test_the_store_takes_in_what_was_committed_and_nothing_else(bootstrap: str, tmp_path: Path) -> None:
    """States of transactions: one committed, one aborted, one open that the next holder of the id ends. Then a store
    that is behind, one that is gone but for its offset, and a changelog that ends before the store.
    """
    job = await new_job(bootstrap)
    kafka = Kafka(bootstrap=bootstrap)
    records: dict[int, Records] = {}

    async def prepare(table: DurableTable) -> None:
        for step in range(4):
            body = bytes([step]) * 2_000_000
            records[step] = table.records(0, "s", pieces_of(body), digest=sha256(body), step=step, position=step)
            await table.committed(0, {"s": records[step]}, 0)  # for the slots of the next one

    async def send(producer: Any, step: int) -> None:
        await producer.begin_transaction()
        for key, value in records[step]:
            await producer.send_and_wait(f"{job}-state-changelog", value, key=key, partition=0)

    async def step_of(table: DurableTable, *, anew: bool = False) -> int | None:
        await table.catch_up(kafka, 0, anew=anew)
        saved = table.load(0, "s")
        return None if saved is None else saved.step

    (tmp_path / "elsewhere").mkdir()
    await with_table(bootstrap, tmp_path / "elsewhere", job, prepare)
    async with producing(bootstrap, transactional_id=job) as producer:
        await send(producer, 0)
        await producer.commit_transaction()
        await send(producer, 1)
        await producer.abort_transaction()
    assert await with_table(bootstrap, tmp_path, job, step_of) == 0
    lost = await fenced_producer(kafka, job)
    await send(lost, 2)
    async with producing(bootstrap, transactional_id=job) as producer:
        assert await with_table(bootstrap, tmp_path, job, step_of) == 0
        assert await with_table(bootstrap, tmp_path, job, step_of, fresh=True) == 0
        await send(producer, 3)
        await producer.commit_transaction()
    await close_client(lost)
    assert await with_table(bootstrap, tmp_path, job, step_of) == 3

    async def behind(table: DurableTable) -> tuple[int | None, int | None]:
        await table.committed(0, {"s": [(b"s", b'{"v": 0}')]}, table._stored(0))
        before = await step_of(table)
        return before, await step_of(table, anew=True)

    assert await with_table(bootstrap, tmp_path, job, behind) == (None, 3)

    async def ahead(table: DurableTable) -> int | None:
        await table.committed(0, {"s": records[2]}, 10**6)
        return await step_of(table)

    assert await with_table(bootstrap, tmp_path, job, ahead) == 2
