"""Ingest, events a second, as ratios in one run on the embedded broker: `python -m benchmarks.ingest [--quick]`.

Three programs read the same four partitions of JSON events of about 80 bytes, in turns, each in a fresh process:
1. bare: aiokafka's `getmany` and `orjson.loads`, nothing else: what a Python consumer can do at most;
2. faust: `async for event in stream`, what a Faust agent would do;
3. ours: the product's `IngestService`, from raw bytes to committed blocks, with contribution bounds on.

A round runs all three, so that a busy machine slows all; a ratio is that of one round, the reported one their median.
Memory is the resident size of a fresh process whose bounds were then filled with that many users.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from agents.broker.embedded import EmbeddedBroker
from agents.offline.processes import end_with
from schemas.config.load import config_from_mapping
from schemas.topics import Topics

PARTITIONS = 4
SOURCE = "raw.bench"
USERS = 50_000
SAMPLE_S = 2.0


def configuration(bootstrap: str, folder: str, job: str) -> Any:
    key = Path(folder) / "user-key"
    if not key.exists():
        key.write_bytes(b"a key for benchmarks only")
    return config_from_mapping(
        {
            "job": {"name": job, "data_dir": folder},
            "kafka": {"bootstrap": bootstrap, "partitions": PARTITIONS},
            "streams": [
                {
                    "name": f"{job}-taxi",
                    "engine": "spatial",
                    "source": SOURCE,
                    "privacy": {"epsilon": 1.0, "user": "user", "max_contributions": 100, "user_key_file": str(key)},
                    "time": {
                        "field": "at",
                        "format": "%Y-%m-%d %H:%M:%S",
                        "timezone": "America/New_York",
                        "start": "2016-01-01T00:00:00",
                        "step": "6h",
                        "clock": "replay",
                    },
                    "domain": {"kind": "box", "x": "lon", "y": "lat", "bounds": [-74.05, 40.60, -73.75, 40.90]},
                }
            ],
        }
    )


# --- The three programs; each prints "events seconds" ---------------------------------------------------------------


async def bare(bootstrap: str, folder: str, events: int) -> tuple[int, float]:
    consumer = AIOKafkaConsumer(
        SOURCE,
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


async def ours(bootstrap: str, folder: str, events: int) -> tuple[int, float]:
    """Timed from the first slice that is taken in until the last block is committed."""
    from agents.worker.ingest.partition_task import IngestOptions, SourceTask
    from agents.worker.ingest.service import IngestService
    from agents.worker.ingest.specs import source_specs

    job = f"ours-{os.getpid()}"
    config = configuration(bootstrap, folder, job)
    await _create(bootstrap, *_private(job))
    specs = source_specs(config, source_partitions={f"{job}-taxi": PARTITIONS})
    begun = 0.0
    take = SourceTask.take

    async def first_take(task: SourceTask, records: Any) -> None:
        nonlocal begun
        begun = time.perf_counter()
        SourceTask.take = take  # type: ignore[method-assign]
        await take(task, records)

    SourceTask.take = first_take  # type: ignore[method-assign]
    # The last, half-full blocks would wait a second for more: latency, which is not what is measured here.
    service = IngestService(config, specs, options=IngestOptions(flush_s=0.5))
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


def faust_loop(bootstrap: str, folder: str, events: int) -> tuple[int, float]:
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
    topic = app.topic(SOURCE, value_serializer="json")
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


def memory(users: int) -> dict[str, float]:
    """Resident growth for that many users in the bounds of four partitions."""
    from agents.protocol.ingest.bounds import Bounds, BoundSpec

    process = psutil.Process()
    before = process.memory_info().rss
    random = np.random.default_rng(1)
    tables = [Bounds(BoundSpec(max_contributions=20)) for _ in range(PARTITIONS)]
    slowest = 0.0
    for _ in range(0, users // PARTITIONS, 5_000):
        for table in tables:
            hashes = random.integers(1, 1 << 63, (5_000, 2), dtype=np.uint64) << np.uint64(1)
            begun = time.perf_counter()
            table.accept(hashes, np.zeros(5_000, np.int64))
            slowest = max(slowest, time.perf_counter() - begun)
    held = sum(table.users for table in tables)
    return {
        "users": held,
        "rss_mb": process.memory_info().rss / 1e6,
        "growth_mb": (process.memory_info().rss - before) / 1e6,
        "table_bytes_per_user": sum(table.nbytes for table in tables) / held,
        "slowest_batch_ms": slowest * 1e3,
    }


# --- Input ----------------------------------------------------------------------------------------------------------


def event(random: np.random.Generator, users: np.ndarray, index: int) -> bytes:
    """About 80 bytes, as a compact producer writes them."""
    second = index % 21_600
    return b'{"user":"u%07d","lon":%.5f,"lat":%.5f,"at":"2016-01-01 %02d:%02d:%02d"}' % (
        users[index],
        -74.05 + 0.2999 * random.random(),
        40.60 + 0.2999 * random.random(),
        second // 3600,
        second // 60 % 60,
        second % 60,
    )


async def fill(bootstrap: str, events: int, progress: Progress) -> float:
    """Write the events to their users' partitions. Returns their mean size."""
    from agents.protocol.partitioner import partitions_of
    from agents.protocol.userhash import IdBytes

    random = np.random.default_rng(7)
    users = random.integers(0, USERS, events)
    ids = IdBytes.of([f"u{user:07d}" for user in users.tolist()])
    homes = partitions_of(ids, partitioner="murmur2", partitions=PARTITIONS).tolist()
    task = progress.add_task("writing events", total=events)
    total = 0
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=1 << 19, max_request_size=1 << 20)
    await producer.start()
    batches = {partition: producer.create_batch() for partition in range(PARTITIONS)}
    for index in range(events):
        value = event(random, users, index)
        total += len(value)
        home = homes[index]
        if batches[home].append(key=None, value=value, timestamp=None) is None:
            await producer.send_batch(batches[home], SOURCE, partition=home)
            batches[home] = producer.create_batch()
            batches[home].append(key=None, value=value, timestamp=None)
            progress.update(task, completed=index)
    for home, batch in batches.items():
        if batch.record_count():
            await producer.send_batch(batch, SOURCE, partition=home)
    await producer.stop()
    progress.update(task, completed=events)
    return total / events


