"""The programs: where to read and how many events; each gives events and seconds.

Those of `OTHERS` are other stream processors, each in an environment and a process of its own. Of ours, one process
over all partitions is compared with two of one consumer group, both held back until each has its partitions.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition

from agents.kafka.topics import create_topics
from benchmarks.environments import environment
from benchmarks.ingest.source import PARTITIONS, configuration

OWNS = "owns its partitions"
ENDED = "ended"
"""File beside the gate: all processes have taken in their share."""


async def held_back(bootstrap: str, folder: str, source: str, job: str, processes: int, gate: Path) -> None:
    """One of the processes: says when it owns its share, waits for the gate, and takes in all that is there.

    It prints the time of day at which its last block was committed, and leaves the group when the others have as well:
    before that, its partitions would go to one that still waits for its own share.
    """
    from agents.worker.ingest.service import IngestService
    from agents.worker.ingest.specs import source_specs

    class Held(IngestService):
        async def _work(self, consumer: AIOKafkaConsumer, fetched: Mapping[TopicPartition, Any]) -> None:
            # What was fetched for another assignment must not keep this one from being opened.
            await _until(lambda: gate.exists() or self._readable() != self.partition_tasks.keys())
            await super()._work(consumer, fetched)

    config = configuration(bootstrap, folder, job, source=source)
    specs = source_specs(config, source_partitions={f"{job}-taxi": PARTITIONS})
    service = Held(config, specs, instance_id=str(os.getpid()))
    await service.start()
    share = PARTITIONS // processes
    await _until(lambda: len(service.partition_tasks) == share)
    print(OWNS, flush=True)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as asked:
        ends = await asked.end_offsets([TopicPartition(source, partition) for partition in range(PARTITIONS)])
    await _until(gate.exists)

    def at_the_end() -> bool:
        """Say whether this share is committed whole, by whomever: the group may still move partitions meanwhile."""
        mine = service.partition_tasks
        return len(mine) == share and all(task.committed >= ends[each] for each, task in mine.items())

    await _until(lambda: at_the_end() or service.crash_reason is not None)
    if service.crash_reason is not None:
        raise service.crash_reason
    print(repr(time.time()), flush=True)
    await _until(gate.with_name(ENDED).exists)
    await service.stop()


def rate_together(processes: int, bootstrap: str, folder: str, source: str, events: int) -> float:
    """Events a second of that many processes together, from the opened gate to the last commit of all."""
    job = f"together-{processes}-{time.monotonic_ns()}"
    asyncio.run(create_topics(configuration(bootstrap, folder, job, source=source)))
    with tempfile.TemporaryDirectory() as held:
        gate = Path(held) / "gate"
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.ingest", "--program", "held"]
        command += ["--parent", str(os.getpid()), "--bootstrap", bootstrap, "--folder", folder, "--source", source]
        command += ["--job", job, "--processes", str(processes), "--gate", str(gate)]
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
        for each in started:
            while (line := _line(each)) != OWNS:
                if not line:
                    raise SystemExit("a process ended before it owned its partitions")
        begun = time.time()
        gate.touch()
        ended = [float(_line(each)) for each in started]
        gate.with_name(ENDED).touch()
        for each in started:
            each.wait()
    return events / (max(ended) - begun)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - files and other processes set no event
        await asyncio.sleep(0.005)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


OTHERS = ("quix", "bytewax")
ENVIRONMENT = "streams"


def rate_of_other(program: str, bootstrap: str, folder: str, source: str, events: int) -> float:
    """Events a second of one of `OTHERS`. Raises: SystemExit with what it said, if it failed or lost events."""
    path = Path(__file__).with_name(f"{program}_process.py")
    command = [str(environment(ENVIRONMENT)), "-W", "ignore", str(path), bootstrap, source, str(events), folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{program} failed:\n{done.stderr[-3000:]}")
    seen, seconds = json.loads(done.stdout.strip().splitlines()[-1])
    if seen != events:
        raise SystemExit(f"{program} saw {seen} of {events} events")
    return float(seen / seconds)


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


async def ours(bootstrap: str, folder: str, events: int, source: str, *, routed: bool = False) -> tuple[int, float]:
    """Timed from the first slice that is taken in until the last block is committed."""
    from agents.worker.ingest.partition_task import SourceTask
    from agents.worker.ingest.service import IngestService
    from agents.worker.ingest.specs import source_specs

    job = f"ours-{os.getpid()}"
    config = configuration(bootstrap, folder, job, source=source, routed=routed)
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


async def routed(bootstrap: str, folder: str, events: int, source: str) -> tuple[int, float]:
    """The same, of a job that copies each event to its user's partition first."""
    return await ours(bootstrap, folder, events, source, routed=True)


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
