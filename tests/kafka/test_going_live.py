"""From history to live on the real broker: the same stream, one release a step, no event lost, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import UnknownTopicOrPartitionError

from agents.kafka.clients import tail
from agents.kafka.status import status
from agents.kafka.topics import admin_client, create_topics
from agents.local.offline.replay import Prospect, ReplayOptions, replay, tick_of
from agents.protocol.partitioner import home_partition
from agents.protocol.replay import ReplayError
from agents.worker.failpoints import VARIABLE
from schemas.blocks import Block
from schemas.config import Config, parse_config
from schemas.errors import BrokerError
from schemas.events import read_tick
from schemas.topics import Topics
from tests.crash.field import ROOT
from tests.kafka.support import WAIT_AT_MOST_S, fresh_name, producing, records_of, until
from tests.kafka.test_replay import PARTITIONS, job, records, rows_in, topics, write_rows

pytestmark = pytest.mark.kafka
STEP_S = 2
HISTORY_STEPS, GAP_STEPS = 20, 5
SOURCE_PARTITIONS = 2

LIVE = """
[job]
name = "{name}"
data_dir = "{folder}"
[kafka]
bootstrap = "{bootstrap}"
partitions = 1
session_timeout_s = 6
[[streams]]
name = "{name}-s"
engine = "spatial"
source = "raw.{name}"
audit = "audit.{name}"
publish_delay = "1s"
[streams.privacy]
epsilon = 1.0
unit = "event"
[streams.time]
field = "at"
format = "s"
start = "{start}"
step = "{step}s"
grace = "1s"
clock = "replay"
[streams.domain]
kind = "box"
x = "x"
y = "y"
bounds = [0, 0, 1, 1]
[streams.options]
initial_steps = 1
"""


def go(config: Config, path: Path, **options: Any) -> Any:
    told: list[Prospect] = []
    done = asyncio.run(
        replay(config, config.streams[0], path, ReplayOptions(then_live=True, **options), ahead=told.append)
    )
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
            asyncio.run(replay(config, config.streams[0], path, ReplayOptions(**other)))
    with pytest.raises(ReplayError, match="has gone live"):
        go(config, write_rows(tmp_path / "b.csv.gz", 10, first_day=9))
    again, told = go(config, path, until="2016-01-05T00:00:00")  # as after a crash behind the commit
    assert (again.rows, again.rows_before, again.live_from, told) == (0, 240, 4, [])
    assert rows_in(records(config, config.streams[0].source)) == Counter(range(240))


def test_what_is_probably_not_meant_is_refused_before_anything_is_written(bootstrap: str, tmp_path: Path) -> None:
    config = job(bootstrap)
    path = write_rows(tmp_path / "a.csv.gz", 100)
    stream = config.streams[0]
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


def test_without_the_brokers_time_nothing_goes_live(bootstrap: str, tmp_path: Path) -> None:
    config = job(bootstrap)
    clock = Topics(config.job.name, 1).clock

    async def delete() -> None:
        async with admin_client(config.kafka) as admin:
            await admin.delete_topics([clock])

    asyncio.run(delete())
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
        asyncio.run(replay(config, config.streams[0], path, ReplayOptions(append=True)))
    # Nor for a stream that was added since: the other one would take its past for late events of today.
    later = config.streams[0].model_copy(update={"name": f"{stream}-later"})
    both = config.model_copy(update={"streams": (*config.streams, later)})
    with pytest.raises(ReplayError, match="has gone live"):
        asyncio.run(replay(both, later, path, ReplayOptions(append=True)))


@pytest.mark.nightly
@pytest.mark.seconds(45)
def test_history_and_then_live_events_through_workers_that_are_killed(bootstrap: str, tmp_path: Path) -> None:
    """Live producers send all the while: also while history is replayed and before the source goes live. Workers die
    within the history, where they take in the record with which it goes live, and where one partition has gone live
    and the other has not. It runs at night: the simulation kills at any place, and finds that live was forgotten.
    """
    name = fresh_name("live")
    start = int(time.time()) - STEP_S * (HISTORY_STEPS + GAP_STEPS)
    text = LIVE.format(
        name=name, bootstrap=bootstrap, folder=tmp_path / "data", step=STEP_S,
        start=datetime.fromtimestamp(start, UTC).replace(tzinfo=None).isoformat(),
    )  # fmt: skip
    config = parse_config(text)
    (tmp_path / "job.toml").write_text(text)
    rows = [{"at": start + second, "x": 0.3, "y": 0.3} for second in range(STEP_S * HISTORY_STEPS) for _ in range(5)]
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    asyncio.run(asyncio.wait_for(_play(config, tmp_path, path, rows, start), 6 * WAIT_AT_MOST_S))


def _worker(folder: Path, failpoint: str = "") -> subprocess.Popen[bytes]:
    with (folder / "worker.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.crash.worker", str(folder / "job.toml")], stdout=log, stderr=log, cwd=ROOT,
            env={**os.environ, VARIABLE: failpoint},
        )  # fmt: skip


async def _killed(folder: Path, failpoint: str) -> None:
    worker = _worker(folder, failpoint)
    try:
        await until(lambda: worker.poll() is not None)
    finally:
        worker.kill()
        worker.wait()
    assert worker.returncode == -signal.SIGKILL, (folder / "worker.log").read_text()[-3000:]


async def _play(config: Config, folder: Path, path: Path, rows: list[dict[str, Any]], start: int) -> None:
    stream, bootstrap = config.streams[0], config.kafka.bootstrap
    await create_topics(config, source_partitions=SOURCE_PARTITIONS)
    sent: list[float] = []
    stop = asyncio.Event()

    async def live() -> None:
        async with producing(bootstrap) as producer:
            while not stop.is_set():
                at = time.time()
                value = orjson.dumps({"at": at, "x": 0.7, "y": 0.7})
                for topic in (stream.source, stream.audit):
                    await producer.send_and_wait(topic, value, partition=len(sent) % SOURCE_PARTITIONS)
                sent.append(at)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(stop.wait(), 0.3)

    producers = asyncio.create_task(live())
    worker: subprocess.Popen[bytes] | None = None
    try:
        await until(lambda: len(sent) > 3)
        half = ReplayOptions(limit=len(rows) // 2, chunk_rows=20)
        await replay(config, stream, path, half)
        await _killed(folder, "ingest_sent:1")
        done = await replay(config, stream, path, ReplayOptions(chunk_rows=20, then_live=True))
        assert done.live_from == HISTORY_STEPS
        for failpoint in ("ingest_before_commit:1", "ingest_after_commit:1", "adopted:3"):
            await _killed(folder, failpoint)
        worker = _worker(folder)
        await until(lambda: _public_beyond(config, done.step))
        stop.set()
        await producers
        last = int((sent[-1] - start) // STEP_S) + 1
        await until(lambda: _public_beyond(config, last))
        await _judge(config, rows, sent, start)
    except BaseException:
        print((folder / "worker.log").read_text()[-6000:])
        raise
    finally:
        stop.set()
        if worker is not None:
            worker.kill()
            worker.wait()


async def _public_beyond(config: Config, step: int) -> bool:
    with suppress(UnknownTopicOrPartitionError):
        return len(await records_of(config.kafka.bootstrap, Topics.ledger(config.streams[0].name))) > step + 1
    return False


async def _judge(config: Config, rows: list[dict[str, Any]], sent: list[float], start: int) -> None:
    stream, bootstrap = config.streams[0], config.kafka.bootstrap
    ledger = await records_of(bootstrap, Topics.ledger(stream.name))
    assert [int(entry.key) for entry in ledger] == list(range(len(ledger))), "one release a step, none left out"
    for topic in (Topics(config.job.name, 1).blocks, Topics(config.job.name, 1).held_out):
        home = home_partition(stream.name, 1)
        blocks = [Block.decode(record.value) for record in await records_of(bootstrap, topic, partition=home)]
        reached, went = [0] * SOURCE_PARTITIONS, [None] * SOURCE_PARTITIONS
        joined: Counter[int] = Counter()
        counts: Counter[str] = Counter()
        for block in blocks:
            assert block.lo == reached[block.partition], "source offsets are covered once"
            assert went[block.partition] in (None, block.live_from), "live is forgotten"
            reached[block.partition], went[block.partition] = block.hi, block.live_from
            joined.update({step: folded.total for step, folded in block.steps.items()})
            counts.update(block.counts)
        assert went == [HISTORY_STEPS] * SOURCE_PARTITIONS
        assert counts == {"ACCEPTED": len(rows) + len(sent)}, "none is lost, none doubled, none refused"
        history = Counter(int(row["at"] - start) // STEP_S for row in rows)
        assert {step: joined[step] for step in history} == history
        own = Counter(int((at - start) // STEP_S) for at in sent)
        assert sum(joined.values()) == len(rows) + len(sent)
        assert min(own) >= HISTORY_STEPS
        late = 0
        for step in range(max(joined) + 1):  # late ones join a later step, and none an earlier one
            late += (own[step] + history[step]) - joined[step]
            assert late >= 0
    [state] = await status(config)
    assert (state.live, state.partitions, state.lost) == (SOURCE_PARTITIONS, SOURCE_PARTITIONS, 0)
    assert json.loads(ledger[-1].value)["guarantee"]["private"]
