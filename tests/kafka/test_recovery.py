"""A worker ends between two effects and another goes on: each step has one seed, one candidate, one publication."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

import agents.protocol.release.candidates
import agents.worker.engine
import agents.worker.publish
import agents.worker.table
from agents.kafka.topics import admin_client, create_topics, restore_changelog
from agents.protocol.partitioner import home_partition
from schemas.blocks import Block
from schemas.config import Config
from schemas.releases import Seed
from tests.kafka.support import producing, until
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

    for module in (agents.worker.engine, agents.worker.table, agents.worker.publish):
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
    adopted publish_due publish_witnessed publish_data_appended publish_ledger_appended publish_committed
"""


@pytest.mark.parametrize("place", PLACES.split())
def test_the_next_worker_goes_on(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    async def scenario() -> None:
        config = keeping(one_stream(bootstrap, tmp_path))
        await create_topics(config)
        await feed(config, range(3))
        with monkeypatch.context() as patch:
            patch.setattr(agents.worker.publish, "MOST_STEPS", 1)
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
    """The saved position is behind the last block, so no record will ever wake the task. They go together."""

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
            patch.setattr(agents.protocol.release.candidates, "MOST_STEPS", most)
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


def spoil_files(folder: Path) -> None:
    """Every file of RocksDB begins with other bytes."""
    files = [path for path in folder.rglob("*") if path.is_file() and ".db" in str(path) and path.stat().st_size]
    assert files
    for path in files:
        path.write_bytes(b"of another program" + path.read_bytes()[18:])


def spoil_tables(folder: Path) -> None:
    """What RocksDB reads only when it is asked for a key."""
    tables = list(folder.rglob("*.sst"))
    assert tables
    for path in tables:
        size = path.stat().st_size
        path.write_bytes(b"x" * (size // 2) + path.read_bytes()[size // 2 :])


@pytest.mark.parametrize("spoil", [spoil_files, spoil_tables])
def test_a_damaged_state_folder_is_discarded_and_filled_again(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None]
) -> None:
    async def scenario() -> None:
        config = keeping(one_stream(bootstrap, tmp_path))
        await create_topics(config)
        await feed(config, range(3))
        async with running(config) as app:
            await published(config, 3)
            home = home_partition(config.streams[0].name, config.kafka.partitions)
            app.tables["state"].data.use(home, lambda db: db.flush())  # into a file of its own
        gc.collect()
        spoil(tmp_path)
        await feed(config, range(3, 5))
        async with running(config):
            await published(config, 5)
        await one_answer_each(config, 5)

    asyncio.run(scenario())
    assert "is damaged" in caplog.text
    assert sum("discarded, states come from the release log" in line for line in caplog.text.splitlines()) <= 2


@pytest.mark.parametrize("emptied", [True, False])
def test_a_lost_changelog_is_filled_again(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, emptied: bool
) -> None:
    """Emptied by somebody, or gone and made again at the start; with a store at hand that is far ahead of it."""

    async def scenario() -> None:
        config = keeping(one_stream(bootstrap, tmp_path))
        changelog = f"{config.job.name}-state-changelog"
        await create_topics(config)
        await feed(config, range(3))
        async with running(config):
            await published(config, 3)
        async with admin_client(config.kafka) as admin:
            if emptied:
                resource = ConfigResourceType.TOPIC
                policies = {"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}
                await admin.alter_configs([ConfigResource(resource, changelog, configs=policies[0])])
                for partition in range(config.kafka.partitions):
                    await admin.delete_records({TopicPartition(changelog, partition): RecordsToDelete(-1)})
                await admin.alter_configs([ConfigResource(resource, changelog, configs=policies[1])])
            else:
                await admin.delete_topics([changelog])

                async def gone() -> bool:
                    return changelog not in await admin.list_topics()

                await until(gone)
        assert await restore_changelog(config) != emptied
        await feed(config, range(3, 5))
        async with running(config):
            await published(config, 5)
        fresh = config.model_copy(update={"job": config.job.model_copy(update={"data_dir": tmp_path / "new"})})
        await feed(config, range(5, 6))
        async with running(fresh):  # and a worker without any store finds what was written since
            await published(config, 6)
        await one_answer_each(config, 6)

    asyncio.run(scenario())
    assert ("has lost records" in caplog.text) != emptied
