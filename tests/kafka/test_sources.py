"""Sources that change under a running worker: it says so soon, counts what was lost, and goes on with the others."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic
from prometheus_client import REGISTRY

from agents.kafka.fingerprint import check_fingerprints
from agents.kafka.status import status
from agents.kafka.topics import create_topics
from agents.readers.operator.doctor import cluster_findings
from agents.worker.ingest.service import IngestService
from agents.worker.ingest.specs import user_key_ids
from schemas.errors import SourceError
from tests.kafka.ingest_support import Bench, event
from tests.kafka.support import add_partitions, create, delete, delete_records, producing, until


@contextmanager
def criticals(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Messages of level ERROR and above of our own."""
    found: list[str] = []

    class Ours(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR and record.name.startswith("agents"):
                found.append(record.getMessage())

    handler = Ours()
    logging.getLogger().addHandler(handler)
    try:
        yield found
    finally:
        logging.getLogger().removeHandler(handler)


def _counted(service: IngestService, key: tuple[str, Literal["blocks"], str, str], records: int) -> bool:
    return service.counters.records[key] == records


async def test_changed_sources_stop_alone_and_say_so(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(bootstrap, tmp_path)
    names = ("again", "grown", "same")
    bench = dataclasses.replace(bench, streams=[bench.stream(name, source=f"raw.{bench.job}.{name}") for name in names])
    again, grown, same = (str(stream["source"]) for stream in bench.streams)
    await create_topics(bench.config, source_partitions=2)
    checked = await check_fingerprints(bench.config, user_key_ids=user_key_ids(bench.config))
    with criticals(caplog) as said:
        async with bench.running(sources=checked.sources) as service:
            for name, topic in zip(names, (again, grown, same), strict=True):
                await bench.tick(0, topic=topic)
                await bench.until_ticked(0, stream=name)
            await add_partitions(bootstrap, grown, 3)
            await delete(bootstrap, again)
            await create(bootstrap, NewTopic(again, 2, 1))
            await until(lambda: {stop.stream for stop in service.stops} == {f"{bench.job}-again", f"{bench.job}-grown"})
            for name, shown in (("again", 1), ("grown", 1), ("same", None)):
                labels = {"stream": f"{bench.job}-{name}", "part": "ingest"}
                assert REGISTRY.get_sample_value("privstream_stopped", labels) == shown
            await bench.tick(1, topic=same)
            await bench.until_ticked(1, stream="same")
            # What comes to a stopped source stays unread, whatever its offsets are.
            await bench.tick(1, topic=again)
            await bench.tick(1, topic=grown)
            await bench.tick(2, topic=same)
            await bench.until_ticked(2, stream="same")
            assert service.crash_reason is None
            for name in ("again", "grown"):
                assert (await bench.result(name)).ticks == {0: 0, 1: 0}
            await delete(bootstrap, same)
            await until(lambda: service.crash_reason is not None)
            error, service.crash_reason = service.crash_reason, None
            assert isinstance(error, SourceError)
            assert "is gone" in str(error)
    for topic, name, reason in ((again, "again", "deleted and made again"), (grown, "grown", "has 3 partitions")):
        [line] = [line for line in said if topic in line and "STOPPED" in line]
        assert f"STOPPED: stream {bench.job}-{name} (ingest): source {topic} " in line
        assert reason in line
        assert "under another name" in line
    states = {state.stream: state for state in await status(bench.config)}
    assert "deleted and made again" in (states[f"{bench.job}-again"].source_problem or "")
    assert "has 3 partitions and had 2" in (states[f"{bench.job}-grown"].source_problem or "")
    assert "is gone" in (states[f"{bench.job}-same"].source_problem or "")
    await create(bootstrap, NewTopic(same, 2, 1))
    problems = {finding.what for finding in await cluster_findings(bench.config) if finding.verdict == "problem"}
    assert problems == {f"source of {bench.job}-{name}" for name in names}


async def test_records_deleted_before_they_were_read_are_counted(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(bootstrap, tmp_path, partitions=1)
    await create_topics(bench.config, source_partitions=1)
    source = TopicPartition(bench.source, 0)
    stream = f"{bench.job}-s"

    with criticals(caplog) as said:
        async with bench.running() as service:
            await bench.send([event(f"u{n}", 0) for n in range(10)])
            await until(lambda: service.counters.records[stream, "blocks", "ACCEPTED", ""] == 10)
            # A worker that does not get round to reading: nothing comes afterwards that would show the loss.
            assert service._consumer is not None
            service._consumer.pause(source)
            fetcher = service._consumer._fetcher
            await until(lambda: not fetcher._in_flight)  # one under way would bring what is sent now
            await bench.send([event(f"v{n}", 0) for n in range(20)])
            await delete_records(bootstrap, bench.source, before=30)
            service._consumer.resume(source)
            await until(lambda: service.counters.records[stream, "blocks", "LOST", ""] == 20)
            # The marker of a transaction is no loss, and neither is what was deleted after it was read.
            async with producing(bootstrap, transactional_id=f"{bench.job}-test") as producer:
                for number in (1, 2, 3):
                    async with producer.transaction():
                        await producer.send(bench.source, b"{}", partition=0)
                    await until(partial(_counted, service, (stream, "blocks", "MISSING_FIELD", "at"), number))
                    await delete_records(bootstrap, bench.source)
            await bench.send([event("y", 0)])
            await until(partial(_counted, service, (stream, "blocks", "ACCEPTED", ""), 11))
        # A worker that is down.
        await bench.send([event(f"w{n}", 0) for n in range(5)])
        await delete_records(bootstrap, bench.source)
        async with bench.running() as service:
            await until(lambda: service.counters.records[stream, "blocks", "LOST", ""] == 5)
            await bench.send([event("x", 0)])
            await bench.tick(0)
            await bench.until_ticked(0)
    lines = [line for line in said if "deleted before they were read" in line]
    assert len(lines) == 2
    assert "offsets 10 to 29" in lines[0]
    assert "retention.ms" in lines[0]
    [state] = await status(bench.config)
    assert state.lost == 25
    findings = {finding.what: finding for finding in await cluster_findings(bench.config)}
    assert findings[f"lost records of {stream}"].detail.startswith("25 source offsets")


async def test_a_source_that_lost_its_tail_is_named_and_what_is_new_is_counted(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One broker elects no lagging leader, so the worker is set ahead instead: as if it had read what is not there."""
    bench = Bench(bootstrap, tmp_path, partitions=1)
    await create_topics(bench.config, source_partitions=1)
    source = TopicPartition(bench.source, 0)
    stream = f"{bench.job}-s"
    async with bench.running() as service:
        await bench.send([event(f"u{n}", 0) for n in range(10)])
        await until(lambda: service.counters.records[stream, "blocks", "ACCEPTED", ""] == 10)
        task = service.partition_tasks[source]
        task.machines[0].advance(30)
        task.position = task.explained = 30
        task._oldest_s = 0.0
        await until(bench.result, lambda found: found.next_offsets == {0: 30})
    with criticals(caplog) as said:
        async with bench.running() as service:
            await until(lambda: any("lost its tail" in line for line in said))
            await bench.send([event(f"v{n}", 0) for n in range(25)])
            await bench.tick(0)
            result = await bench.until_ticked(0)
    assert result.reasons == {"ACCEPTED": 15, "LOST": 20}
    [line] = said
    assert "it was read up to offset 30" in line
    assert "counted as LOST from 10 on" in line


async def test_a_topic_that_its_broker_hears_of_later_is_read_as_soon_as_it_has(bootstrap: str, tmp_path: Path) -> None:
    """A moment after a topic is made a broker may not know it, and says so: metadata of then expire in five minutes."""
    bench = Bench(bootstrap, tmp_path, partitions=1)
    await bench.create_private()
    async with bench.running() as service:
        await until(lambda: service._assigned)
        assert service._wanted == set()
        await bench.create_sources()
        await bench.send([event("u", 0)])
        await bench.tick(0)
        assert (await bench.until_ticked(0)).events == {0: 1}
