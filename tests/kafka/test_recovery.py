"""A worker ends between two effects and another goes on: each step has one seed, one candidate, one publication."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agents.engine
import agents.protocol.owner
import agents.publish
import agents.table
from agents.protocol.partitioner import home_partition
from agents.topic_admin import create_topics
from schemas.blocks import Block
from schemas.config import Config
from schemas.releases import Seed
from tests.kafka.support import producing
from tests.kafka.test_engine import crash_of, feed, ledger, log_records, one_stream, published, running


class EndedHereError(Exception):
    """Stands for the end of the process."""


def end_at(monkeypatch: pytest.MonkeyPatch, place: str, passes: int) -> None:
    """The next worker ends at the given pass of a named place."""
    seen: Counter[str] = Counter()

    def failpoint(name: str) -> None:
        seen[name] += 1
        if name == place and seen[name] == passes:
            raise EndedHereError

    for module in (agents.engine, agents.table, agents.publish):
        monkeypatch.setattr(module, "failpoint", failpoint)


def keeping(config: Config, **job: Any) -> Config:
    return config.model_copy(update={"job": config.job.model_copy(update={"keep_private_log": True, **job})})


async def one_answer_each(config: Config, steps: int) -> None:
    records = [record for _, record in await log_records(config)]
    seeds = [record.step for record in records if isinstance(record, Seed)]
    candidates = [record.step for record in records if not isinstance(record, Seed)]
    assert seeds == candidates == list(range(steps))
    assert [int(entry.key) for entry in await ledger(config)] == list(range(steps))


PLACES = """
    seed_appended seed_committed candidate_appended candidate_committed table_chunk table_before_head table_after_head
    adopted publish_due publish_data_appended publish_ledger_appended publish_committed
"""


@pytest.mark.parametrize("place", PLACES.split())
def test_the_next_worker_goes_on(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    async def scenario() -> None:
        config = keeping(one_stream(bootstrap, tmp_path))
        await create_topics(config)
        await feed(config, range(3))
        with monkeypatch.context() as patch:
            patch.setattr(agents.publish, "MOST_STEPS", 1)
            end_at(patch, place, 2)
            assert isinstance(await crash_of(config, patch), EndedHereError)
        # Nothing new arrives: what the state can already close must be closed all the same.
        async with running(config):
            await published(config, 3)
        await one_answer_each(config, 3)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("place", "passes", "most"),
    [
        ("adopted", 2, 2),
        ("seed_appended", 3, 64),
        ("seed_committed", 1, 64),
        ("candidate_appended", 3, 64),
        ("candidate_committed", 1, 64),
        ("publish_ledger_appended", 1, 64),
        ("publish_committed", 1, 64),
    ],
)
def test_steps_that_one_block_closed_need_no_further_block(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, passes: int, most: int
) -> None:
    """The saved position is behind the last block, so no record will ever wake the owner. They go together."""

    async def scenario() -> None:
        config = keeping(one_stream(bootstrap, tmp_path))
        stream = config.streams[0].name
        await create_topics(config)
        async with producing(bootstrap) as producer:
            for partition in range(2):
                block = Block(stream, partition, 0, 5, 4, {})
                home = home_partition(stream, config.kafka.partitions)
                await producer.send_and_wait(f"{config.job.name}.blocks", block.encode(), partition=home)
        with monkeypatch.context() as patch:
            patch.setattr(agents.protocol.owner, "MOST_STEPS", most)
            end_at(patch, place, passes)
            await crash_of(config, patch)
        async with running(config):
            await published(config, 5)
        await one_answer_each(config, 5)
        log = await log_records(config)
        together = [record.step for _, record in log[: min(most, 5)]]
        assert together == list(range(5))[:most], "the seeds of several steps stand together"

    asyncio.run(scenario())


@pytest.mark.parametrize("damage", ["torn", "lost"])
def test_a_damaged_table_is_made_good_from_the_log(bootstrap: str, tmp_path: Path, damage: str) -> None:
    async def scenario() -> None:
        config = keeping(one_stream(bootstrap, tmp_path))
        stream = config.streams[0].name
        await create_topics(config)
        await feed(config, range(3))
        async with running(config):
            await published(config, 3)
        tear: dict[str, Callable[[int], bytes]] = {
            "torn": lambda slot: f"{stream}/{slot}/0".encode(),
            "lost": lambda slot: stream.encode(),
        }
        home = home_partition(stream, config.kafka.partitions)
        async with producing(bootstrap) as zombie:
            for slot in (0, 1):
                value = b"zombie" if damage == "torn" else b'{"v": 0}'
                changelog = f"{config.job.name}-state-changelog"
                await zombie.send_and_wait(changelog, value, key=tear[damage](slot), partition=home)
        await feed(config, range(3, 5))
        async with running(config):
            await published(config, 5)
        await one_answer_each(config, 5)

    asyncio.run(scenario())
