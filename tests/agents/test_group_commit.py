"""Streams of one partition are committed together, and none of them waits for another one that computes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.kafka.lifecycle.stops import STOPPED
from agents.protocol.release.candidates import Compute
from agents.protocol.release.stepper import Stepper
from agents.worker import engine
from agents.worker.engine import EngineTask
from schemas.errors import ForkError
from schemas.releases import Candidate, Encoded, Seed, decode_log_record
from tests.agents.test_engine_trim import Producer
from tests.agents.test_stream_stops_alone import Bench, block
from tests.kafka.support import until

NAMES = ("a", "b", "c")


class Grouping(Producer):
    """Remembers what each transaction holds: kind, stream and step of every record."""

    def __init__(self, log: list[Any]) -> None:
        super().__init__(log)
        self.transactions: list[list[tuple[str, str, int]]] = []

    async def commit_transaction(self) -> None:
        entries = [decode_log_record(value) for _, value in self.open]
        self.transactions.append(
            [("seed" if isinstance(each, Seed) else "candidate", each.stream, each.step) for each in entries]
        )
        await super().commit_transaction()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    STOPPED.clear()
    bench = Bench(tmp_path, monkeypatch, NAMES)
    bench.producer = Grouping(bench.log)
    yield bench
    STOPPED.clear()


async def opened(bench: Bench) -> EngineTask:
    task = EngineTask(bench.job, bench.table, 0)
    await task.opened()
    return task


def events(bench: Bench, *named: tuple[str, int]) -> list[Any]:
    made = []
    for offset, (key, value) in enumerate(block(*each) for each in named):
        message = SimpleNamespace(offset=offset, key=key, value=value)
        made.append(SimpleNamespace(message=message, value=value, ack=lambda at=offset: bench.acked.append(at)))
    return made


async def test_what_is_due_together_is_committed_together(bench: Bench) -> None:
    task = await opened(bench)
    first, *others = events(bench, *((name, step) for step in range(2) for name in NAMES))
    for event in others:
        task.queue.put_nowait(event)
    await task.handle(first)
    assert isinstance(bench.producer, Grouping)
    assert bench.producer.transactions[0] == [("seed", name, 0) for name in NAMES]
    assert all(bench.answered(name) == bench.seeds(name) == [0, 1] for name in NAMES)
    # Whose computing takes longer goes by itself; twelve are those of one stream after the other.
    assert len(bench.producer.transactions) <= 10
    assert bench.acked == list(range(2 * len(NAMES)))
    assert all(bench.table.load(0, name).step == 1 for name in NAMES)


@pytest.mark.parametrize("where", ["compute", "fold"])
async def test_a_stream_that_fails_in_a_group_leaves_the_transaction_of_the_others_whole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    compute, fold = Stepper.compute, Stepper.fold

    def failing(self: Stepper, *given: Any) -> Any:
        if self.stream.name == "b":
            raise ZeroDivisionError
        return (compute if where == "compute" else fold)(self, *given)

    monkeypatch.setattr(Stepper, where, failing)
    task = await opened(bench)
    first, *others = events(bench, *((name, step) for step in range(3) for name in NAMES))
    for event in others:
        task.queue.put_nowait(event)
    await task.handle(first)
    assert [stop.stream for stop in bench.job.stops] == ["b"]
    assert bench.answered("a") == bench.answered("c") == [0, 1, 2]
    assert bench.answered("b") == []
    assert sorted(bench.acked) == list(range(9))


async def test_nothing_is_committed_of_a_stream_that_stops_while_it_waits_for_a_transaction(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another part of it, say its publisher, found two answers while the transaction of others was open."""

    async def at_once(_: EngineTask, effect: Compute) -> Encoded:
        return effect.work()

    commit = bench.producer.commit_transaction

    async def stopping() -> None:
        await commit()
        if bench.answered("a") and not bench.job.stops.stopped("b"):
            bench.job.stops.add("b", "publish", 0, ForkError("two answers"))

    monkeypatch.setattr(EngineTask, "_compute", at_once)
    monkeypatch.setattr(engine, "COMMIT_BYTES", 1)  # one candidate a transaction
    monkeypatch.setattr(bench.producer, "commit_transaction", stopping)
    task = await opened(bench)
    first, *others = events(bench, *((name, 0) for name in NAMES))
    for event in others:
        task.queue.put_nowait(event)
    await task.handle(first)
    assert bench.answered("a") == bench.answered("c") == [0]
    assert bench.seeds("b") == [0]
    assert bench.answered("b") == []


async def test_a_stream_waits_for_no_other_that_computes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    compute, ended = Stepper.compute, threading.Event()

    def slow(self: Stepper, seed: bytes) -> Candidate:
        if self.stream.name == "a":
            assert ended.wait(60)
        return compute(self, seed)

    monkeypatch.setattr(Stepper, "compute", slow)
    task = await opened(bench)
    first, *others = events(bench, *((name, step) for step in range(3) for name in NAMES))
    working = asyncio.ensure_future(task.handle(first))
    for event in others:
        await task.queue.put(event)
    await until(lambda: bench.answered("b") == bench.answered("c") == [0, 1, 2])
    assert bench.answered("a") == []
    assert bench.acked == [], "events are acknowledged in their order"
    ended.set()
    await working
    assert bench.answered("a") == [0, 1, 2], "what came meanwhile was kept"
    assert bench.acked == list(range(9))


async def test_no_record_is_read_while_many_wait_for_a_stream(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    compute, ended = Stepper.compute, threading.Event()

    def slow(self: Stepper, seed: bytes) -> Candidate:
        assert ended.wait(60)
        return compute(self, seed)

    monkeypatch.setattr(Stepper, "compute", slow)
    monkeypatch.setattr(engine, "WAITING_BYTES", 2 * len(block("a", 1)[1]) - 9)
    task = await opened(bench)
    first, *others = events(bench, *(("a", step) for step in range(6)))
    for event in others:
        task.queue.put_nowait(event)
    working = asyncio.ensure_future(task.handle(first))
    await until(lambda: bench.seeds("a") == [0])
    await asyncio.sleep(0.05)
    assert task.queue.qsize() == 3
    ended.set()
    await working
    assert bench.answered("a") == list(range(6))
    assert task.queue.empty()


async def test_a_partition_that_is_given_up_drops_what_is_computed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, ended = Stepper.compute, threading.Event()

    def slow(self: Stepper, seed: bytes) -> Candidate:
        assert ended.wait(60)
        return compute(self, seed)

    monkeypatch.setattr(Stepper, "compute", slow)
    task = await opened(bench)
    [first] = events(bench, ("a", 0))
    working = asyncio.ensure_future(task.handle(first))
    await until(lambda: bench.seeds("a") == [0])
    working.cancel()
    ended.set()
    with pytest.raises(asyncio.CancelledError):
        await working
    await asyncio.sleep(0.05)
    assert bench.answered("a") == []
    await bench.life([block("a", 0)])
    assert bench.answered("a") == bench.seeds("a") == [0], "with the seed that was committed"
