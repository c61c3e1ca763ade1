"""What a stream that has stopped still publishes: what was answered before, when it is due, and no worker ends before
that. Nothing, where two answers were found or the publisher itself has stopped.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords

import agents.worker.topic_watch
from agents.kafka.batches import RecordBatch
from agents.kafka.lifecycle.stops import Part, Stops
from agents.kafka.lifecycle.vitals import Vitals
from agents.protocol.release.publisher import Publication
from agents.protocol.release.stepper import Stepper
from agents.worker.publish import PublishStreamTask
from agents.worker.topic_watch import TopicWatch
from schemas.blocks import Block
from schemas.errors import ForkError, GapError, PrivstreamError, StepError
from schemas.releases import split_into_chunks
from tests.agents.test_engine_trim import Producer
from tests.agents.test_streams_of_others import Partition
from tests.kafka.support import job_config, stream_table


class PublicTopics(Producer):
    async def send_batch(self, batch: RecordBatch, topic: str, *, partition: int) -> asyncio.Future[None]:
        records = MemoryRecords(bytes(batch._build())).next_batch()
        assert records is not None
        sent = [await self.send(topic, record.value, record.key, partition) for record in records]
        return sent[-1]


@pytest.mark.parametrize(
    ("part", "error", "public"),
    [
        ("ingest", GapError("stream a"), [0, 1]),
        ("engine", StepError("stream a"), [0, 1]),
        ("engine", ForkError("stream a"), [0]),
        ("publish", GapError("stream a"), [0]),
        ("topics", GapError("stream a"), [0]),
    ],
)
async def test_what_was_answered_and_waits_for_its_time_is_published_then(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, part: Part, error: PrivstreamError, public: list[int]
) -> None:
    """As with `publish_delay`: step 1 is answered, and not due yet, when something of the stream stops."""
    stream = partition.job.config.streams[0]
    stepper = Stepper.from_stream(stream, 1)
    stepper.fold(0, Block("a", 0, 0, 1, 1, {}))
    chunks = [
        chunk
        for step in range(2)
        for chunk in split_into_chunks(stepper.compute(bytes(32)).encode().release, stream="a", step=step)
    ]
    stops = Stops.of(["a", "b"])
    sent: list[Any] = []

    stream_task = PublishStreamTask(partition.publisher(), stream, stops)
    stream_task._producer = PublicTopics(sent)
    waits, due, public_all = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def until_due(publication: Publication) -> None:
        if publication.step == 1:
            waits.set()
            await due.wait()

    monkeypatch.setattr(stream_task, "_wait_until_due", until_due)
    monkeypatch.setattr(stream_task, "_timed", lambda _: True)
    monkeypatch.setattr(stream_task, "_due_s", lambda step: float("inf"))  # one at a time
    monkeypatch.setattr(stream_task._task, "settled", lambda _: stream_task.machine.last_step == 1 and public_all.set())
    monkeypatch.setattr(stream_task, "_tell_late", lambda _: None)
    for offset, chunk in enumerate(chunks):
        await stream_task.take(offset, chunk)
    running = asyncio.ensure_future(stream_task.run())
    await asyncio.wait_for(waits.wait(), 60)
    stops.add("a", part, None, error, step=2 if part == "engine" else None)
    due.set()
    if public == [0]:
        await asyncio.wait_for(running, 60)
    else:
        await asyncio.wait_for(public_all.wait(), 60)
        running.cancel()
    assert [int(record.key) for record in sent if b"previous_chain" in record.value] == public


@pytest.mark.parametrize(
    ("part", "step", "published", "ends"),
    [
        ("ingest", None, 4, False),  # steps up to 5 are closed
        ("ingest", None, 5, True),
        ("engine", 4, 2, False),  # steps up to 3 are answered
        ("engine", 4, 3, True),
        ("engine", None, -1, True),
    ],
)
def test_the_worker_ends_when_nothing_is_left_to_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: Part, step: int | None, published: int, ends: bool
) -> None:
    stops = Stops.of(["a", "b"])
    stops.watched = True
    config = job_config("localhost:1", tmp_path, streams=[stream_table("a"), stream_table("b")], job="j")
    watching = TopicWatch(config, stops, {}, Vitals())

    async def status(_: Any) -> list[Any]:
        return [
            SimpleNamespace(stream="a", published=published, over=5),
            SimpleNamespace(stream="b", published=0, over=5),
        ]

    monkeypatch.setattr(agents.worker.topic_watch, "status", status)
    stops.add("a", part, None, StepError("stream a"), step=step)
    asyncio.run(watching.end_if_nothing_waits())  # b goes on
    stops.add("b", "topics", None, GapError("stream b"))
    if ends:
        with pytest.raises(GapError, match="stream b"):
            asyncio.run(watching.end_if_nothing_waits())
    else:
        asyncio.run(watching.end_if_nothing_waits())


def test_where_no_stream_can_publish_anything_it_ends_at_once() -> None:
    stops = Stops.of(["a", "b"])
    stops.watched = True
    stops.add("a", "engine", 0, ForkError("stream a"))
    with pytest.raises(GapError):
        stops.add("b", "publish", 0, GapError("stream b"))
