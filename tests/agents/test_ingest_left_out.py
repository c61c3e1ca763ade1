"""Two streams on one source partition: one that fails is left out, and stays where its last committed block ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition

from agents.ingest import source_specs
from agents.ingest_owner import IngestOptions, SourceOwner
from agents.lifecycle.stops import Stops
from agents.metrics import IngestCounters
from agents.protocol.ingest_events import RawRecord
from agents.protocol.ingest_places import Places
from schemas.blocks import Block
from schemas.errors import GapError
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


class Bench:
    def __init__(self) -> None:
        privacy = {"epsilon": 1.0, "unit": "event"}
        tables = [stream_table(name, source="raw.both", privacy=privacy) for name in ("a", "b")]
        config = job_config("localhost:1", Path("unused"), streams=tables, job="both")
        specs = source_specs(config, source_partitions={"a": 1, "b": 1}, audit_partitions=None)
        self.stops = Stops.of(["a", "b"])
        self.owner = SourceOwner(
            config, SOURCE, specs["raw.both"], options=IngestOptions(), counters=IngestCounters(), stops=self.stops
        )
        self.producer = Producer()
        self.owner._producer = self.producer  # type: ignore[assignment]
        self.owner.restored(None, [])

    @classmethod
    def behind(cls) -> Bench:
        """Stream a was left out for a while: its blocks end at 10, those of b at 30."""
        bench = cls()
        for machine, end in zip(bench.owner.machines, (10, 30), strict=True):
            machine.apply(Block(machine.spec.stream, 0, 0, end, -1, {}))
        bench.owner.position = 10
        bench.owner.restored(30, [])
        return bench

    async def take(self, begin: int, end: int) -> None:
        await self.owner.take([record(offset) for offset in range(begin, end)])
        await self.owner.flush()
        await self.owner.settled()

    def covered(self, stream: str) -> list[tuple[int, int]]:
        return [(block.lo, block.hi) for block in self.producer.blocks if block.stream == stream]


def record(offset: int) -> RawRecord:
    value = json.dumps({"at": START_S + offset, "x": 0.5, "y": 0.5}).encode()
    return RawRecord(offset, -1, None, value)


@pytest.mark.parametrize("where", ["take", "seal", "encode"])
def test_a_machine_that_fails_is_left_out_where_its_blocks_end(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.take(0, 10)
        assert bench.producer.places == {"a": 10, "b": 10}
        machine = next(each for each in bench.owner.machines if each.spec.stream == "a")

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

    asyncio.run(scenario())


def test_one_that_was_left_out_catches_up_and_the_other_takes_nothing_twice() -> None:
    async def scenario() -> None:
        bench = Bench.behind()
        await bench.take(10, 20)
        assert (bench.producer.offset, bench.producer.places) == (30, {"": 30, "a": 20, "b": 30})
        await bench.take(20, 40)
        assert (bench.producer.offset, bench.producer.places) == (40, {"": 30, "a": 40, "b": 40})
        assert bench.covered("a") == [(10, 20), (20, 40)]
        assert bench.covered("b") == [(30, 40)]
        assert sum(block.counts["ACCEPTED"] for block in bench.producer.blocks if block.stream == "b") == 10

    asyncio.run(scenario())


def test_a_tick_while_one_catches_up_passes_no_record_over() -> None:
    """The tick of one stream moves the common offset, and must not move a machine that is behind it."""

    async def scenario() -> None:
        bench = Bench.behind()
        bench.owner.tick_at(bench.owner.machines[1], 0, 12)
        bench.owner.reached(12)
        await bench.take(12, 20)
        assert bench.covered("a") == [(10, 20)]
        assert sum(block.counts["ACCEPTED"] for block in bench.producer.blocks if block.stream == "a") == 8

    asyncio.run(scenario())
