"""The ingest on the real broker: what is committed is what the records say, once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.structs import ConsumerRecord, OffsetAndMetadata

import agents.worker.ingest.partition_task
from agents.kafka.clients import fenced_producer
from agents.protocol.partitioner import home_partition
from agents.worker.ingest.records import hand_out_bare_records
from schemas.blocks import Block
from schemas.config.server import Kafka
from schemas.errors import GapError
from tests.kafka.ingest_support import BOUND, START_S, STEP_S, Bench, check, crowd, event, expected_steps
from tests.kafka.support import (
    WAIT_AT_MOST_S,
    create,
    delete_records,
    fresh_name,
    producing,
    records_of,
    until,
)


async def test_events_become_blocks_and_ticks_close_steps(bootstrap: str, tmp_path: Path) -> None:
    bench = Bench(bootstrap, tmp_path)
    await bench.create()
    events: list[Mapping[str, Any]] = []
    async with bench.running() as service:
        for step in range(3):
            events += crowd(step)
            await bench.send(crowd(step))
            await bench.tick(step)
        check(await bench.until_ticked(2), events)
        await until(lambda: sum(service.counters.records.values()) == len(events))
    assert await bench.letters() == []


async def test_a_restart_in_the_middle_goes_on(bootstrap: str, tmp_path: Path) -> None:
    bench = Bench(bootstrap, tmp_path)
    await bench.create()
    events: list[Mapping[str, Any]] = []
    for step in range(4):
        events += crowd(step)
        await bench.send(crowd(step)[:30])
        async with bench.running():
            await bench.send(crowd(step)[30:])
            await bench.tick(step)
            await bench.until_ticked(step)
    check(await bench.result(), events)


async def test_an_aborted_record_is_never_counted(bootstrap: str, tmp_path: Path) -> None:
    bench = Bench(bootstrap, tmp_path)
    await bench.create()
    aborted, kept = crowd(0, seed=1), crowd(0, seed=2)
    async with bench.running():
        async with producing(bootstrap, transactional_id=f"{bench.job}-source") as producer:
            await producer.begin_transaction()
            for each in aborted:
                await producer.send(bench.source, json.dumps(each).encode(), partition=bench.home(each["user"]))
            await producer.flush()
            await producer.abort_transaction()
            await producer.begin_transaction()
            for each in kept:
                await producer.send(bench.source, json.dumps(each).encode(), partition=bench.home(each["user"]))
            await producer.commit_transaction()
        await bench.tick(0)
        check(await bench.until_ticked(0), list(kept))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_every_compression_codec(bootstrap: str, tmp_path: Path, codec: str) -> None:
    bench = Bench(bootstrap, tmp_path)
    await bench.create()
    await bench.send(crowd(0), compression_type=codec, linger_ms=50)
    await bench.tick(0)
    async with bench.running():
        check(await bench.until_ticked(0), list(crowd(0)))


async def test_records_come_bare_and_whole(bootstrap: str, tmp_path: Path) -> None:
    """The short way through aiokafka works in this release, for this consumer only; headers and aborts included."""
    topic = fresh_name("bare")
    await create(bootstrap, NewTopic(topic, 1, 1))
    async with producing(bootstrap, transactional_id=topic) as producer:
        for value, good in ((b"aborted", False), (b"kept", True)):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value, key=b"k", partition=0, headers=[("h", b"1")], timestamp_ms=7)
            await (producer.commit_transaction() if good else producer.abort_transaction())
    settings = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    bare, plain = AIOKafkaConsumer(topic, **settings), AIOKafkaConsumer(topic, **settings)
    await bare.start()
    hand_out_bare_records(bare)
    await plain.start()
    try:
        [[short]] = (await bare.getmany(timeout_ms=1000 * int(WAIT_AT_MOST_S))).values()
        [[whole]] = (await plain.getmany(timeout_ms=1000 * int(WAIT_AT_MOST_S))).values()
    finally:
        await bare.stop()
        await plain.stop()
    assert isinstance(whole, ConsumerRecord)
    assert not isinstance(short, ConsumerRecord)
    for name in ("offset", "timestamp", "key", "value"):
        assert getattr(short, name) == getattr(whole, name)
    assert tuple(short.headers) == tuple(whole.headers) == (("h", b"1"),)


async def test_the_audit_topic_is_counted_without_bounds_or_letters(bootstrap: str, tmp_path: Path) -> None:
    bench = Bench(bootstrap, tmp_path)
    bench.streams = [bench.stream("s", audit=f"audit.{bench.job}")]
    await bench.create()
    events = crowd(0, users=2)
    async with producing(bootstrap) as producer:
        for each in [json.dumps(event).encode() for event in events] + [b"not json"]:
            await producer.send(f"audit.{bench.job}", each, partition=1)
    async with bench.running():
        await bench.tick(0, topic=f"audit.{bench.job}")
        truth = await bench.until_ticked(0, truth=True)
    assert truth.events == {0: len(events)}
    assert truth.reasons == {"ACCEPTED": len(events), "NOT_JSON": 1}
    assert not truth.charges
    assert await bench.letters() == []


async def test_two_streams_read_one_topic(bootstrap: str, tmp_path: Path) -> None:
    bench = Bench(bootstrap, tmp_path)
    bench.streams = [bench.stream("s"), bench.stream("t", privacy={"max_contributions": 1})]
    await bench.create()
    events = crowd(0)
    await bench.send(events)
    async with bench.running():
        await bench.tick(0)
        check(await bench.until_ticked(0), list(events))
        other = await bench.until_ticked(0, stream="t")
    assert other.events == {0: len({each["user"] for each in events})}
    bench.streams = [*bench.streams, bench.stream("u")]  # a stream that joins later begins where the others are
    await bench.send(crowd(1))
    async with bench.running():
        await bench.tick(1)
        late = await bench.until_ticked(1, stream="u")
    assert set(late.events) == {1}


async def test_a_wall_clock_ticks_where_the_partition_ended(bootstrap: str, tmp_path: Path) -> None:
    """Idle partitions are ticked too; after downtime every event still finds its own step."""
    bench = Bench(bootstrap, tmp_path)
    bench.streams = [bench.stream("s", time={"clock": "wall", "grace": "5s", "max_ahead": 1})]
    await bench.create()
    now = [START_S]

    def clock() -> int:
        return now[0] * 1_000_000

    async with bench.running(now_us=clock):
        await bench.send([event("ann", 0)])
        now[0] = START_S + STEP_S + 4  # grace is not over
        await asyncio.sleep(1)
        assert (await bench.result()).ticks.get(0, -1) == -1
        now[0] += 1
        await bench.until_ticked(0)
        await bench.send([event("ann", 0)])  # late: joins the open step
        now[0] += STEP_S
        result = await bench.until_ticked(1)
    assert result.events == {0: 1, 1: 1}
    # Down for eight steps; records keep arriving, each in its own step by its Kafka timestamp.
    async with producing(bootstrap) as producer:
        for step in range(2, 10):
            each = event(f"bob{step}", step)
            timestamp = int(each["at"] * 1000)
            await producer.send(
                bench.source, json.dumps(each).encode(), partition=bench.home(each["user"]), timestamp_ms=timestamp
            )
    now[0] = START_S + 10 * STEP_S + 5
    async with bench.running(now_us=clock):
        result = await bench.until_ticked(9)
    assert result.events == {0: 1, 1: 1, **dict.fromkeys(range(2, 10), 1)}


async def test_ticks_need_no_records(bootstrap: str, tmp_path: Path) -> None:
    bench = Bench(bootstrap, tmp_path)
    bench.streams = [bench.stream("s", time={"clock": "wall", "grace": "0s"})]
    await bench.create()
    async with bench.running(now_us=lambda: (START_S + 5 * STEP_S) * 1_000_000):
        result = await bench.until_ticked(4)
    assert result.next_offsets == {0: 0, 1: 0}


async def test_bounds_are_restored_from_snapshots_after_trimming(bootstrap: str, tmp_path: Path) -> None:
    """Blocks below the floor are deleted, as the engine does it; nobody gets a second budget."""
    bench = Bench(bootstrap, tmp_path, partitions=1)
    await bench.create()
    events: list[Mapping[str, Any]] = []
    async with bench.running():
        for step in range(12):
            events += crowd(step)
            await bench.send(crowd(step))
            await bench.tick(step)
            await bench.until_ticked(step)
    before = await bench.result()
    check(before, events)
    floor = await _trim_to_floor(bench)
    assert floor > 0
    async with bench.running():
        await bench.send(crowd(0))  # late, of users who have used up their bounds
        await bench.tick(12)
        await until(lambda: _ticked(bench, 12))
    total = Counter(before.charges)
    for block in await _blocks(bench):
        if block.lo >= before.next_offsets[0]:
            for row, charge in zip(map(tuple, block.users.tolist()), block.increments.tolist(), strict=True):
                total[row] += charge
    assert max(total.values()) <= BOUND
    assert sum(total.values()) == sum(expected_steps([*events, *crowd(0)]).values())


async def test_offsets_that_somebody_moved_are_refused(bootstrap: str, tmp_path: Path) -> None:
    bench = Bench(bootstrap, tmp_path)
    await bench.create()
    await bench.send(crowd(0))
    async with bench.running():
        await bench.tick(0)
        await bench.until_ticked(0)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=f"{bench.job}-ingest", enable_auto_commit=False)
    await consumer.start()
    consumer.assign([TopicPartition(bench.source, 0)])
    await consumer.commit({TopicPartition(bench.source, 0): OffsetAndMetadata(1, "")})
    await consumer.stop()
    with pytest.raises(GapError, match="must agree"):
        async with bench.running() as service:
            await until(lambda: service.crash_reason is not None)


async def test_a_second_worker_takes_over_and_gives_back(bootstrap: str, tmp_path: Path) -> None:
    bench = Bench(bootstrap, tmp_path)
    await bench.create()
    events: list[Mapping[str, Any]] = []

    async def more(step: int) -> None:
        events.extend(crowd(step))
        await bench.send(crowd(step))
        await bench.tick(step)

    async with bench.running() as first:
        await more(0)
        await bench.until_ticked(0)
        async with bench.running() as second:
            await until(lambda: len(first.partition_tasks) == 1 and len(second.partition_tasks) == 1)
            await more(1)
            await bench.until_ticked(1)
        await until(lambda: len(first.partition_tasks) == 2)
        await more(2)
        check(await bench.until_ticked(2), events)


async def test_a_worker_that_is_still_opening_does_not_fence_its_successor(bootstrap: str, tmp_path: Path) -> None:
    """It lost the partitions before it had fenced them: a fence now would hit the worker that has them instead."""
    bench = Bench(bootstrap, tmp_path)
    await bench.create()
    events: list[Mapping[str, Any]] = []
    slow, resume = 0, asyncio.Event()

    async def fence(kafka: Kafka, transactional_id: str) -> Any:
        nonlocal slow
        slow += 1
        if slow <= bench.partitions:  # those of the first worker
            await resume.wait()
        return await fenced_producer(kafka, transactional_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agents.worker.ingest.partition_task, "fenced_producer", fence)
        async with bench.running() as first:
            await until(lambda: slow == bench.partitions)
            async with bench.running() as second:
                await until(lambda: len(second.partition_tasks) == 1)
                resume.set()
                for step in range(3):
                    events += crowd(step)
                    await bench.send(crowd(step))
                    await bench.tick(step)
                    check(await bench.until_ticked(step), events)
                assert len(first.partition_tasks) == len(second.partition_tasks) == 1


# --- helpers ------------------------------------------------------------------------------------------------------


async def _blocks(bench: Bench) -> list[Any]:
    found = []
    for partition in range(2):
        for record in await records_of(bench.bootstrap, bench.topics.blocks, partition=partition):
            found.append(Block.decode(record.value))
    return found


async def _ticked(bench: Bench, step: int) -> bool:
    return any(block.tick >= step for block in await _blocks(bench))


async def _trim_to_floor(bench: Bench) -> int:
    floor = max(block.floor for block in await _blocks(bench))
    home = home_partition(f"{bench.job}-s", 2)
    await delete_records(bench.bootstrap, bench.topics.blocks, home, before=floor)
    return floor
