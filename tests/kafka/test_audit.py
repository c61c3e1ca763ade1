"""The audit on the real broker: each published step is measured once against held-out events, over a restart too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from prometheus_client import REGISTRY

import agents.worker.audit
from agents.kafka.topics import create_topics
from engines.core.contract import Columns
from engines.core.registry import build_evaluator
from schemas.blocks import Folded
from schemas.config import Config
from schemas.events import TICK_HEADER, encode_tick
from schemas.topics import Topics
from tests.kafka.support import fresh_name, job_config, producing, records_of, stream_table, until, worker

START_S = 1_577_836_800
PARTITIONS = 2


def audited(bootstrap: str, folder: Path) -> Config:
    name = fresh_name("s")
    privacy = {"epsilon": 5.0, "unit": "event"}
    options = {"depth": 8, "initial_steps": 2}
    table = stream_table(name, audit=f"audit.{name}", privacy=privacy, options=options)
    return job_config(bootstrap, folder, streams=[table])


async def feed(config: Config, steps: range, *, events: int = 200) -> None:
    """The same events to source and audit topic, all in one quarter of the square."""
    stream = config.streams[0]
    assert stream.audit is not None
    async with producing(config.kafka.bootstrap) as producer:
        for step in steps:
            for topic in (stream.source, stream.audit):
                for number in range(events):
                    at = START_S + 60 * step + number % 60
                    place = {"x": (number % 32) / 64, "y": (number // 32 % 32) / 64}
                    value = orjson.dumps({"user": f"u{number}", "at": at, **place})
                    await producer.send(topic, value, partition=number % PARTITIONS)
                await producer.flush()
                for partition in range(PARTITIONS):
                    header = (TICK_HEADER, encode_tick(step, row=0, source="t"))
                    await producer.send_and_wait(topic, b"", partition=partition, headers=[header])


async def utility(config: Config) -> list[dict[str, Any]]:
    records = await records_of(config.kafka.bootstrap, Topics.utility(config.streams[0].name))
    return [orjson.loads(record.value) for record in records]


async def measured(config: Config, steps: int) -> None:
    await until(lambda: utility(config), lambda found: len({entry["step"] for entry in found}) >= steps)


async def test_every_step_is_measured_and_a_restart_goes_on(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents.worker.audit, "CHECKPOINT_S", 0.0)
    config = audited(bootstrap, tmp_path)
    await create_topics(config, source_partitions=PARTITIONS)
    await feed(config, range(4))
    async with worker(config):
        await measured(config, 4)
    await feed(config, range(4, 7))
    async with worker(config):
        await measured(config, 7)
    entries = {entry["step"]: entry for entry in await utility(config)}
    assert sorted(entries) == list(range(7))
    assert [entries[step]["events"] for step in range(7)] == [200] * 7
    assert [entries[step]["events_total"] for step in range(7)] == [200 * (step + 1) for step in range(7)]
    assert [entries[step]["gathered"] for step in range(7)] == [True] + [False] * 6
    assert entries[6]["counts"]["ACCEPTED"] == 7 * 200
    assert entries[6]["synthetic_points"] > 0
    # A replay is as old as its file, and never late.
    assert not REGISTRY.get_sample_value("privstream_late_publications_total", {"stream": config.streams[0].name})
    # The same once more, from nothing but what was sent and what any reader of the public topic holds.
    assert entries[6]["metrics"] == await expected(config, steps=7)


async def expected(config: Config, *, steps: int) -> dict[str, float]:
    stream = config.streams[0]
    evaluator = build_evaluator(stream)
    x = np.array([number % 32 / 64 for number in range(200)] * steps)
    y = np.array([number // 32 % 32 / 64 for number in range(200)] * steps)
    keys, _ = evaluator.domain.encode(Columns({"x": x, "y": y}, {}, np.ones(len(x), np.int8)))
    alive: dict[bytes, Any] = {}
    for record in await records_of(config.kafka.bootstrap, Topics.synthetic(stream.name)):
        if record.value is None:
            alive.pop(record.key, None)
        else:
            alive[record.key] = orjson.loads(record.value)
    columns = {name: [point[name] for point in alive.values()] for name in ("x", "y")}
    return dict(evaluator.measure(Folded.from_keys(keys), columns))
