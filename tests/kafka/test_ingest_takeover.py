"""Workers of the ingest die, sleep, come and go on the real broker: what is committed is what the records say, once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agents.worker.ingest.partition_task
from agents.kafka.clients import fenced_producer
from schemas.config.server import Kafka
from tests.kafka.ingest_support import Bench, check, crowd, in_loop
from tests.kafka.support import WAIT_AT_MOST_S, until

pytestmark = pytest.mark.seconds(5)

FAILPOINTS = (
    "ingest_block_appended",
    "ingest_bounds_appended",
    "ingest_sent",
    "ingest_before_commit",
    "ingest_after_commit",
)


async def _closed_or_dead(bench: Bench, process: subprocess.Popen[bytes], step: int) -> bool:
    if process.poll() is not None:
        return True
    ticks = (await bench.result()).ticks
    return all(ticks[partition] >= step for partition in range(bench.partitions))


@pytest.mark.parametrize(
    "name",
    [name if name == "ingest_sent" else pytest.param(name, marks=pytest.mark.nightly) for name in FAILPOINTS],
)
@in_loop
async def test_killed_at_a_failpoint(bootstrap: str, tmp_path: Path, name: str) -> None:
    bench = Bench(bootstrap, tmp_path)
    await bench.create()
    events: list[Mapping[str, Any]] = []
    process = bench.process(failpoints=f"{name}:4")
    try:
        for step in range(4):
            events += crowd(step)
            await bench.send(crowd(step))
            await bench.tick(step)
            # Steps one by one, however slowly the process starts: else all of them are fewer than four transactions.
            await until(partial(_closed_or_dead, bench, process, step))
        assert await asyncio.to_thread(process.wait, WAIT_AT_MOST_S) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()
    async with bench.running():
        check(await bench.until_ticked(3), events)


@in_loop
async def test_a_zombie_is_fenced(bootstrap: str, tmp_path: Path) -> None:
    """Stopped with a transaction open, replaced, and woken: what it had open and what it still tries is never seen."""
    bench = Bench(bootstrap, tmp_path)
    await bench.create()
    events = [each for step in range(3) for each in crowd(step)]
    zombie = bench.process(failpoints="ingest_before_commit:2", signal="STOP")
    try:
        for step in range(3):
            await bench.send(crowd(step))
            await bench.tick(step)
        await until(lambda: _stopped(zombie.pid))
        async with bench.running():
            check(await bench.until_ticked(2), events)
            zombie.send_signal(signal.SIGCONT)
            await asyncio.sleep(3)
            events += crowd(3)
            await bench.send(crowd(3))
            await bench.tick(3)
            check(await bench.until_ticked(3), events)
    finally:
        zombie.kill()
        zombie.wait()


@in_loop
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


@in_loop
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


def _stopped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    return False
