"""A worker that waits is alive; one that is at something for too long is dead; one that stood still is not."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import REGISTRY

from agents.kafka.lifecycle.vitals import BEAT_S, COMPUTE_S, LOOK_S, LOOP_S, READ_S, WORK_S, Reach, Reading, Vitals
from agents.worker.metrics import WorkerState
from agents.worker.partition_tasks import PartitionTask, PartitionTasks
from agents.worker.probes import PORTS, application, serve


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def worker() -> tuple[Vitals, Clock]:
    clock = Clock()
    vitals = Vitals(clock)
    vitals.phase = ""
    return vitals, clock


def test_who_waits_is_alive_and_who_works_too_long_is_not() -> None:
    vitals, clock = worker()
    part = vitals.part("engine of partition 3")
    part.waits("waits for records")
    clock.now += 1e6
    assert vitals.dead == []
    with part.at("works on a record"):
        clock.now += WORK_S - 1
        part.goes_on()
        clock.now += WORK_S
        assert vitals.dead == []
        with part.at("computes a step", COMPUTE_S):
            clock.now += COMPUTE_S
            assert vitals.dead == []
        clock.now += WORK_S + 1
        assert vitals.dead == ["engine of partition 3: works on a record for 301 s, at most 300 are expected"]
    clock.now += 1e6
    assert vitals.dead == []


def test_what_is_over_is_not_missed_and_a_successor_counts_alone() -> None:
    vitals, clock = worker()
    old = vitals.part("ingest")
    old.works("reads")
    new = vitals.part("ingest")
    vitals.ends(old)
    clock.now += WORK_S + 1
    assert vitals.dead == []
    new.works("reads")
    clock.now += WORK_S + 1
    assert len(vitals.dead) == 1
    vitals.ends(new)
    assert vitals.dead == []


def test_a_loop_that_no_longer_turns_is_dead() -> None:
    vitals, clock = worker()
    vitals.beat()
    clock.now += LOOP_S
    assert vitals.dead == []
    clock.now += 1
    assert vitals.dead == ["event loop: turns for 31 s, at most 30 are expected"]


def test_a_process_that_stood_still_has_nobody_to_blame() -> None:
    vitals, clock = worker()
    part = vitals.part("ingest")
    vitals.beat()
    part.works("reads")
    clock.now += 10 * WORK_S
    vitals.beat()
    assert vitals.dead == []
    for _ in range(int(WORK_S / BEAT_S) + 2):
        clock.now += BEAT_S
        vitals.beat()
    assert len(vitals.dead) == 1, "the time since then counts"


def test_ready_is_who_has_what_it_needs() -> None:
    vitals, _ = worker()
    vitals.phase = "waits for the cluster"
    part = vitals.part("ingest")
    part.works("restores bounds")
    assert vitals.unready == ["waits for the cluster"]
    vitals.phase = ""
    assert vitals.unready == ["ingest: restores bounds"]
    part.ready = True
    assert vitals.unready == []


def test_records_that_wait_and_are_not_read() -> None:
    clock = Clock()
    reading, tp = Reading(now=clock), ("blocks", 2)

    def after(seconds: float, position: int, end: int, *, busy: bool = False) -> list[str]:
        """What the last of the looks says that are made meanwhile."""
        told: list[str] = []
        for _ in range(round(seconds / LOOK_S)):
            clock.now += LOOK_S
            told = reading.look({tp: Reach(position, end)}, {tp} if busy else set())
        return told

    assert after(READ_S, 5, 5) == [], "nothing waits"
    assert after(READ_S, 5, 9) == []
    assert after(LOOK_S, 6, 9) == [], "it goes on"
    assert after(2 * READ_S, 6, 9, busy=True) == [], "its task is at work and takes no more"
    assert after(READ_S, 6, 9) == []
    assert after(LOOK_S, 6, 9) == ["blocks-2 is not read though records wait there"]
    assert reading.look({}) == []
    assert after(LOOK_S, 6, 9) == [], "it was given up and came back"
    clock.now += 10 * READ_S
    assert after(LOOK_S, 6, 9) == [], "the process stood still"


class Frozen(PartitionTask):
    role = "engine"

    def __init__(self, partition: int, where: str) -> None:
        super().__init__(partition)
        self._where = where

    async def open(self) -> None:
        await self._at("open")

    async def handle(self, event: Any) -> None:
        await self._at("handle")

    async def _at(self, where: str) -> None:
        if where == self._where:
            await asyncio.Event().wait()


@pytest.mark.parametrize(("where", "limit"), [("open", COMPUTE_S), ("handle", WORK_S), ("nowhere", None)])
def test_a_task_that_is_frozen_is_dead_and_one_that_waits_is_not(where: str, limit: float | None) -> None:
    asyncio.run(_frozen(where, limit))


async def _frozen(where: str, limit: float | None) -> None:
    vitals, clock = worker()
    tasks = PartitionTasks({"engine": lambda partition: Frozen(partition, where)}, lambda error: None, vitals)
    tasks.open([0])
    for task in tasks:
        task.queue.put_nowait("record")
    await asyncio.sleep(0.01)
    assert bool(vitals.unready) is (where == "open")
    clock.now += (limit or 1e6) + 1
    assert [told.split(":")[0] for told in vitals.dead] == ([] if limit is None else ["engine of partition 0"])
    await tasks.stop()
    assert vitals.parts == []


def answer(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def state() -> Iterator[tuple[Vitals, Clock]]:
    vitals, clock = worker()
    shown = WorkerState(vitals)
    REGISTRY.register(shown)
    yield vitals, clock
    REGISTRY.unregister(shown)


def test_probes_answer_by_path_with_the_reason(state: tuple[Vitals, Clock]) -> None:
    vitals, clock = state
    port = serve("127.0.0.1", 20_000, vitals)
    assert port is not None
    vitals.phase = "waits for the cluster"
    code, body = answer(port, "/readyz")
    assert (code, json.loads(body)["reasons"]) == (503, ["waits for the cluster"])
    assert answer(port, "/livez")[0] == 200
    assert 'privstream_worker_state{state="starting"} 1.0' in answer(port, "/metrics")[1]
    vitals.phase = ""
    vitals.beat()
    assert answer(port, "/readyz")[0] == 200
    assert 'privstream_worker_state{state="ready"} 1.0' in answer(port, "/metrics")[1]
    clock.now += LOOP_S + 1
    for path in ("/livez", "/readyz"):
        code, body = answer(port, path)
        assert code == 503
        assert "event loop: turns for 31 s" in json.loads(body)["reasons"][0]
    assert 'privstream_worker_state{state="dead"} 1.0' in answer(port, "/metrics")[1]
    vitals.lags["ingest"] = {("raw", 1): Reach(4, 9)}
    assert 'privstream_lag_offsets{partition="1",topic="raw"} 5.0' in answer(port, "/metrics")[1]
    assert answer(port, "/")[0] == 404
    assert answer(port, "/livez", "POST")[0] == 405


def test_workers_of_one_machine_take_a_port_each() -> None:
    vitals, _ = worker()
    first, second = serve("127.0.0.1", 20_100, vitals), serve("127.0.0.1", 20_100, vitals)
    assert first is not None
    assert second is not None
    assert first < second < 20_100 + PORTS


async def test_no_page_of_a_stranger_reads_counts_through_the_browser_of_an_operator() -> None:
    """A name that was pointed at 127.0.0.1 (DNS rebinding). Beyond loopback, who reaches the port is said elsewhere."""
    vitals, _ = worker()

    async def status(host: str, *, loopback: bool) -> int:
        async with TestClient(TestServer(application(vitals, loopback=loopback))) as client:
            answer = await client.get("/metrics", headers={"Host": host})
            assert ("python_info" in await answer.text()) == (answer.status == 200)
            return answer.status

    for own in ("", "localhost", "LOCALHOST:9464", "127.0.0.1:9464", "[::1]:9464", "10.0.0.7"):
        assert await status(own, loopback=True) == 200
    for name in ("rebound.example:9464", "rebound.example", "localhost.rebound.example", "1.2.3"):
        assert await status(name, loopback=True) == 421
    assert await status("worker-0.metrics:9464", loopback=False) == 200


def test_what_listens_on_loopback_asks_for_its_own_name() -> None:
    port = serve("127.0.0.1", 20_200, worker()[0])
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Host": "rebound.example"})
    with pytest.raises(urllib.error.HTTPError, match="421"):
        urllib.request.urlopen(request, timeout=10)
