"""A commit is held on the network until its sender has given up: engine and replay, one process after the other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import agents.kafka.clients
from agents.kafka.topics import create_topics
from agents.local.offline.replay import ReplayOptions, replay
from schemas.config import Config, parse_config
from schemas.errors import BrokerError, OutcomeUnknownError
from schemas.releases import Seed
from tests.crash.late_requests import SHORT_TIMEOUT_MS, refused
from tests.crash.proxy.faults import Fault, Kind, Once
from tests.crash.proxy.server import Proxy
from tests.kafka.support import fresh_name, job_config, stream_table
from tests.kafka.test_engine import crash_of, feed, ledger, log_records, published, running
from tests.kafka.test_replay import PARTITIONS, assert_every_row_once, text_of, write_rows

pytestmark = [pytest.mark.kafka, pytest.mark.seconds(4)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents.kafka.clients, "REQUEST_TIMEOUT_MS", SHORT_TIMEOUT_MS)


@pytest.mark.parametrize("nth", [1, 2])
def test_a_held_commit_of_the_engine_gives_no_second_seed(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """Of the seed's transaction, or of the candidate's: the next engine goes on with what is on the log."""

    async def scenario() -> None:
        async with Proxy(bootstrap) as proxy:
            table = stream_table(fresh_name("torn"), options={"depth": 8, "initial_steps": 1})
            config = job_config(proxy.bootstrap, tmp_path, streams=[table], keep_private_log=True)
            await create_topics(config)
            await feed(config, range(2))
            proxy.plan = Once("EndTxn", Fault(Kind.HOLD), nth=nth)
            with monkeypatch.context() as patched:
                error = await crash_of(config, patched, roles=("engine",))
            assert isinstance(error, OutcomeUnknownError)
            async with running(config):
                await published(config, 2)
            assert await refused(proxy.held[0])
            seeds = [record.step for _, record in await log_records(config) if isinstance(record, Seed)]
            assert seeds == [0, 1]
            assert [int(entry.key) for entry in await ledger(config)] == [0, 1]

    asyncio.run(scenario())


def test_a_held_commit_of_a_replay_writes_no_row_twice(bootstrap: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.csv.gz", 40)

    async def scenario() -> Config:
        async with Proxy(bootstrap) as proxy:
            config = parse_config(text_of(proxy.bootstrap))
            await create_topics(config, source_partitions=PARTITIONS)
            proxy.plan = Once("EndTxn", Fault(Kind.HOLD), nth=2)
            options = ReplayOptions(chunk_rows=10)
            with pytest.raises(BrokerError, match="run the same command again"):
                await replay(config, config.streams[0], path, options)
            done = await replay(config, config.streams[0], path, options)
            assert await refused(proxy.held[0])
            assert (done.rows_before, done.rows) == (10, 30)
        return config.model_copy(update={"kafka": config.kafka.model_copy(update={"bootstrap": bootstrap})})

    assert_every_row_once(asyncio.run(scenario()), 40)
