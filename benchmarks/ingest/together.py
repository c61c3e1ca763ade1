"""One process over all partitions against two of one consumer group, both held back until each has its partitions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from agents.kafka.topics import create_topics
from benchmarks.ingest.source import PARTITIONS, configuration

OWNS = "owns its partitions"


async def held_back(bootstrap: str, folder: str, source: str, job: str, processes: int, gate: Path) -> float:
    """One of the processes: says when it owns its share, waits for the gate, and takes in all that is there.

    Returns: the time of day at which its last block was committed.
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
        """Say whether this share is read whole. Asked anew each time: the group may still move partitions here."""
        mine = service.partition_tasks.keys()
        total = sum(ends[each] - 1 for each in mine)  # the last record is a tick
        return len(mine) == share and sum(service.counters.records.values()) >= total

    await _until(lambda: at_the_end() or service.crash_reason is not None)
    if service.crash_reason is not None:
        raise service.crash_reason
    ended = time.time()
    await service.stop()
    return ended


def rate_of(processes: int, bootstrap: str, folder: str, source: str, events: int) -> float:
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
        for each in started:
            each.wait()
    return events / (max(ended) - begun)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - files and other processes set no event
        await asyncio.sleep(0.005)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
