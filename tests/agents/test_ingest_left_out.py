"""Two streams on one source partition: one that fails is left out, and stays where its last committed block ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from agents.kafka.lifecycle.stops import Stops
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.places import Places
from agents.worker.ingest import restore
from agents.worker.ingest.counters import IngestCounters
from agents.worker.ingest.partition_task import IngestOptions, SourceTask
from agents.worker.ingest.specs import source_specs
from schemas.blocks import Block
from schemas.errors import BrokerError, GapError
from tests.kafka.ingest_support import START_S
from tests.kafka.support import job_config, stream_table

SOURCE = TopicPartition("raw.both", 0)


class Producer:
    """Commits to lists. `fail`: the next transaction does not come about."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.offset, self.places = 0, Places()
        self._open: list[Block] = []
        self._offsets: Any = None

    async def begin_transaction(self) -> None:
        self._open = []

    async def send(self, topic: str, value: bytes, *, key: bytes, partition: int | None) -> Any:
        self._open.append(Block.decode(value))
        done = asyncio.get_running_loop().create_future()
        done.set_result(type("Metadata", (), {"offset": len(self.blocks) + len(self._open) - 1}))
        return done

    async def send_offsets_to_transaction(self, offsets: Any, group: str) -> None:
        self._offsets = offsets[SOURCE]

    async def commit_transaction(self) -> None:
        self.blocks += self._open
        self.offset, self.places = self._offsets.offset, Places.decode(self._offsets.metadata)


class Consumer:
    """What a restore asks of Kafka's: the group stands where the producer committed."""

    def __init__(self, producer: Producer | None) -> None:
        self._producer = producer
        self._coordinator = self
        self.sought = -1

    async def fetch_committed_offsets(self, sources: Any) -> Any:
        if self._producer is None:
            return {}
        return {SOURCE: OffsetAndMetadata(self._producer.offset, self._producer.places.encode())}

    async def beginning_offsets(self, sources: Any) -> Any:
        return {SOURCE: 0}

    def seek(self, source: TopicPartition, offset: int) -> None:
        self.sought = offset


class Bench:
    def __init__(self) -> None:
        privacy = {"epsilon": 1.0, "unit": "event"}
        tables = [stream_table(name, source="raw.both", privacy=privacy) for name in ("a", "b")]
        config = job_config("localhost:1", Path("unused"), streams=tables, job="both")
        self.config = config
        self.specs = specs = source_specs(config, source_partitions={"a": 1, "b": 1}, audit_partitions=None)
        self.stops = Stops.of(["a", "b"])
        self.task = SourceTask(
            config, SOURCE, specs["raw.both"], options=IngestOptions(), counters=IngestCounters(), stops=self.stops
        )
        self.producer = Producer()
        self.task._producer = self.producer
        self.task.restored(None, [])

    @classmethod
    def behind(cls) -> Bench:
        """Stream a was left out for a while: its blocks end at 10, those of b at 30."""
        bench = cls()
        for machine, end in zip(bench.task.clocked, (10, 30), strict=True):
            machine.apply(Block(machine.spec.stream, 0, 0, end, -1, {}))
        bench.task.position, bench.task.places = 10, Places()
        bench.task.restored(30, [])
        return bench

    async def restart(self, monkeypatch: pytest.MonkeyPatch, *, stopped: str = "", expired: bool = False) -> Consumer:
        """A new worker, which reads back what was committed. `stopped`: a stream whose records cannot be read."""
        self.stops = Stops.of(["a", "b"])
        task = SourceTask(
            self.config, SOURCE, self.specs[SOURCE.topic], options=IngestOptions(), counters=IngestCounters(),
            stops=self.stops,
        )  # fmt: skip
        by_stream = {machine.spec.stream: machine for machine in task.clocked}

        async def fold(*_: Any) -> None:
            for at, block in enumerate(self.producer.blocks):
                with task.serving(by_stream[block.stream]):
                    by_stream[block.stream].apply(block, at=at)
            if stopped:
                with task.serving(by_stream[stopped]):
                    raise GapError("a foreign record")

        async def fence() -> None:
            task._producer = self.producer

        monkeypatch.setattr(task, "fence", fence)
        monkeypatch.setattr(restore, "_fold_blocks", fold)
        consumer = Consumer(None if expired else self.producer)
        await restore.restore(self.config, consumer, [task])
        self.task = task
        return consumer

    async def take(self, begin: int, end: int) -> None:
        await self.task.take([record(offset) for offset in range(begin, end)])
        await self.task.flush()
        await self.task.settled()

    def covered(self, stream: str) -> list[tuple[int, int]]:
        return [(block.lo, block.hi) for block in self.producer.blocks if block.stream == stream]


def record(offset: int) -> RawRecord:
    value = json.dumps({"at": START_S + offset, "x": 0.5, "y": 0.5}).encode()
    return RawRecord(offset, -1, None, value)


async def test_a_commit_that_failed_is_noticed_though_nothing_follows() -> None:
    async def fails() -> None:
        raise BrokerError("no")

    task = Bench().task
    assert not task.due(1)
    task._running = asyncio.create_task(fails())
    await asyncio.wait([task._running])
    assert task.due(1)
    with pytest.raises(BrokerError):
        await task.flush_if_due()


