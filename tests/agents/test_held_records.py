"""What a partition task holds of the records that it is given: no value for longer than it takes to read it, and
nothing at all of streams that it does not serve. Where a stream has stopped, records come for as long as nobody looks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from agents.protocol.release.candidates import StreamCandidates
from agents.worker import engine
from agents.worker.partition_tasks import AckList
from schemas.blocks import Block
from schemas.errors import GapError
from schemas.releases import LogRecord, Seed
from tests.agents.test_engine_trim import reading
from tests.agents.test_stream_stops_alone import Bench, block, both
from tests.agents.test_streams_of_others import Partition, event

STEPS = 4
BATCH = 3


def of_a_stopped_stream() -> list[tuple[bytes | None, bytes]]:
    return [block("a", 0), block("a", 1, lo=25), *(block("a", step) for step in range(2, STEPS))]


def of_a_stream_that_is_not_configured() -> list[tuple[bytes | None, bytes]]:
    return [block("c", step) for step in range(STEPS)]


def unreadable() -> list[tuple[bytes | None, bytes]]:
    return [(b"a", b"of another program")] * STEPS


@pytest.mark.parametrize("records", [of_a_stopped_stream, of_a_stream_that_is_not_configured, unreadable])
async def test_the_engine_acknowledges_at_once_what_it_does_not_need(bench: Bench, records: Any) -> None:
    """Also where no other stream comes further meanwhile."""
    await bench.life(records())
    assert sorted(bench.acked) == list(range(len(records())))


async def test_the_engine_acknowledges_at_once_what_is_in_its_state(bench: Bench) -> None:
    await bench.life(both(range(STEPS)))
    bench.acked.clear()
    await bench.life([block("a", 0)])
    assert bench.acked == [0]
    bench.acked.clear()
    open_step = [*both(range(STEPS)), (b"a", Block("a", 0, 10 * STEPS, 10 * STEPS + 5, STEPS - 1, {}).encode())]
    await bench.life(open_step)
    assert bench.acked == list(range(2 * STEPS)), "what belongs to a step that is open waits"


@pytest.mark.parametrize("role", ["publish", "audit"])
@pytest.mark.parametrize("stream", ["a", "c"])
async def test_publisher_and_audit_acknowledge_at_once_what_they_do_not_need(
    partition: Partition, role: Literal["publish", "audit"], stream: str
) -> None:
    task: Any = partition.publisher() if role == "publish" else partition.audit()
    acked: list[int] = []

    def value(step: int) -> bytes:
        lo = 10 * step
        return (
            Seed(stream, step, bytes(32)).encode()
            if role == "publish"
            else Block(stream, 0, lo, lo + 10, step, {}).encode()
        )

    if stream == "a":
        await task.handle(event(0, "a", value(0), acked))
        assert not acked, "it is served"
        with pytest.raises(GapError):  # the last one
            partition.job.stops.add("a", "publish", 0, GapError("stream a"))
    for step in range(1, STEPS):
        await task.handle(event(step, stream, value(step), acked))
    assert not task._acks._held
    assert sorted(acked) == list(range(0 if stream == "a" else 1, STEPS))


def test_what_is_held_for_its_acknowledgement_holds_no_value() -> None:
    acks, acked = AckList(), list[int]()
    held = event(0, "a", b"a megabyte", acked)
    acks.hold("a", 0, held)
    assert held.value is held.message.value is None, "Faust holds the message too, until it is acknowledged"
    acks.settle({"a": 1}.get)
    assert acked == [0]


async def test_the_release_log_is_read_batch_by_batch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows for as long as a stream of the partition has stopped."""
    taken: list[int] = []
    read = StreamCandidates.read

    def counting(self: StreamCandidates, log: list[tuple[int, LogRecord]]) -> None:
        read(self, log)
        taken.extend(offset for offset, _ in log)

    await bench.life(both(range(STEPS)))

    @asynccontextmanager
    async def watched(*_: Any) -> AsyncIterator[Any]:
        async with reading(bench.log, BATCH) as log:

            async def batches() -> AsyncIterator[list[Any]]:
                given: list[int] = []
                async for records in log.read():
                    assert sorted(taken) == given, "what was given before is taken in"
                    yield records
                    given += [record.offset for record in records]

            yield SimpleNamespace(beginning=0, read=batches)

    monkeypatch.setattr(engine, "log_reader", watched)
    monkeypatch.setattr(StreamCandidates, "read", counting)
    await bench.life([])
    assert sorted(taken) == list(range(len(bench.log))) == list(range(4 * STEPS))