def _private(job: str) -> list[NewTopic]:
    return [
        NewTopic(topic.name, topic.partitions or 1, 1, topic_configs=dict(topic.settings))
        for topic in Topics(job, PARTITIONS).private()
    ]


async def _create(bootstrap: str, *topics: NewTopic) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics(list(topics))
    finally:
        await admin.close()


# --- The run --------------------------------------------------------------------------------------------------------


def rate(program: str, bootstrap: str, folder: str, events: int) -> float:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.ingest", "--program", program]
    command += ["--parent", str(os.getpid())]
    command += ["--bootstrap", bootstrap, "--folder", folder, "--events", str(events)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{program} failed:\n{done.stderr[-3000:]}")
    seen, seconds = json.loads(done.stdout.strip().splitlines()[-1])
    return float(seen / seconds)


def measured_memory(users: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.ingest", "--program", "memory", "--events", str(users)]
    command += ["--parent", str(os.getpid())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def run(*, events: int, faust_events: int, rounds: int, users: list[int]) -> dict[str, Any]:
    console = Console(stderr=True)
    rates: dict[str, list[float]] = {"bare": [], "faust": [], "ours": []}
    with (
        Progress(console=console) as progress,
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker() as broker,
    ):
        asyncio.run(_create(broker.bootstrap, NewTopic(SOURCE, PARTITIONS, 1)))
        size = asyncio.run(fill(broker.bootstrap, events, progress))
        task = progress.add_task("rounds", total=rounds * 3)
        for _ in range(rounds):
            for program, count in (("bare", events), ("ours", events), ("faust", faust_events)):
                rates[program].append(rate(program, broker.bootstrap, folder, count))
                progress.advance(task)
    sizes = [measured_memory(each) for each in users]
    to_bare = [ours_ / bare_ for ours_, bare_ in zip(rates["ours"], rates["bare"], strict=True)]
    to_faust = [ours_ / faust_ for ours_, faust_ in zip(rates["ours"], rates["faust"], strict=True)]
    table = Table("program", "events/s, median", "rounds", title=f"ingest, {events:,} events of {size:.0f} bytes")
    for program, each in rates.items():
        table.add_row(program, f"{statistics.median(each):,.0f}", "  ".join(f"{one:,.0f}" for one in each))
    table.add_row("ours / bare", f"{statistics.median(to_bare):.2f}", "  ".join(f"{one:.2f}" for one in to_bare))
    table.add_row("ours / faust", f"{statistics.median(to_faust):.1f}", "  ".join(f"{one:.1f}" for one in to_faust))
    for each_size in sizes:
        table.add_row(
            f"memory, {each_size['users']:,.0f} users",
            f"{each_size['rss_mb']:.0f} MB resident",
            f"{each_size['table_bytes_per_user']:.0f} bytes a user, slowest {each_size['slowest_batch_ms']:.0f}ms",
        )
    console.print(table)
    return {
        "ratio_to_bare": round(statistics.median(to_bare), 3),
        "ratio_to_faust": round(statistics.median(to_faust), 1),
        "events_per_second": {program: round(statistics.median(each)) for program, each in rates.items()},
        "event_bytes": round(size, 1),
        "memory": [{name: round(value, 1) for name, value in each.items()} for each in sizes],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of a few minutes")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--program", choices=["bare", "ours", "faust", "memory"], help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--events", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.parent is not None:
        end_with(given.parent)
    if given.program == "memory":
        print(json.dumps(memory(given.events)))
    elif given.program == "faust":
        print(json.dumps(faust_loop(given.bootstrap, given.folder, given.events)), flush=True)
        os._exit(0)  # Faust's own shutdown takes seconds and is not measured
    elif given.program:
        program = {"bare": bare, "ours": ours}[given.program]
        print(json.dumps(asyncio.run(program(given.bootstrap, given.folder, given.events))))
    elif given.quick:
        found = run(events=600_000, faust_events=20_000, rounds=given.rounds or 2, users=[100_000])
        print(json.dumps(found))
    else:
        found = run(events=2_000_000, faust_events=60_000, rounds=given.rounds or 5, users=[100_000, 5_000_000])
        print(json.dumps(found))


if __name__ == "__main__":
    main()
