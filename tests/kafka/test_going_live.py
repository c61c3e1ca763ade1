"""From history to live on the real broker: what goes live, and what is refused before anything is written.

The simulation kills workers anywhere around it, and finds that live was forgotten, or comes in vain.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from agents.kafka.clients import tail
from agents.kafka.topics import admin_client
from agents.local.offline.replay import Prospect, replay, tick_of
from agents.protocol.replay import ReplayError
from schemas.blocks import Block
from schemas.config import Config
from schemas.errors import BrokerError
from schemas.events import read_tick
from schemas.topics import Topics
from tests.kafka.support import delete, producing
from tests.kafka.test_replay import PARTITIONS, job, records, rows_in, run, topics, write_rows

pytestmark = pytest.mark.kafka


def go(config: Config, path: Path, **options: Any) -> Any:
    told: list[Prospect] = []
    done = asyncio.run(replay(config, config.streams[0], path, then_live=True, **options, on_prospect=told.append))
    return done, told


def test_the_source_goes_live_behind_its_history_and_nothing_is_replayed_there_any_more(
    bootstrap: str, tmp_path: Path
) -> None:
    """History of five days in 2016, steps of a day: some thousand of them are over since."""
    config = job(bootstrap)
    path = write_rows(tmp_path / "a.csv.gz", 300)
    over = int((time.time() - 30 - datetime(2016, 1, 1, tzinfo=UTC).timestamp()) // 86_400) - 1
    done, [prospect] = go(config, path, until="2016-01-05T00:00:00")
    assert (done.rows, done.left_out, done.live_from) == (240, 60, 4)
    assert (prospect.history, prospect.doubts) == (3, ())
    assert prospect.over in (over, over + 1)
    assert done.step >= prospect.over
    for topic in topics(config):
        partitions = records(config, topic)
        assert rows_in(partitions) == Counter(range(240))
        for partition in partitions:
            ticks = [read_tick(tick) for tick in map(tick_of, partition) if tick is not None]
            assert [tick.live_from for tick in ticks] == [None] * (len(ticks) - 1) + [4]
            assert (ticks[-1].step, ticks[-1].row, tick_of(partition[-1]) is not None) == (done.step, 240, True)
    for other in ({}, {"append": True}, {"until": "2016-01-06T00:00:00"}):
        with pytest.raises(ReplayError, match="has gone live behind the history of 240 rows"):
            asyncio.run(replay(config, config.streams[0], path, **other))
    with pytest.raises(ReplayError, match="has gone live"):
        go(config, write_rows(tmp_path / "b.csv.gz", 10, first_day=9))
    again, told = go(config, path, until="2016-01-05T00:00:00")  # as after a crash behind the commit
    assert (again.rows, again.rows_before, again.live_from, told) == (0, 240, 4, [])
    assert rows_in(records(config, config.streams[0].source)) == Counter(range(240))


def test_what_is_probably_not_meant_is_refused_before_anything_is_written(bootstrap: str, tmp_path: Path) -> None:
    config = job(bootstrap)
    path = write_rows(tmp_path / "a.csv.gz", 100)
    stream = config.streams[0]
    assert isinstance(stream.time.step, timedelta)
    short = stream.time.model_copy(update={"step": stream.time.step / 24})
    ended = stream.options.model_copy(update={"horizon": 1_000})
    for changed, said in (
        ({"time": short}, r"\d\d,\d\d\d steps are over since the history ended, and each is released"),
        ({"options": ended}, r"measures nothing after its options.horizon of 1,000 steps"),
    ):
        doubtful = config.model_copy(update={"streams": (stream.model_copy(update=changed),)})
        with pytest.raises(ReplayError, match=rf"{said}.*add --yes"):
            go(doubtful, path)
    other = stream.model_copy(update={"name": f"{stream.name}-b", "time": short})
    with pytest.raises(ReplayError, match="have another start or step"):
        go(config.model_copy(update={"streams": (stream, other)}), path)
    ahead = write_rows(tmp_path / "b.csv.gz", 10, first_day=365 * 90)
    for file, options, said in (
        (ahead, {"yes": True}, "which is not over yet"),
        (path, {"yes": True, "until": "2100-01-01T00:00:00"}, "which is not over yet"),
        (path, {"limit": 5}, "--limit leaves a step open"),
    ):
        with pytest.raises(ReplayError, match=said):
            go(config, file, **options)
    assert all(not partition for partition in records(config, stream.source))
    done, [prospect] = go(doubtful, path, yes=True)
    assert done.live_from == 5
    assert "options.horizon" in prospect.doubts[0]


def test_what_is_refused_is_not_announced(bootstrap: str, tmp_path: Path) -> None:
    """It said from which step on the wall clock ends steps, for good, and then that it does nothing."""
    config = job(bootstrap)
    path = write_rows(tmp_path / "a.csv.gz", 300)
    run(config, path, until="2016-01-05T00:00:00")
    with pytest.raises(ReplayError, match="steps to 3 are closed already"):
        run(config, path, then_live=True, until="2016-01-03T00:00:00", on_prospect=lambda said: pytest.fail(str(said)))


def test_without_the_brokers_time_nothing_goes_live(bootstrap: str, tmp_path: Path) -> None:
    config = job(bootstrap)
    asyncio.run(delete(bootstrap, Topics(config.job.name, 1).clock))
    with pytest.raises(BrokerError, match="does not tell the brokers' time"):
        go(config, write_rows(tmp_path / "a.csv.gz", 10))
    assert all(not partition for partition in records(config, config.streams[0].source))


def test_a_live_source_whose_record_of_it_was_deleted_takes_no_history(bootstrap: str, tmp_path: Path) -> None:
    config = job(bootstrap)
    path = write_rows(tmp_path / "a.csv.gz", 10)
    go(config, path)
    stream = config.streams[0].name
    places = [(topic, partition) for topic in topics(config) for partition in range(PARTITIONS)]

    async def forget() -> None:
        async with admin_client(config.kafka) as admin, tail(config.kafka, places) as end:
            await admin.delete_records({TopicPartition(*tp): RecordsToDelete(end.ends[tp]) for tp in places})
        async with producing(bootstrap) as producer:
            block = Block(stream, 0, 0, 9, 7, {}, live_from=5).encode()
            await producer.send_and_wait(f"{config.job.name}.blocks", block, key=stream.encode(), partition=0)

    asyncio.run(forget())
    with pytest.raises(ReplayError, match="has gone live"):
        asyncio.run(replay(config, config.streams[0], path, append=True))
    # Nor for a stream that was added since: the other one would take its past for late events of today.
    later = config.streams[0].model_copy(update={"name": f"{stream}-later"})
    both = config.model_copy(update={"streams": (*config.streams, later)})
    with pytest.raises(ReplayError, match="has gone live"):
        asyncio.run(replay(both, later, path, append=True))
