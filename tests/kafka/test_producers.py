"""Each line that is printed for producers puts every user where the job looks for them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest
from aiokafka.admin import NewTopic

from agents.local.producers import lines_hold, producers, written_as
from agents.protocol.partitioner import partitions_of
from agents.protocol.userhash import IdBytes
from schemas.config.stream import Stream
from tests.kafka.producers import produce
from tests.kafka.support import create, fresh_name, job_config, records_of, stream_table

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
USERS = [f"00{n}" for n in range(40)]
CLIENTS = ["kcat", "Java", "confluent-kafka", "aiokafka"]


def stream_of(name: str, **overrides: object) -> Stream:
    return job_config("b:1", Path(), streams=[stream_table(name, **overrides)]).streams[0]


# Java's line, which takes seconds, is tried in tests/start/test_first_hour.py.
@pytest.mark.parametrize("client", [client for client in CLIENTS if client != "Java"])
@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
async def test_a_printed_line_puts_each_user_where_the_job_looks(
    client: str, partitioner: Literal["murmur2", "crc32"], bootstrap: str, tmp_path: Path
) -> None:
    stream = stream_of(fresh_name("line"), partitioner=partitioner)
    await create(bootstrap, NewTopic(stream.source, PARTITIONS, 1))
    events = [(user, f'{{"user": "{user}", "n": {n}}}') for n, user in enumerate(USERS)]
    await produce(producers(stream, bootstrap)[client], stream.source, events, tmp_path)
    found = {
        (record.key.decode(), record.value.decode()): partition
        for partition in range(PARTITIONS)
        for record in await records_of(bootstrap, stream.source, partition=partition)
    }
    homes = partitions_of(IdBytes.from_ids(USERS), partitioner=partitioner, partitions=PARTITIONS)
    assert found == dict(zip(events, homes.tolist(), strict=True))


def test_only_clients_that_can_are_named() -> None:
    assert list(producers(stream_of("s"), "b:1")) == CLIENTS
    assert "Java" not in producers(stream_of("s", partitioner="crc32"), "b:1")
    packed = stream_of("s", format="msgpack")
    assert (lines_hold(packed), list(producers(packed, "b:1"))) == ("", CLIENTS[2:])
    cells = stream_of("s", format="csv", csv={"columns": ["user", "at", "x", "y"]})
    assert list(producers(cells, "b:1")) == CLIENTS
    events = stream_of("s", privacy={"epsilon": 1.0, "unit": "event"})
    for placed in (events, stream_of("s", partitioner="any")):
        assert (lines_hold(placed), written_as(placed)) == ("an event", "JSON")
        for line in producers(placed, "b:1").values():
            assert not re.search("partitioner|key|-K", line), "no producer need place anybody"
    by_key = {"epsilon": 1.0, "unit": "user", "user": "$key", "max_contributions": 3}
    assert "-K" in producers(stream_of("s", partitioner="any", privacy=by_key), "b:1")["kcat"]


def test_the_documentation_prints_the_same_lines() -> None:
    page = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")
    stream = stream_of("rides", privacy={"epsilon": 1.0, "unit": "user", "user": "rider", "max_contributions": 3})
    [printed] = re.findall(rf"^stream rides: write {written_as(stream)} to raw.rides\n((?:  \S.*\n)+)", page, re.M)
    lines = dict(re.split("  +", line.strip(), maxsplit=1) for line in printed.splitlines()[: len(CLIENTS)])
    assert lines == producers(stream, "localhost:9092")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for client, part in (("kcat", r"-X partitioner=murmur2_random -K '\t'"), ("confluent-kafka", '"murmur2_random"')):
        assert part in readme
        assert part in lines[client]
