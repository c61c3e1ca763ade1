"""Trips end to end on the real broker: raw points in, in any interleaving over partitions; synthetic trips out."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agents.kafka.topics import create_topics
from agents.protocol.ingest.dead_letters import DeadLetter
from agents.protocol.partitioner import partitions_of
from agents.protocol.userhash import IdBytes
from schemas.blocks import Block
from schemas.config import Config
from schemas.events import TICK_HEADER, encode_tick
from schemas.releases import STEP_HEADER
from schemas.topics import Topics
from tests.kafka.ingest_support import START_S, STEP_S
from tests.kafka.support import fresh_name, job_config, producing, records_of, stream_table, until, worker

PARTITIONS = 2
STEPS = 5
CLOSED = [20, 11, 9, 8, 0]
"""Trips that close in each step, see `sent`. At so large an epsilon the number that comes out is off by two or more
with a probability below 1e-8 (the Laplace noise of the number of trips alone has scale 0.1)."""


def configured(bootstrap: str, folder: Path) -> Config:
    folder.mkdir(exist_ok=True)
    (folder / "user-key").write_bytes(b"sixteen secret bytes or more")
    table = stream_table(
        fresh_name("trips"),
        engine="trajectory",
        privacy={
            "epsilon": 1000.0,
            "unit": "user",
            "user": "user",
            "max_contributions": 2,
            "user_key_file": str(folder / "user-key"),
        },
        domain={"kind": "trips", "trip": "trip", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0], "end": "last"},
        options={"idle": "2m", "longest": "3m", "side": 8},
    )
    return job_config(bootstrap, folder, streams=[table])


def point(user: str, trip: object, second: float, at: float, **more: Any) -> dict[str, Any]:
    return {"user": user, "trip": trip, "at": START_S + second, "x": at, "y": at, **more}


def sent(step: int) -> Iterator[dict[str, Any] | bytes]:
    """What arrives in a step, everybody's points by turns."""
    if step == 0:
        for place in (0.9, 0.1, 0.5):  # out of order by time, too
            for number in range(20):
                yield point(f"u{number}", "first", 50 * place, place, last=place == 0.9)
        yield from (point(f"u{number}", 7, 30, 0.2) for number in range(20, 30))
        yield from (point(f"unfinished {number}", 1, 30, 0.3) for number in range(9))
        yield b"{"
        yield {"user": "u0", "at": START_S}
        yield point("u0", 1.5, 30, 0.5)
        yield point("u0", "second", 30, 7.0)
        yield from (point(f"u{number}", "second", 30, 0.5) for number in range(8))
        yield point("u0", "third", 31, 0.5)
    if step == 1:
        # The same ids of trips as others have; second trips go on and never end.
        yield from (point(f"u{number}", 7, STEP_S + number, 0.8, last=True) for number in range(20, 30))
        yield point("single", 7, STEP_S + 5, 0.4, last=True)
        yield from (point(f"u{number}", "second", STEP_S + 30, 0.6) for number in range(8))
        yield point("u1", "first", STEP_S + 30, 0.6)  # after its end: dropped, not refused
    if step == 4:
        yield point("under way", 1, 4 * STEP_S + 1, 0.5)


def home(record: dict[str, Any] | bytes) -> int:
    user = record["user"] if isinstance(record, dict) else "u0"
    return int(partitions_of(IdBytes.from_ids([user]), partitioner="murmur2", partitions=PARTITIONS)[0])


async def feed(config: Config) -> None:
    source = config.streams[0].source
    async with producing(config.kafka.bootstrap) as producer:
        for step in range(STEPS):
            for record in sent(step):
                value = record if isinstance(record, bytes) else json.dumps(record).encode()
                await producer.send(source, value, partition=home(record))
            if step == 0:
                stray = point("u5", "first", 40, 0.5)
                await producer.send(source, json.dumps(stray).encode(), partition=1 - home(stray))
            await producer.flush()
            for partition in range(PARTITIONS):
                header = (TICK_HEADER, encode_tick(step, row=0, source="t"))
                await producer.send_and_wait(source, b"", partition=partition, headers=[header])


async def released(config: Config) -> dict[int, list[dict[str, Any]]]:
    by_step: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for record in await records_of(config.kafka.bootstrap, Topics.synthetic(config.streams[0].name)):
        ((name, step),) = record.headers
        assert name == STEP_HEADER
        by_step[int(step)].append(json.loads(record.value))
    return by_step


async def test_points_become_trips_and_what_is_wrong_with_them_is_told(bootstrap: str, tmp_path: Path) -> None:
    config = configured(bootstrap, tmp_path)
    topics = config.topics
    await create_topics(config, source_partitions=PARTITIONS)
    await feed(config)

    async with worker(config):
        await until(
            lambda: records_of(bootstrap, Topics.ledger(config.streams[0].name)), lambda found: len(found) >= STEPS
        )
    by_step = await released(config)
    blocks = [
        Block.decode(record.value)
        for partition in range(config.kafka.partitions)
        for record in await records_of(bootstrap, topics.blocks, partition=partition)
    ]
    letters = [DeadLetter.decode(record.value) for record in await records_of(bootstrap, topics.dead_letters)]

    names: set[str] = set()
    for step, expected in enumerate(CLOSED):
        trips: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for record in by_step[step]:
            assert set(record) == {"trip", "point", "x", "y", "at"}
            assert 0 <= record["x"] < 1 > record["y"] >= 0
            trips[record["trip"]].append(record)
        assert abs(len(trips) - expected) <= 2
        assert not names & trips.keys()
        names |= trips.keys()
        assert all([record["point"] for record in of] == list(range(len(of))) for of in trips.values())
    bad = Counter(NOT_JSON=1, MISSING_FIELD=1, WRONG_TYPE=1, OUTSIDE_DOMAIN=1, WRONG_PARTITION=1)
    assert Counter(letter.reason.name for letter in letters) == bad
    # u0's third trip is counted, and no dead letter: the bound at work is no fault of the record.
    counts = sum((Counter(block.counts) for block in blocks), Counter())
    assert counts["OVER_BOUND"] == 1