@pytest.mark.parametrize("where", ["take", "seal", "encode"])
async def test_a_machine_that_fails_is_left_out_where_its_blocks_end(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    bench = Bench()
    await bench.take(0, 10)
    assert bench.producer.places == {"a": 10, "b": 10}
    machine = next(each for each in bench.task.clocked if each.spec.stream == "a")

    def fail(*_: Any) -> Any:
        raise GapError("a gap")

    if where == "encode":
        encode = Block.encode
        monkeypatch.setattr(Block, "encode", lambda self: fail() if self.stream == "a" else encode(self))
    else:
        monkeypatch.setattr(machine, where, fail)
    await bench.take(10, 20)
    await bench.take(20, 30)
    assert [stop.stream for stop in bench.stops] == ["a"]
    assert bench.covered("a") == [(0, 10)]
    assert bench.covered("b") == [(0, 10), (10, 20), (20, 30)]
    assert (bench.producer.offset, bench.producer.places) == (30, {"a": 10, "b": 30})


async def test_one_that_was_left_out_catches_up_and_the_other_takes_nothing_twice() -> None:
    bench = Bench.behind()
    await bench.take(10, 20)
    assert (bench.producer.offset, bench.producer.places) == (30, {"": 30, "a": 20, "b": 30})
    await bench.take(20, 40)
    assert (bench.producer.offset, bench.producer.places) == (40, {"": 30, "a": 40, "b": 40})
    assert bench.covered("a") == [(10, 20), (20, 40)]
    assert bench.covered("b") == [(30, 40)]
    assert sum(block.counts["ACCEPTED"] for block in bench.producer.blocks if block.stream == "b") == 10


async def test_a_tick_while_one_catches_up_passes_no_record_over() -> None:
    """The tick of one stream moves the common offset, and must not move a machine that is behind it."""
    bench = Bench.behind()
    bench.task.awaited.put(bench.task.clocked[1], 0, 12)
    bench.task.reached(12)
    await bench.take(12, 20)
    assert bench.covered("a") == [(10, 20)]
    assert sum(block.counts["ACCEPTED"] for block in bench.producer.blocks if block.stream == "a") == 8


def failing(*_: Any) -> Any:
    raise GapError("a gap")


async def test_a_stream_that_stops_on_its_first_records_misses_none_of_them_when_it_is_put_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has no block that would tell where it was."""
    bench = Bench()
    with monkeypatch.context() as patch:
        patch.setattr(bench.task.clocked[0], "take", failing)
        await bench.take(0, 30)
    assert bench.covered("a") == []
    assert (bench.producer.offset, bench.producer.places) == (30, {"new:a": 0, "b": 30})
    assert (await bench.restart(monkeypatch)).sought == 0
    await bench.take(0, 40)
    for stream in ("a", "b"):
        accepted = [block.counts["ACCEPTED"] for block in bench.producer.blocks if block.stream == stream]
        assert sum(accepted) == 40, f"{stream}: each event once"
    assert bench.producer.places == {"a": 40, "b": 40}


async def test_a_stream_that_is_refused_at_its_first_start_begins_where_the_others_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    await bench.restart(monkeypatch, stopped="a", expired=True)  # there was never an offset
    await bench.take(0, 30)
    await bench.restart(monkeypatch, stopped="a")  # and still
    await bench.take(30, 40)
    assert bench.covered("a") == []
    assert (await bench.restart(monkeypatch)).sought == 0
    await bench.take(0, 50)
    assert bench.covered("a") == [(0, 50)]
    assert bench.covered("b") == [(0, 30), (30, 40), (40, 50)]


async def test_blocks_of_a_stream_that_began_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its users would be counted again from nothing: what is noted as new is so only until its first block."""
    bench = Bench()
    await bench.restart(monkeypatch, expired=True)
    await bench.take(0, 30)
    bench.producer.blocks = [block for block in bench.producer.blocks if block.stream == "b"]
    await bench.restart(monkeypatch)
    assert [stop.stream for stop in bench.stops] == ["a"]


async def test_when_offsets_have_expired_each_stream_goes_on_where_its_blocks_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The job was down for longer than offsets.retention.minutes, and one stream had stopped before."""
    bench = Bench()
    await bench.take(0, 10)
    with monkeypatch.context() as patch:
        patch.setattr(bench.task.clocked[0], "take", failing)
        await bench.take(10, 30)
    assert (await bench.restart(monkeypatch, stopped="a", expired=True)).sought == 30
    assert "group both-ingest has no offset" in caplog.text
    await bench.take(30, 40)  # while nobody has put right what had stopped it
    assert (await bench.restart(monkeypatch)).sought == 10
    assert not list(bench.stops)
    await bench.take(10, 40)
    assert bench.covered("a") == [(0, 10), (10, 40)]
    assert bench.covered("b") == [(0, 10), (10, 30), (30, 40)]


async def test_places_that_are_too_many_are_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Places, "encode", lambda _: "")
    bench = Bench()
    await bench.take(0, 10)
    await bench.take(10, 20)
    assert caplog.text.count("more than can be noted") == 1
