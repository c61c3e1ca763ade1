"""A stream that this worker does not know, because a worker with a later configuration started it, loses nothing to it:
engine, publisher and audit delete nothing as soon as they have seen a record of it, or could have missed one.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.protocol.release.held_out import HeldOutAudit
from agents.worker import audit, publish
from agents.worker.audit import AuditStreamTask, AuditTask
from agents.worker.job import Job
from agents.worker.publish import PublishStreamTask, PublishTask
from schemas.blocks import Block
from schemas.releases import Seed
from tests.agents.test_stream_stops_alone import Bench, block, both
from tests.kafka.support import job_config, stream_table

STEPS = 4


async def test_the_engine_keeps_the_blocks_of_a_stream_that_was_added_later(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.life([*both(range(2)), block("c", 0), *both(range(2, STEPS)), block("c", 1)])
    assert bench.answered("a") == bench.answered("b") == list(range(STEPS))
    assert bench.trimmed, "what is before it may go"
    assert max(bench.trimmed) <= 4, "the first block of c stays"
    assert not list(bench.job.stops)
    [warning] = [record.getMessage() for record in caplog.records if "stream c" in record.getMessage()]
    assert "is not configured" in warning
    assert "restart this worker" in warning


async def test_an_engine_that_goes_on_behind_such_blocks_keeps_them_too(bench: Bench) -> None:
    """Another worker read them and died: whoever takes over does not read them again, and knows the fingerprints."""
    await bench.life(both(range(STEPS)))
    bench.trimmed.clear()
    bench.job.kept = frozenset()  # of a worker that has seen nothing
    bench.started.append("c")
    await bench.life([])
    assert not bench.trimmed


def test_a_stream_that_is_retired_holds_nothing_back(tmp_path: Path) -> None:
    config = job_config("localhost:1", tmp_path, streams=[stream_table("a")], partitions=1, job="j", retired=["old"])
    job = Job(config=config, source_partitions={"a": 1})
    for name in ("a", "old"):
        job.meet(name)
    assert not job.holds_back(0)
    job.meet("c")
    assert job.holds_back(0)


class Partition:
    """Publisher or audit of stream a on one partition, without Kafka. `trimmed`: below which offsets it deleted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *others: str) -> None:
        streams = [stream_table("a", audit="held-out.a"), *map(stream_table, others)]
        config = job_config("localhost:1", folder, streams=streams, partitions=1, job="j")
        self.job = Job(config=config, source_partitions={"a": 1, **dict.fromkeys(others, 1)}, audit_partitions={"a": 1})
        self.table: Any = None
        self.trimmed: list[int] = []
        for module in (publish, audit):
            monkeypatch.setattr(module, "Trimmer", self._trimmer)

    def _trimmer(self, *_: Any, held: Any) -> Any:
        return SimpleNamespace(below=lambda offset: None if held() else self.trimmed.append(offset))

    def publisher(self) -> PublishTask:
        task = PublishTask(self.job, 0)
        for stream in self.job.config.streams:
            task._stream_tasks[stream.name] = PublishStreamTask(task, stream, self.job.stops)
        return task

    def audit(self) -> AuditTask:
        task = AuditTask(self.job, self.table, 0)
        task._stream_tasks["a"] = AuditStreamTask(task, HeldOutAudit(self.job.config.streams[0], 1))
        return task


def event(offset: int, stream: str, value: bytes, acked: list[int] | None = None) -> Any:
    message = SimpleNamespace(offset=offset, key=stream.encode(), value=value)
    return SimpleNamespace(message=message, value=value, ack=lambda: None if acked is None else acked.append(offset))


@pytest.mark.parametrize(("other", "kept"), [("a", False), ("c", True)])
async def test_the_publisher_keeps_the_log_of_a_stream_that_was_added_later(
    partition: Partition, other: str, kept: bool
) -> None:
    task = partition.publisher()

    for offset, (stream, step) in enumerate([(other, 0), ("a", 1), ("a", 2)]):
        await task.handle(event(offset, stream, Seed(stream, step, bytes(32)).encode()))
    task._stream_tasks["a"].machine.last_step = 1
    task.settled(task._stream_tasks["a"])
    assert partition.trimmed == ([] if kept else [1])


async def test_the_publisher_keeps_what_another_stream_has_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its newest candidate waits for its time. Where it is gone after a crash the step's answer is lost."""
    partition = Partition(tmp_path, monkeypatch, "b")
    task = partition.publisher()
    for offset, (stream, step) in enumerate([("a", 0), ("b", 0), ("a", 1), ("a", 2), ("b", 1)]):
        await task.handle(event(offset, stream, Seed(stream, step, bytes(32)).encode()))
    for stream, last_step, trimmed in (("a", 2, [1]), ("b", 0, [1, 1]), ("b", 1, [1, 1, 3])):
        task._stream_tasks[stream].machine.last_step = last_step
        task.settled(task._stream_tasks[stream])
        assert partition.trimmed == trimmed


@pytest.mark.parametrize(("other", "kept"), [("a", False), ("c", True)])
async def test_the_audit_keeps_the_blocks_of_a_stream_that_was_added_later(
    partition: Partition, other: str, kept: bool
) -> None:
    task = partition.audit()

    await task.handle(event(0, other, Block(other, 0, 0, 1, -1, {}).encode()))
    task._stream_tasks["a"].saved_floor = 1
    task.saved()
    assert partition.trimmed == ([] if kept else [1])
