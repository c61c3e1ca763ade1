"""A source that is another topic than before stops those who read it, in the one registry of what has stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition

from agents.kafka import fingerprint
from agents.kafka.lifecycle.stops import Stops
from agents.kafka.topics import TopicIdentity
from agents.worker.ingest.partition_task import IngestOptions, SourceTask
from agents.worker.ingest.service import IngestService
from agents.worker.ingest.specs import source_specs
from schemas.errors import GapError, SourceError
from tests.kafka.support import job_config, stream_table

HELD_OUT = "held-out.a"
KNOWN = {topic: TopicIdentity(f"id of {topic}", 1) for topic in ("raw.both", "raw.c", HELD_OUT)}


class Consumer:
    """Has all partitions. Notes which are no longer read."""

    def __init__(self) -> None:
        self.paused: set[str] = set()

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition(topic, 0) for topic in KNOWN}

    def pause(self, *sources: TopicPartition) -> None:
        self.paused |= {source.topic for source in sources}


class Bench:
    """Streams a and b on one source, a with held-out events, and c on another; every source is owned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        privacy = {"epsilon": 1.0, "unit": "event"}
        tables = [
            stream_table("a", source="raw.both", privacy=privacy, audit=HELD_OUT),
            stream_table("b", source="raw.both", privacy=privacy),
            stream_table("c", source="raw.c", privacy=privacy),
        ]
        config = job_config("localhost:1", Path("unused"), streams=tables, job="j")
        one = dict.fromkeys("abc", 1)
        specs = source_specs(config, source_partitions=one, audit_partitions=one)
        self.stops = Stops.of("abc")
        self.service = IngestService(config, specs, sources=KNOWN, stops=self.stops)
        self.consumer = Consumer()
        self.found = dict(KNOWN)
        for topic, each in specs.items():
            source = TopicPartition(topic, 0)
            self.service.partition_tasks[source] = SourceTask(
                config, source, each, options=IngestOptions(), counters=self.service.counters, stops=self.stops
            )
        self.service._wanted = frozenset(self.service.partition_tasks)

        async def identities(_: Any, topics: Any) -> dict[str, TopicIdentity]:
            return {topic: self.found[topic] for topic in topics if topic in self.found}

        monkeypatch.setattr(fingerprint, "topic_identities", identities)
        monkeypatch.setattr(fingerprint, "SURE_S", 0.0)

    async def look(self) -> None:
        await self.service._look(self.consumer)

    def stopped(self) -> set[tuple[str, str, int | None]]:
        return {(stop.stream, stop.part, stop.partition) for stop in self.stops}

    def read(self) -> set[str]:
        assert {source.topic for source in self.service.partition_tasks} == {
            source.topic for source in self.service._readable()
        }
        return {source.topic for source in self.service.partition_tasks}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (None, "is gone"),
        (TopicIdentity("another", 1), "was deleted and made again"),
        (TopicIdentity("id of raw.both", 2), "has 2 partitions and had 1"),
    ],
    ids=["gone", "again", "grown"],
)
async def test_every_stream_that_reads_it_stops_and_says_how_and_what_to_do(
    bench: Bench, caplog: pytest.LogCaptureFixture, now: TopicIdentity | None, says: str
) -> None:
    del bench.found["raw.both"]
    bench.found |= {} if now is None else {"raw.both": now}

    task = bench.service.partition_tasks[TopicPartition("raw.both", 0)]
    await asyncio.gather(bench.look(), bench.look())  # the main loop's, and the one every five seconds
    await bench.look()
    assert task.closed
    assert bench.stopped() == {("a", "ingest", None), ("b", "ingest", None)}
    assert bench.read() == {"raw.c", HELD_OUT}
    assert bench.consumer.paused == {"raw.both"}
    lines = [record.getMessage() for record in caplog.records if "STOPPED" in record.getMessage()]
    assert len(lines) == 2, "each stream says it once"
    for stream, line in zip("ab", lines, strict=True):
        assert f"STOPPED: stream {stream} (ingest): source raw.both {says}" in line
        assert "What to do: where partitions were added" in line
        assert 'docs/operations.md, "A source has changed"' in line


def test_a_changed_held_out_topic_stops_the_audit_and_nothing_else(bench: Bench) -> None:
    bench.found[HELD_OUT] = TopicIdentity("another", 1)
    asyncio.run(bench.look())
    assert bench.stopped() == {("a", "audit", None)}
    assert bench.read() == {"raw.both", "raw.c"}
    assert not bench.stops.stopped("a")


def test_the_worker_ends_when_nothing_else_is_left_to_do(bench: Bench) -> None:
    """Whatever stopped the other stream: its source, or its engine."""
    del bench.found["raw.both"]
    asyncio.run(bench.look())
    del bench.found["raw.c"]
    with pytest.raises(SourceError, match=r"raw\.c is gone"):
        asyncio.run(bench.look())
    assert bench.read() == {HELD_OUT}


def test_a_stream_that_stopped_elsewhere_counts_too(bench: Bench) -> None:
    bench.stops.add("c", "engine", 0, GapError("stream c: a gap"))
    del bench.found["raw.both"]
    with pytest.raises(SourceError, match=r"raw\.both is gone"):
        asyncio.run(bench.look())
