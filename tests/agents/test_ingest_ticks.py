"""Wall-clock ticks stand at their offset, however Kafka cuts the fetch. No broker: the owner is fed by hand."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from agents.ingest import source_specs
from agents.ingest_owner import IngestCounters, IngestOptions, SourceOwner
from agents.protocol.ingest_events import RawRecord
from tests.kafka.support import job_config, stream_table

START_S = 1_577_836_800
RECORDS = 12


def owner_of() -> SourceOwner:
    table = stream_table(
        "s",
        privacy={"epsilon": 1.0, "unit": "event"},
        time={"field": "at", "format": "s", "start": "2020-01-01T00:00:00", "step": "60s", "clock": "wall"},
    )
    config = job_config("localhost:1", Path("unused"), streams=[table], job="ticks")
    specs = source_specs(config, source_partitions={"s": 1}, audit_partitions=None)
    source = TopicPartition("raw.s", 0)
    return SourceOwner(config, source, specs[source.topic], options=IngestOptions(), counters=IngestCounters())


def record(offset: int) -> RawRecord:
    """Every event is of step 0, so those after its tick are late and join step 1."""
    value = json.dumps({"at": START_S + offset, "x": 0.5, "y": 0.5}).encode()
    return RawRecord(offset, (START_S + offset) * 1000, None, value)


def steps_of(cuts: list[int], tick_at: int) -> dict[int, int]:
    async def scenario() -> Any:
        owner = owner_of()
        (machine,) = owner.machines
        owner.awaited[machine] = (0, tick_at)
        edges = sorted({0, *cuts, RECORDS})
        for low, high in pairwise(edges):
            await owner.take([record(offset) for offset in range(low, high)])
            owner.reached(high)
        return machine.seal()[0]

    block = asyncio.run(scenario())
    return {step: folded.total for step, folded in block.steps.items()}


@given(cuts=st.lists(st.integers(1, RECORDS - 1), max_size=6), tick_at=st.integers(0, RECORDS))
def test_a_tick_stands_at_its_offset_however_the_fetch_is_cut(cuts: list[int], tick_at: int) -> None:
    expected = {step: count for step, count in ((0, tick_at), (1, RECORDS - tick_at)) if count}
    assert steps_of(cuts, tick_at) == expected


def test_a_failed_transaction_is_noticed_even_if_nothing_follows() -> None:
    class Failing:
        async def begin_transaction(self) -> None: ...

        async def send(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("the broker refused")

    async def scenario() -> None:
        owner = owner_of()
        owner._producer = Failing()  # type: ignore[assignment]
        (machine,) = owner.machines
        owner.awaited[machine] = (0, 2)
        await owner.take([record(0), record(1)])
        owner.reached(2)
        for _ in range(20):
            await owner.flush_if_due()
            await asyncio.sleep(0.001)

    with pytest.raises(RuntimeError, match="the broker refused"):
        asyncio.run(scenario())
