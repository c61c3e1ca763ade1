"""The commands that ask a cluster, on the real one."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from agents.kafka.clients import tail
from agents.protocol.partitioner import home_partition
from schemas.blocks import Block
from schemas.config import Config, load_config
from tests.commands import call as call_plainly
from tests.kafka.support import producing

TAXI = Path(__file__).parents[2] / "examples" / "taxi.toml"
FILE = Path(__file__).parents[2] / "examples" / "nyc_taxi" / "taxi_2016_01_sample_20k.csv.gz"


@pytest.fixture
def config(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The taxi example on this cluster, under names of its own."""
    monkeypatch.setenv("PRIVSTREAM_BOOTSTRAP", bootstrap)
    name = f"cli{uuid.uuid4().hex[:8]}"
    text = TAXI.read_text().replace('name = "taxi"', f'name = "{name}"')
    text = text.replace("raw.taxi", f"raw.{name}").replace("audit.taxi", f"audit.{name}")
    text = text.replace('file = "', f'file = "{TAXI.parent}/')
    path = tmp_path / "job.toml"
    path.write_text(text.replace('name = "privstream-demo"', f'name = "{name}-job"'))
    return path


def call(*arguments: object, code: int = 0) -> Any:
    result = call_plainly(*arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


async def one_block(config: Config, partition: int, *, live_from: int, unread: int) -> None:
    """Of a worker that has gone live on a partition of the source, and has not read the last records there."""
    stream = config.streams[0]
    home = home_partition(stream.name, config.kafka.partitions)
    async with tail(config.kafka, [(stream.source, partition)]) as end:
        newest = await end.newest((stream.source, partition))
        assert end.ends[stream.source, partition] == newest.offset + 2, "the marker of a transaction is behind it"
    async with producing(config.kafka.bootstrap) as producer:
        hi = newest.offset + 1 - unread
        value = Block(stream.name, partition, 0, hi, live_from, {}, live_from=live_from).encode()
        await producer.send_and_wait(f"{config.job.name}.blocks", value, key=stream.name.encode(), partition=home)


def test_topics_replay_status_doctor(config: Path) -> None:
    assert {each["fix"] for each in call("topics", config, "--check", code=1)["problems"]}
    [missing] = call("status", config, code=2)["problems"]
    assert " do not exist" in missing["reason"]
    assert "--check" in missing["fix"], "--create makes no source"
    made = call("topics", config, "--create")
    assert not any(name.startswith(("raw.", "audit.")) for name in made["created"])
    assert "--source-partitions" in call("replay", config, FILE, code=2)["problems"][0]["fix"]
    assert len(call("topics", config, "--create", "--source-partitions", 2)["created"]) == 2
    assert call("topics", config, "--create")["created"] == []
    assert call("topics", config, "--check")["ok"]

    done = call("replay", config, FILE, "--limit", 5_000)
    assert (done["rows"], done["rows_before"]) == (5_000, 0)
    assert (
        "2016-01-08T00:00:00"
        in call("replay", config, FILE, "--until", "2016-01-08T12:00", code=2)["problems"][0]["fix"]
    )
    done = call("replay", config, FILE, "--until", "2016-01-11T00:00:00")
    assert (done["step"], done["rows"] + done["left_out"]) == (9, 15_000)
    before = 5_000 + done["rows"]
    done = call("replay", config, FILE)
    assert (done["rows"], done["rows_before"], done["step"]) == (20_000 - before, before, 30)

    (stream,) = call("status", config)["streams"]
    assert (stream["published"], stream["over"], stream["waiting"]) == (-1, -1, 0)  # no worker is up
    assert stream["ingest_lag"] > 10_000
    assert stream["epsilon"] == 1.0

    findings = {each["what"]: each for each in call("doctor", config)["findings"]}
    assert findings["kafka"]["detail"].endswith("Kafka 4.0 or newer")
    assert findings["topics"]["verdict"] == "ok"
    events = [finding for what, finding in findings.items() if what.startswith("events of")]
    assert [each["verdict"] for each in events] == ["ok"]

    live = call("replay", config, FILE, "--then-live")
    assert (live["rows"], live["rows_before"], live["live_from"]) == (0, 20_000, 31)
    assert "has gone live" in call("replay", config, FILE, code=2)["problems"][0]["reason"]
    told = call_plainly("replay", config, FILE, "--then-live")
    assert "is live: steps after" in told.stderr
    name = load_config(config, os.environ).streams[0].name
    assert told.stderr.count(f"{name}: no worker has started it yet") == 1
    assert live["unstarted"] == [name]
    (stream,) = call("status", config)["streams"]
    assert (stream["live"], stream["partitions"]) == (0, 2), "no worker has read it yet"
    loaded = load_config(config, os.environ)
    asyncio.run(one_block(loaded, 0, live_from=31, unread=0))
    (stream,) = call("status", config)["streams"]
    assert (stream["live"], stream["partitions"]) == (1, 2)
    assert stream["ingest_lag"] > 5_000, "of the other partition"
    told = call_plainly("status", config)
    assert "1 of 2 source partitions are live, and no step ends before all are" in told.stderr
    assert " live " in told.stdout
    for unread in (1, 0):
        asyncio.run(one_block(loaded, 1, live_from=31, unread=unread))
        (stream,) = call("status", config)["streams"]
        assert stream["ingest_lag"] == unread, "no marker of a transaction is a record that waits"

    swapped = config.read_text().replace('x = "pickup_longitude"', 'x = "pickup_latitude"')
    config.write_text(swapped.replace('y = "pickup_latitude"', 'y = "dropoff_latitude"'))
    findings = {each["what"]: each for each in call("doctor", config, code=1)["findings"]}
    (event,) = (finding for what, finding in findings.items() if what.startswith("events of"))
    assert event["verdict"] == "problem"
    assert "100% refused: OUTSIDE_DOMAIN of pickup_latitude 9" in event["detail"]
    assert "order of coordinates" in event["fix"]
