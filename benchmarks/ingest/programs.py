"""The programs that run in this environment: where to read and how many events; gives events and seconds."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer

from agents.kafka.topics import create_topics
from benchmarks.ingest.source import PARTITIONS, configuration


async def bare(bootstrap: str, folder: str, events: int, source: str) -> tuple[int, float]:
    """Timed from the first records on."""
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=f"bare-{os.getpid()}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=1 << 20,
    )
    await consumer.start()
    seen, begun = 0, 0.0
    while seen < events:
        for records in (await consumer.getmany(timeout_ms=200, max_records=20_000)).values():
            begun = begun or time.perf_counter()
            for record in records:
                orjson.loads(record.value)
            seen += len(records)
    seconds = time.perf_counter() - begun
    await consumer.stop()
    return seen, seconds


async def ours(bootstrap: str, folder: str, events: int, source: str) -> tuple[int, float]:
    """Timed from the first slice that is taken in until the last block is committed."""
    from agents.worker.ingest.partition_task import SourceTask
    from agents.worker.ingest.service import IngestService
    from agents.worker.ingest.specs import source_specs

    job = f"ours-{os.getpid()}"
    config = configuration(bootstrap, folder, job, source=source)
    await create_topics(config)
    specs = source_specs(config, source_partitions={f"{job}-taxi": PARTITIONS})
    begun = 0.0
    take = SourceTask.take

    async def first_take(task: SourceTask, records: Any) -> None:
        nonlocal begun
        begun = time.perf_counter()
        SourceTask.take = take  # type: ignore[method-assign]
        await take(task, records)

    SourceTask.take = first_take  # type: ignore[method-assign,assignment]
    service = IngestService(config, specs)
    await service.start()
    counters = service.counters
    while (seen := sum(counters.records.values())) < events:
        await asyncio.sleep(0.005)
        if service.crash_reason is not None:
            raise service.crash_reason
    seconds = time.perf_counter() - begun
    assert counters.records[f"{job}-taxi", "blocks", "ACCEPTED", ""] > 0.9 * events, "the events are not accepted"
    await service.stop()
    return seen, seconds


def faust_loop(bootstrap: str, folder: str, events: int, source: str) -> tuple[int, float]:
    """Timed from the first event on."""
    import faust

    app = faust.App(
        f"faust-{os.getpid()}",
        broker=f"kafka://{bootstrap}",
        store="memory://",
        datadir=folder,
        value_serializer="json",
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        consumer_auto_offset_reset="earliest",
        stream_wait_empty=False,
    )
    topic = app.topic(source, value_serializer="json")
    found: list[float] = []

    async def count(stream: Any) -> None:
        seen, begun = 0, 0.0
        async for _event in stream:
            begun = begun or time.perf_counter()
            seen += 1
            if seen == events:
                found.append(time.perf_counter() - begun)
                return

    app.agent(topic)(count)

    async def run() -> None:
        await app.start()
        while not found:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(run())
    return events, found[0]
