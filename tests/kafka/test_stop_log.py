"""The record of what has stopped, with several workers: a start that finds nothing wrong takes nothing away for long
that still stands elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import agents.worker.topic_watch
from agents.kafka import stop_log
from agents.kafka.topics.admin import create_topics
from agents.lifecycle.stops import Stops
from agents.worker.topic_watch import TopicWatch
from schemas.errors import StepError
from tests.kafka.ingest_support import in_loop
from tests.kafka.support import job_config, stream_table


@in_loop
async def test_a_start_of_one_worker_does_not_hide_what_stands_in_another(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents.worker.topic_watch, "AGAIN_S", 0.0)
    config = job_config(bootstrap, tmp_path, streams=[stream_table("taxi"), stream_table("bus")], partitions=1)
    await create_topics(config)
    workers = [Stops.of(["taxi", "bus"]) for _ in range(2)]
    first, second = (TopicWatch(config, stops, {}) for stops in workers)

    async def shown() -> list[tuple[str, str, int | None]]:
        return [(stop.stream, stop.part, stop.step) for stop in (await stop_log.recorded(config)).values()]

    workers[0].add("taxi", "engine", 0, StepError("stream taxi: of step 5"), step=5)
    await first.record()
    await stop_log.clear(config, ["taxi", "bus"])  # the second worker starts, and finds nothing wrong
    await second.record()
    assert await shown() == []
    await first.record()
    assert await shown() == [("taxi", "engine", 5)]
    # The stream went on in the second worker and stopped there again: that is the newer word, whoever writes last.
    workers[1].add("taxi", "engine", 0, StepError("stream taxi: of step 7"), step=7)
    await second.record()
    await first.record()
    assert await shown() == [("taxi", "engine", 7)]


@in_loop
async def test_what_is_written_down_is_not_asked_for_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def record(_: object, stops: list[object]) -> None:
        asked.append(len(stops))

    monkeypatch.setattr(stop_log, "record", record)
    stops = Stops.of(["taxi", "bus", "tram"])
    watch = TopicWatch(job_config("localhost:1", tmp_path, streams=[stream_table("taxi")]), stops, {})
    await watch.record()
    for stream in ("taxi", "bus"):
        stops.add(stream, "engine", 0, StepError(f"stream {stream}"))
        for _ in range(3):
            await watch.record()
    assert asked == [1, 2]
