"""Keys that nobody listed, end to end on the real broker: texts in, those that many people have out."""

from __future__ import annotations

import json
from collections import Counter
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
STEPS = 3
PEOPLE = 60


def configured(bootstrap: str, folder: Path) -> Config:
    """At so large an epsilon a count is off by five or more with a probability below 1e-9."""
    folder.mkdir(exist_ok=True)
    (folder / "user-key").write_bytes(b"sixteen secret bytes or more")
    table = stream_table(
        fresh_name("keys"),
        engine="keys",
        privacy={
            "epsilon": 1000.0,
            "delta": 1e-6,
            "unit": "user",
            "user": "user",
            "max_contributions": 2,
            "per": "3m",
            "user_key_file": str(folder / "user-key"),
        },
        domain={"kind": "keys", "field": "page"},
        options={"least_count": 20},
    )
    return job_config(bootstrap, folder, streams=[table])


def view(user: int, page: object, step: int) -> dict[str, Any]:
    return {"user": f"u{user}", "page": page, "at": START_S + STEP_S * step + user % 60}


def sent(step: int) -> Iterator[dict[str, Any]]:
    """Half of the people have a page in the first step, written in two ways, and all in the second; few have others."""
    for user in range(PEOPLE):
        if step == 1 or (step == 0 and user % 2):
            yield view(user, "cafe\u0301" if user % 3 else "caf\u00e9", step)
            yield view(user, "caf\u00e9", step)  # again
    if step == 0:
        yield from (view(user, "rare", 0) for user in range(1, 20, 2))
        yield from (view(1, f"third {number}", 0) for number in range(2))  # over the bound
        yield view(2, None, 0)
        yield view(2, "nul\0", 0)


def home(record: dict[str, Any]) -> int:
    return int(partitions_of(IdBytes.from_ids([record["user"]]), partitioner="murmur2", partitions=PARTITIONS)[0])


async def feed(config: Config) -> None:
    source = config.streams[0].source
    async with producing(config.kafka.bootstrap) as producer:
        for step in range(STEPS):
            for record in sent(step):
                await producer.send(source, json.dumps(record).encode(), partition=home(record))
            await producer.flush()
            for partition in range(PARTITIONS):
                header = (TICK_HEADER, encode_tick(step, row=0, source="t"))
                await producer.send_and_wait(source, b"", partition=partition, headers=[header])


async def test_keys_that_many_have_are_found_and_each_person_counts_once(bootstrap: str, tmp_path: Path) -> None:
    config = configured(bootstrap, tmp_path)
    topics = config.topics
    await create_topics(config, source_partitions=PARTITIONS)
    await feed(config)
    name = config.streams[0].name
    async with worker(config):
        await until(lambda: records_of(bootstrap, Topics.ledger(name)), lambda found: len(found) >= STEPS)
    released: dict[int, list[dict[str, Any]]] = {step: [] for step in range(STEPS)}
    for record in await records_of(bootstrap, Topics.synthetic(name)):
        ((header, step),) = record.headers
        assert header == STEP_HEADER
        released[int(step)].append(json.loads(record.value))
    blocks = [
        Block.decode(record.value)
        for partition in range(config.kafka.partitions)
        for record in await records_of(bootstrap, topics.blocks, partition=partition)
    ]
    letters = [DeadLetter.decode(record.value) for record in await records_of(bootstrap, topics.dead_letters)]
    for step, people in enumerate((PEOPLE // 2, PEOPLE, PEOPLE)):
        (found,) = released[step]
        assert found["page"] == "caf\u00e9"
        assert abs(found["count"] - people) < 5
    counts = sum((Counter(block.counts) for block in blocks), Counter())
    assert counts["REPEATED"] == PEOPLE // 2 + PEOPLE + PEOPLE // 2
    assert counts["OVER_BOUND"] == 2
    assert Counter((letter.reason.name, letter.field) for letter in letters) == {
        ("MISSING_FIELD", "page"): 1,
        ("OUTSIDE_DOMAIN", "page"): 1,
    }
