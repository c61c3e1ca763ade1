"""A stream that a real worker has run on the broker: raw events in, public topics out; what readers' tests read."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from agents.kafka.topics import create_topics
from agents.protocol.partitioner import partitions_of
from agents.protocol.userhash import IdBytes
from schemas.config import Config
from schemas.events import TICK_HEADER, encode_tick
from schemas.releases import STEP_HEADER, Candidate, PublicRecord
from schemas.topics import Topics
from tests.consume.runs import records_of as of_step
from tests.kafka.ingest_support import START_S, STEP_S
from tests.kafka.support import fresh_name, job_config, producing, records_of, stream_table, until, worker

PARTITIONS = 2


def places(steps: int, events: int) -> list[list[dict[str, Any]]]:
    """Events of each step, most of them in one corner of the unit square."""
    chance = random.Random(3)

    def event(step: int, number: int) -> dict[str, Any]:
        x, y = chance.betavariate(2, 6), chance.betavariate(2, 6)
        return {"user": f"u{step}-{number}", "at": START_S + STEP_S * step + chance.randrange(STEP_S), "x": x, "y": y}

    return [[event(step, number) for number in range(events)] for step in range(steps)]


async def published_stream(
    bootstrap: str, folder: Path, steps: Sequence[Sequence[Mapping[str, Any]]], **table: Any
) -> tuple[Config, Path]:
    """Run a worker over these events until every step is public. Returns the configuration, and as a file."""
    (folder / "user.key").write_bytes(b"sixteen secret bytes or more")
    privacy = {"epsilon": 2.0, "unit": "user", "user": "user", "max_contributions": 1}
    privacy["user_key_file"] = str(folder / "user.key")
    stream = stream_table(fresh_name("p"), **{"privacy": privacy, "options": {"depth": 8}, **table})
    config = job_config(bootstrap, folder, streams=[stream], partitions=1)
    await create_topics(config, source_partitions=PARTITIONS)
    async with producing(bootstrap) as producer:
        for number, events in enumerate(steps):
            users = IdBytes.from_ids([event["user"] for event in events])
            homes = partitions_of(users, partitioner="murmur2", partitions=PARTITIONS).tolist() if events else []
            for event, home in zip(events, homes, strict=True):
                await producer.send(config.streams[0].source, json.dumps(event).encode(), partition=home)
            for partition in range(PARTITIONS):
                tick = (TICK_HEADER, encode_tick(number, row=0, source="t"))
                await producer.send_and_wait(config.streams[0].source, b"", partition=partition, headers=[tick])
    name = config.streams[0].name

    async with worker(config):
        await until(lambda: records_of(bootstrap, Topics.ledger(name)), lambda found: len(found) >= len(steps))
    path = folder / "my.toml"
    document = {
        "job": {"name": config.job.name, "data_dir": str(folder)},
        "kafka": {"bootstrap": bootstrap, "partitions": 1},
        "streams": [stream],
    }
    path.write_bytes(tomli_w.dumps(document).encode())
    return config, path


async def alive(config: Config, step: int) -> dict[str, dict[str, Any]]:
    """What a reader has who follows adds and tombstones up to a step."""
    found: dict[str, dict[str, Any]] = {}
    for record in await records_of(config.kafka.bootstrap, Topics.synthetic(config.streams[0].name)):
        if int(dict(record.headers)[STEP_HEADER]) <= step:
            key = record.key.decode()
            if record.value is None:
                del found[key]
            else:
                found[key] = json.loads(record.value)
    return found


async def publish(config: Config, candidates: Sequence[Candidate], synthetic: Sequence[Sequence[PublicRecord]]) -> None:
    """A transaction for each step, as a worker does."""
    name = config.streams[0].name
    await create_topics(config)
    async with producing(config.kafka.bootstrap, transactional_id=fresh_name("t")) as producer:
        for candidate, adds in zip(candidates, synthetic, strict=True):
            headers = [(STEP_HEADER, b"%d" % candidate.step)]
            ledger = PublicRecord("ledger", b"%d" % candidate.step, candidate.ledger)
            async with producer.transaction():
                for record in (*adds, *of_step(candidate, "measurements"), ledger):
                    topic = f"{name}.{record.channel}"
                    await producer.send(topic, record.value, key=record.key, partition=0, headers=headers)
