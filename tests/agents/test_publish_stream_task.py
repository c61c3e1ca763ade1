"""A publisher's stream_tasks are made for all streams of its partition, those that could not start included; what one
finds on public topics behind the ledger's last step is named, or refused.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from agents.kafka.lifecycle.stops import Stops, StreamStoppedError
from agents.worker import publish
from agents.worker.publish import PublishStreamTask
from engines.checks.contract_case import contract_case
from schemas.errors import GapError, LostTopicError
from schemas.releases import STEP_HEADER, Chunk, LogRecord, Seed
from schemas.topics import Topics

STREAM = contract_case("spatial").stream("default")
SYNTHETIC, MEASUREMENTS = Topics.synthetic(STREAM.name), Topics.measurements(STREAM.name)
SECRET = b"nobody may read this in a log"


def test_a_stream_whose_start_nobody_knows_has_a_task() -> None:
    now = STREAM.model_copy(update={"time": STREAM.time.model_copy(update={"start": "now", "clock": "wall"})})
    task: Any = None
    stream_task = PublishStreamTask(task, now, Stops.of([now.name]))
    assert stream_task.first_needed() is None


@pytest.mark.parametrize(
    ("record", "in_thread"),
    [
        (Seed("s", 0, bytes(32)), False),
        (Chunk("s", 0, 0, 1, "", bytes(publish.SMALL_BYTES)), False),
        (Chunk("s", 0, 0, 1, "", bytes(publish.SMALL_BYTES + 1)), True),
        (Chunk("s", 0, 1, 2, "", b"the small rest of a large one"), True),
    ],
    ids=["seed", "small", "large", "end of a large one"],
)
async def test_only_what_may_be_large_is_read_in_a_thread(record: LogRecord, in_thread: bool) -> None:
    nobody: Any = None
    task = PublishStreamTask(nobody, STREAM, Stops.of([STREAM.name]))
    threads = list[int]()

    def read(offset: int, record: LogRecord) -> None:
        threads.append(threading.get_ident())

    task.machine.on_record = read  # type: ignore[method-assign]
    await task._read(0, record)
    assert [each != threading.get_ident() for each in threads] == [in_thread]


@dataclass(frozen=True)
class Record:
    offset: int
    headers: Sequence[tuple[str, bytes]]
    key: bytes = SECRET
    value: bytes = SECRET


def of_steps(*steps: bytes | None) -> list[Record]:
    """A topic of the records of these steps; None: one without a step."""
    return [
        Record(offset, [] if step is None else [(STEP_HEADER, step)], key=b"%d" % offset)
        for offset, step in enumerate(steps)
    ]


def looked(
    monkeypatch: pytest.MonkeyPatch, last: int, topics: Mapping[str, Sequence[Record]], *, showed: bool = True
) -> PublishStreamTask:
    """The task of a stream whose ledger ends at step `last`, once it has looked at its other topics."""

    class End:
        def __init__(self) -> None:
            self.begins = {(topic, 0): 0 for topic in (SYNTHETIC, MEASUREMENTS)}
            self.ends = {place: len(topics.get(place[0], ())) for place in self.begins}

        async def backwards(self, place: tuple[str, int]) -> AsyncIterator[Record]:
            for record in reversed(topics.get(place[0], ())):
                yield record

    @asynccontextmanager
    async def tail(*_: Any) -> AsyncIterator[End]:
        yield End()

    monkeypatch.setattr(publish, "tail", tail)
    nobody: Any = None
    task = PublishStreamTask(nobody, STREAM, Stops.of([STREAM.name]))
    task.machine.last_step = last
    asyncio.run(task._look_behind(nobody, showed=showed))
    return task


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert SECRET.decode() not in caplog.text
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("step", [None, b"abc", b"-1"], ids=["none", "no number", "below 0"])
@pytest.mark.parametrize("topic", [SYNTHETIC, MEASUREMENTS])
def test_a_record_that_the_job_did_not_write_is_named_and_passed_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, topic: str, step: bytes | None
) -> None:
    topics = {SYNTHETIC: of_steps(b"0"), MEASUREMENTS: of_steps(b"0"), topic: of_steps(b"0", step, step)}
    task = looked(monkeypatch, 0, topics)
    said = f"stream {STREAM.name}: the record at offset %d of {topic} names no step: the job did not write it. It is "
    assert warnings(caplog) == [said % offset + "passed over" for offset in (2, 1)]
    assert task.machine._measured == 0


def test_topics_that_end_with_the_ledger_are_no_news(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task = looked(monkeypatch, 1, {SYNTHETIC: of_steps(b"0", b"1"), MEASUREMENTS: []})
    assert warnings(caplog) == []
    assert task.machine._measured == -1


def test_a_step_that_the_ledger_does_not_have_and_a_topic_that_held_nothing_stop_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for topics, reason in (
        ({SYNTHETIC: of_steps(b"0", b"1", None)}, GapError),
        ({SYNTHETIC: of_steps(b"0"), MEASUREMENTS: of_steps(b"0", b"2")}, GapError),
        ({MEASUREMENTS: of_steps(b"0")}, LostTopicError),
    ):
        with pytest.raises(StreamStoppedError) as stopped:
            looked(monkeypatch, 0, topics)
        assert isinstance(stopped.value.__cause__, reason)
    looked(monkeypatch, 0, {MEASUREMENTS: of_steps(b"0")}, showed=False)
