"""A worker ends between two effects and another goes on: each step has one seed, one candidate, one publication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agents.protocol.release.candidates
import agents.worker.engine
import agents.worker.publish
import agents.worker.table
from agents.kafka.topics import create_topics, restore_changelog
from agents.protocol.partitioner import home_partition
from agents.worker.process import with_folder
from schemas.blocks import Block
from schemas.config import Config
from schemas.errors import GapError
from schemas.releases import Seed
from tests.kafka.support import delete, empty_compacted, producing
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
    seed_appended seed_committed candidate_appended candidate_committed state_appended state_stored
    adopted publish_due publish_witnessed publish_appended publish_committed
"""


@pytest.mark.parametrize("place", PLACES.split())
async def test_the_next_worker_goes_on(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
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


@pytest.mark.parametrize(
    ("place", "passes", "most"),
    [
        ("adopted", 2, 2),
        ("seed_appended", 3, 64),
        ("candidate_appended", 3, 64),
        ("publish_appended", 1, 64),
    ],
)
async def test_steps_that_one_block_closed_need_no_further_block(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, passes: int, most: int
) -> None:
    """The saved position is behind the last block, so no record will ever wake the task. They go together."""
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


@pytest.mark.parametrize("damage", ["torn", "lost", "emptied"])
async def test_a_state_that_is_nowhere_stops_the_stream(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """Somebody writes into the changelog, or empties it and there is no store: no step is computed of another state."""
    config = keeping(one_stream(bootstrap, tmp_path))
    stream = config.streams[0].name
    await create_topics(config)
    await feed(config, range(3))
    async with running(config):
        await published(config, 3)
    changelog = f"{config.job.name}-state-changelog"
    home = home_partition(stream, config.kafka.partitions)
    if damage == "emptied":
        await empty_compacted(config, changelog)
        config = keeping(config, data_dir=tmp_path / "new")
    else:
        async with producing(bootstrap) as zombie:
            keys = [f"{stream}/{slot}" for slot in (0, 1)] if damage == "torn" else [stream]
            for key in keys:
                value = b"zombie" if damage == "torn" else b'{"v": 0}'
                await zombie.send_and_wait(changelog, value, key=key.encode(), partition=home)
    await feed(config, range(3, 5))
    error = await crash_of(config, monkeypatch)
    assert isinstance(error, GapError)
    assert "the state after step 2, its last answer, is lost" in str(error)
    await one_answer_each(config, 3)
    assert "What to do" in caplog.text


async def test_a_store_that_is_older_than_it_says_is_filled_from_the_changelog(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = keeping(one_stream(bootstrap, tmp_path))
    stream = config.streams[0].name
    home = home_partition(stream, config.kafka.partitions)
    await create_topics(config)
    await feed(config, range(2))
    async with running(config) as app:
        await published(config, 2)
        table = app.tables["state"]
        keys = [stream.encode(), *(f"{stream}/{slot}".encode() for slot in (0, 1))]
        older = [(key, value) for key in keys if (value := table._get(home, key)) is not None]
        await feed(config, range(2, 3))
        await published(config, 3)
        await table.committed(home, {stream: older}, table._stored(home))
    await feed(config, range(3, 5))
    async with running(config):
        await published(config, 5)
    await one_answer_each(config, 5)
    assert "lacks its newest state" in caplog.text


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
async def test_a_damaged_state_folder_is_discarded_and_filled_again(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None]
) -> None:
    config = keeping(one_stream(bootstrap, tmp_path))
    await create_topics(config)
    await feed(config, range(3))
    async with running(config) as app:
        await published(config, 3)
        home = home_partition(config.streams[0].name, config.kafka.partitions)
        app.tables["state"].data.use(home, lambda db: db.flush())  # into a file of its own
    spoil(tmp_path)
    await feed(config, range(3, 5))
    async with running(config):
        await published(config, 5)
    await one_answer_each(config, 5)
    assert "is damaged" in caplog.text
    assert sum("discarded, states come from its changelog" in line for line in caplog.text.splitlines()) <= 2


@pytest.mark.parametrize("emptied", [True, False])
async def test_a_lost_changelog_is_filled_again(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, emptied: bool
) -> None:
    """Emptied by somebody, or gone and made again at the start; with a store at hand that is far ahead of it."""
    config = keeping(one_stream(bootstrap, tmp_path))
    changelog = f"{config.job.name}-state-changelog"
    await create_topics(config)
    await feed(config, range(3))
    async with running(config):
        await published(config, 3)
    if emptied:
        await empty_compacted(config, changelog)
    else:
        await delete(bootstrap, changelog)
    assert await restore_changelog(config) != emptied
    await feed(config, range(3, 5))
    async with running(config):
        await published(config, 5)
    fresh = config.model_copy(update={"job": config.job.model_copy(update={"data_dir": tmp_path / "new"})})
    await feed(config, range(5, 6))
    async with running(fresh):  # and a worker without any store finds what was written since
        await published(config, 6)
    await one_answer_each(config, 6)
    assert ("has lost records" in caplog.text) != emptied


async def test_an_empty_folder_is_filled_from_kafka_and_no_step_is_answered_twice(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a new default place, a new machine or a lost disk is to a running stream."""
    monkeypatch.chdir(tmp_path)
    config = keeping(one_stream(bootstrap, tmp_path), data_dir=None)
    await create_topics(config)
    places = []
    for home, steps in (("one", 3), ("two", 5), ("one", 6)):  # the last one is behind, as a disk that came back
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / home))
        resolved = await with_folder(config)
        assert resolved.job.data_dir is not None
        places.append(resolved.job.data_dir)
        await feed(config, range({3: 0, 5: 3, 6: 5}[steps], steps))
        async with running(resolved):
            await published(config, steps)
    cluster = {place.name for place in places}
    assert len(cluster) == 1, "one cluster has one id"
    assert places[0] == places[2] != places[1]
    assert all((place / config.job.name).is_dir() for place in places)
    await one_answer_each(config, 6)
    assert len(await ledger(config, committed=False)) == 6
    assert not (tmp_path / "privstream-data").exists()
