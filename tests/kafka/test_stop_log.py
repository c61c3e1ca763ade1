"""The record of what has stopped, on the real broker: written before the worker is gone, and there until somebody has
read again what it came of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client import REGISTRY

import agents.kafka.lifecycle.vitals
import agents.worker.process
import agents.worker.topic_watch
from agents.kafka import stop_log
from agents.kafka.lifecycle.leaving import Leaving
from agents.kafka.lifecycle.stops import STOPPED, Stops
from agents.kafka.lifecycle.vitals import Vitals
from agents.kafka.status import StreamStatus, status
from agents.kafka.topics import create_topics
from agents.readers.operator.doctor import cluster_findings
from agents.worker.app import ROLES
from agents.worker.topic_watch import TopicWatch
from schemas.errors import ForkError, StepError, StoreError
from schemas.topics import Topics
from tests.kafka.support import job_config, producing, records_of, stream_table, until
from tests.kafka.test_streams_alone import Twins

pytestmark = pytest.mark.seconds(10)


async def test_a_start_of_one_worker_does_not_hide_what_stands_in_another(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents.worker.topic_watch, "AGAIN_S", 0.0)
    config = job_config(bootstrap, tmp_path, streams=[stream_table("taxi"), stream_table("bus")], partitions=1)
    await create_topics(config)
    workers = [Stops.of(["taxi", "bus"]) for _ in range(2)]
    first, second = (TopicWatch(config, stops, {}, Vitals()) for stops in workers)

    async def shown() -> list[tuple[str, str, int | None]]:
        return [(stop.stream, stop.part, stop.step) for stop in (await stop_log.recorded(config)).values()]

    workers[0].add("taxi", "engine", 0, StepError("stream taxi: of step 5"), step=5)
    await first.record()
    await stop_log.clear(config, list(workers[0]))  # the second worker finds nothing wrong
    await second.record()
    assert await shown() == []
    await first.record()
    assert await shown() == [("taxi", "engine", 5)]
    # The stream went on in the second worker and stopped there again: that is the newer word, whoever writes last.
    workers[1].add("taxi", "engine", 0, StepError("stream taxi: of step 7"), step=7)
    await second.record()
    await first.record()
    await stop_log.clear(config, list(workers[0]))
    assert await shown() == [("taxi", "engine", 7)]


async def test_what_is_written_down_is_not_asked_for_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[list[bytes]] = []
    asked: list[int] = []

    async def write(_: object, records: dict[bytes, bytes]) -> None:
        if records:
            written.append(list(records))

    async def recorded(_: object) -> dict[bytes, Any]:
        asked.append(1)
        return {}

    monkeypatch.setattr(stop_log, "_write", write)
    monkeypatch.setattr(stop_log, "recorded", recorded)
    stops = Stops.of(["taxi", "bus", "tram"])
    watch = TopicWatch(job_config("localhost:1", tmp_path, streams=[stream_table("taxi")]), stops, {}, Vitals())
    watch._record_s = float("inf")
    await watch.record()
    for stream in ("taxi", "bus"):
        stops.add(stream, "engine", 0, StepError(f"stream {stream}"))
        for _ in range(3):
            await watch.record()
    assert written == [[b"taxi/engine/0"], [b"bus/engine/0"]]
    assert len(asked) == 1


class Kept(Leaving):
    """For a worker in this process, which lives on."""

    def begin(self, reason: str | None) -> None:
        self._reason = reason


class Lives:
    """One worker after the other, each as a process is from its start to its end."""

    def __init__(self, twins: Twins) -> None:
        self.twins = twins
        self.config = twins.config(twins.a)
        self.vitals = Vitals()

    async def live(self, *, until_it: Callable[[], Any] | None = None) -> BaseException | None:
        """Until it ends by itself, or `until_it` says so."""
        leaving, self.vitals, stops = Kept(), Vitals(), Stops.of([self.twins.a])
        STOPPED.clear()
        ended = asyncio.ensure_future(
            agents.worker.process._live(
                self.config, leaving, self.vitals, stops, insecure_seed=None, roles=ROLES, trusted={}
            )
        )
        if until_it is not None:
            await until(until_it)
            assert leaving._asked is not None
            leaving._asked()
        return await ended

    async def status(self) -> StreamStatus:
        [found] = await status(self.config)
        return found


async def test_no_stop_of_a_job_of_one_stream_leaves_it_well(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked at the moment in which the worker is gone, and while the next one reads again."""
    monkeypatch.setattr(agents.worker.topic_watch, "LOOK_S", 0.5)
    monkeypatch.setattr(agents.kafka.lifecycle.vitals, "LOOK_S", 0.5)
    twins = Twins(bootstrap, tmp_path)
    lives = Lives(twins)
    a, ledger = twins.a, Topics.ledger(twins.a)
    await twins.create()
    await twins.send(range(2))
    assert (await lives.status()).health == "no worker"

    async def public() -> bool:
        return 1 in await twins.published(a) and (await lives.status()).health == "ok"

    assert await lives.live(until_it=public) is None
    assert (await lives.status()).health == "no worker", "it was asked to leave"

    with monkeypatch.context() as full:

        def no_room(*_: object, **__: object) -> Any:
            raise StoreError("data_dir cannot be used: No space left on device")

        full.setattr("agents.worker.state_store.StateStore.use", no_room)
        assert isinstance(await lives.live(), StoreError)
    state = await lives.status()
    assert state.health == "stopped"
    assert [(stop.part, "No space left" in stop.reason) for stop in state.stopped] == [("worker", True)]

    async def well() -> bool:
        return (await lives.status()).health == "ok"

    assert await lives.live(until_it=well) is None, "whoever is ready takes it back"

    [*_, newest] = await records_of(bootstrap, ledger)
    other = {**orjson.loads(newest.value), "digest": "0" * 64}
    async with producing(bootstrap) as producer:
        await producer.send_and_wait(ledger, orjson.dumps(other), key=newest.key, partition=0)

    async def says_so() -> None:
        state = await lives.status()
        assert (state.health, {stop.part for stop in state.stopped}) == ("stopped", {"publish"})
        assert REGISTRY.get_sample_value("privstream_stopped", {"stream": a, "part": "publish"}) == 1

    assert isinstance(await lives.live(), ForkError)
    await says_so()
    again, seen = asyncio.ensure_future(lives.live()), set()
    while not again.done():
        seen.add((await lives.status()).health)
    assert isinstance(again.result(), ForkError)
    assert seen == {"stopped"}, "also while the next one reads"
    await says_so()
    findings = [each for each in await cluster_findings(lives.config) if each.what == f"stream {a}"]
    assert [each.verdict for each in findings] == ["problem", "warning"]
    assert "publish of partition 0 has stopped" in findings[0].detail
