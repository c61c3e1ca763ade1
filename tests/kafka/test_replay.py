"""Replay on the real broker: every row exactly once, whatever is killed, and ticks in every partition."""

from __future__ import annotations

import asyncio
import csv
import gzip
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

import agents.local.offline.replay
from agents.kafka.clients import read_to_end, tail
from agents.kafka.topics import admin_client, create_topics
from agents.local.offline.files import FileError
from agents.local.offline.replay import Replayed, last_ticks, replay, tick_of
from agents.local.offline.seen import RowsSeen
from agents.protocol.replay import ReplayChunk, ReplayError, ReplayPlan
from schemas.config import Config, parse_config
from schemas.errors import BrokerError
from schemas.events import read_tick
from tests.kafka.support import WAIT_AT_MOST_S, add_partitions

PARTITIONS = 3
DAY = 86_400
START = 1_451_606_400  # 2016-01-01 UTC

CONFIG = """
[job]
name = "{name}"
[kafka]
bootstrap = "{bootstrap}"
partitions = 1
[[streams]]
name = "{name}-s"
engine = "spatial"
source = "raw.{name}"
audit = "audit.{name}"
[streams.privacy]
epsilon = 1.0
{privacy}
[streams.time]
field = "at"
format = "s"
start = "2016-01-01T00:00:00"
step = "1d"
clock = "{clock}"
[streams.domain]
kind = "box"
x = "x"
y = "y"
bounds = [0, 0, 1, 1]
"""
USER = 'unit = "user"\nuser = "user"\nmax_contributions = 5'


def text_of(bootstrap: str, *, privacy: str = 'unit = "event"', clock: str = "replay") -> str:
    name = f"replay-{uuid.uuid4().hex[:8]}"
    return CONFIG.format(name=name, bootstrap=bootstrap, privacy=privacy, clock=clock)


def job(bootstrap: str, **settings: str) -> Config:
    config = parse_config(text_of(bootstrap, **settings))
    asyncio.run(create_topics(config, source_partitions=PARTITIONS))
    return config


def write_rows(path: Path, count: int, *, first_day: int = 0, days: int = 5) -> Path:
    with gzip.open(path, "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "at", "user", "x", "y", "pad"])
        for row in range(count):
            at = START + first_day * DAY + row * days * DAY // count
            writer.writerow([row, at, f"u{row % 97}", 0.5, 0.25, "x" * 60])
    return path


def run(config: Config, path: Path, **options: Any) -> Replayed:
    return asyncio.run(replay(config, config.streams[0], path, **options))


def topics(config: Config) -> Mapping[str, int]:
    stream = config.streams[0]
    assert stream.audit is not None
    return {stream.source: PARTITIONS, stream.audit: PARTITIONS}


def records(config: Config, topic: str) -> list[list[Any]]:
    async def read() -> list[list[Any]]:
        return [await read_to_end(config.kafka, topic, partition) for partition in range(PARTITIONS)]

    return asyncio.run(read())


def progress(config: Config) -> set[tuple[int, int]]:
    """Last closed step and next row, as the last ticks say: one, if they agree."""
    ticks = asyncio.run(last_ticks(config.kafka, topics(config)))
    return {read_tick(tick or b"")[:2] for tick in ticks}


def rows_in(partitions: Sequence[Sequence[Any]]) -> Counter[int]:
    return Counter(
        orjson.loads(record.value)["row"] for records in partitions for record in records if tick_of(record) is None
    )


def assert_every_row_once(config: Config, count: int) -> None:
    for topic in topics(config):
        partitions = records(config, topic)
        assert rows_in(partitions) == Counter(range(count))
        for tp in partitions:
            ticks = [read_tick(tick) for tick in map(tick_of, tp) if tick is not None]
            steps = [tick.step for tick in ticks]
            assert steps == sorted(steps)
            assert ticks[-1][:2] == (4, count)
            assert tick_of(tp[-1]) is not None
            closed = -1
            for record in tp:
                tick = tick_of(record)
                if tick is not None:
                    closed = read_tick(tick).step
                else:
                    step = (orjson.loads(record.value)["at"] - START) // DAY
                    assert closed == step - 1  # behind the ticks of all earlier steps, before that of its own


def test_a_file_is_in_both_topics_once_with_a_tick_behind_every_step(bootstrap: str, tmp_path: Path) -> None:
    config = job(bootstrap)
    path = write_rows(tmp_path / "a.csv.gz", 2_000)
    done = run(config, path, chunk_rows=300)
    assert (done.rows, done.rows_before, done.step, done.left_out) == (2_000, 0, 4, 0)
    assert_every_row_once(config, 2_000)
    again = run(config, path)
    assert (again.rows, again.rows_before, again.step) == (0, 2_000, 4)
    assert_every_row_once(config, 2_000)


def test_users_are_keyed_and_stay_on_one_partition(bootstrap: str, tmp_path: Path) -> None:
    config = job(bootstrap, privacy=USER)
    run(config, write_rows(tmp_path / "a.csv.gz", 500))
    homes: dict[bytes, set[int]] = {}
    for partition, tp in enumerate(records(config, config.streams[0].source)):
        for record in tp:
            if tick_of(record) is None:
                assert record.key == orjson.loads(record.value)["user"].encode()
                homes.setdefault(record.key, set()).add(partition)
    assert len(homes) == 97
    assert all(len(home) == 1 for home in homes.values())


def test_limit_stops_and_the_rest_can_follow(bootstrap: str, tmp_path: Path) -> None:
    config = job(bootstrap)
    path = write_rows(tmp_path / "a.csv.gz", 1_000)
    for _ in range(2):
        run(config, path, limit=450, chunk_rows=100)
        assert progress(config) == {(1, 450)}  # row 450 is in step 2, and so may the next one be
    rest = run(config, path)
    assert (rest.rows, rest.rows_before, rest.step) == (550, 450, 4)
    assert_every_row_once(config, 1_000)


def test_a_limit_at_the_file_s_very_end_closes_the_last_step(bootstrap: str, tmp_path: Path) -> None:
    config = job(bootstrap)
    path = write_rows(tmp_path / "a.csv.gz", 100)
    assert run(config, path, limit=100, chunk_rows=100).step == 4
    assert_every_row_once(config, 100)


def test_what_is_wrong_with_any_row_is_said_before_one_is_written_and_a_file_put_right_goes_through(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is behind the first rows, which are looked at in full: here none is."""
    config = job(bootstrap)
    monkeypatch.setattr(agents.local.offline.replay, "check_fit", lambda *_, **__: RowsSeen(config.streams[0].time))
    unsorted, broken, good = tmp_path / "a.jsonl", tmp_path / "b.csv", tmp_path / "c.csv"
    days = [0, 0, 1, 1, 2, 0]
    unsorted.write_bytes(
        b"".join(orjson.dumps({"row": i, "at": START + day * DAY}) + b"\n" for i, day in enumerate(days))
    )
    lines = ["row,at,user,x,y\n", *(f"{row},{START + row * DAY // 5},u,0.5,0.25\n" for row in range(6))]
    good.write_text("".join(lines))
    broken.write_text("".join([*lines[:-1], "5,1,1,1,1,1,1\n"]))
    for speed in (None, 100.0 * DAY):
        with pytest.raises(ReplayError, match=r"row 6 of the file.*sort the file by at,.*Nothing was written"):
            run(config, unsorted, chunk_rows=3, speed=speed)
        with pytest.raises(FileError, match="line 7: another number of cells"):
            run(config, broken, chunk_rows=3, speed=speed)
    assert sum(map(len, records(config, config.streams[0].source))) == 0
    assert run(config, good, chunk_rows=3).rows == 6


@pytest.mark.parametrize("speed", [None, 10.0 * DAY])
def test_a_public_end_closes_empty_steps_and_leaves_out_what_follows(
    bootstrap: str, tmp_path: Path, speed: float | None
) -> None:
    config = job(bootstrap)
    path = write_rows(tmp_path / "a.csv.gz", 100)
    first = run(config, path, until="2016-01-03T00:00:00", chunk_rows=30, speed=speed)
    assert (first.rows, first.step, first.left_out) == (40, 1, 60)
    again = run(config, path, until="2016-01-03T00:00:00", speed=speed)
    assert (again.rows, again.rows_before, again.step, again.left_out) == (0, 40, 1, 60)
    assert progress(config) == {(1, 40)}
    with pytest.raises(ReplayError, match="steps to 1 are closed already"):
        run(config, path, until="2016-01-02T00:00:00")
    with pytest.raises(ReplayError, match="lies within step 2"):
        run(config, path, until="2016-01-03T12:00:00")
    last = run(config, path, until="2016-01-10T00:00:00", speed=speed)
    assert (last.rows, last.rows_before, last.step, last.left_out) == (60, 40, 8, 0)
    assert rows_in(records(config, config.streams[0].source)) == Counter(range(100))
    assert run(config, path, until="2016-01-12T00:00:00", speed=speed).step == 10  # no row is left, but time passes
    assert run(config, path).step == 10


def test_a_replay_that_died_between_the_last_row_and_its_tick_closes_the_step_when_run_again(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = job(bootstrap)
    path = write_rows(tmp_path / "a.csv.gz", 100)

    def die(plan: ReplayPlan) -> ReplayChunk:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(ReplayPlan, "finish", die)
        with pytest.raises(RuntimeError, match="killed"):
            run(config, path)
    assert progress(config) == {(3, 100)}
    assert run(config, path).step == 4
    assert_every_row_once(config, 100)


def test_another_file_is_refused_unless_appended(bootstrap: str, tmp_path: Path) -> None:
    config = job(bootstrap)
    run(config, write_rows(tmp_path / "a.csv.gz", 100))
    behind = write_rows(tmp_path / "b.csv.gz", 50, first_day=5)
    with pytest.raises(ReplayError, match="--append"):
        run(config, behind)
    closed = write_rows(tmp_path / "c.csv.gz", 50, first_day=4)
    with pytest.raises(ReplayError, match=r"row 1 of the file.*with --append, start behind.*Nothing was written"):
        run(config, closed, append=True)
    assert progress(config) == {(4, 100)}
    appended = run(config, behind, append=True)
    assert (appended.rows, appended.step) == (50, 9)
    assert sum(rows_in(records(config, config.streams[0].source)).values()) == 150


def test_a_missing_topic_and_a_wall_clock_are_refused(bootstrap: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.csv.gz", 10)
    with pytest.raises(BrokerError, match="do not exist"):
        run(parse_config(text_of(bootstrap)), path)
    with pytest.raises(ReplayError, match='clock = "replay"'):
        run(parse_config(text_of(bootstrap, clock="wall")), path)


def test_a_topic_whose_ticks_were_deleted_is_refused(bootstrap: str, tmp_path: Path) -> None:
    """Retention took what said how far the replay had come: going on could write rows twice."""
    config = job(bootstrap)
    path = write_rows(tmp_path / "a.csv.gz", 100)
    run(config, path)

    async def delete() -> None:
        async with admin_client(config.kafka) as admin, tail(config.kafka, tps) as end:
            await admin.delete_records({TopicPartition(*tp): RecordsToDelete(end.ends[tp]) for tp in tps})

    tps = [(config.streams[0].source, partition) for partition in range(PARTITIONS)]
    asyncio.run(delete())
    with pytest.raises(ReplayError, match="lost its first records"):
        run(config, path)


def test_speed_paces_and_closes_steps_in_public_time(bootstrap: str, tmp_path: Path) -> None:
    config = job(bootstrap)
    path = write_rows(tmp_path / "a.csv.gz", 20, days=5)
    started = time.monotonic()
    run(config, path, speed=3 * DAY)
    # The last row is 4.75 days after the first.
    assert time.monotonic() - started >= 1.4
    assert_every_row_once(config, 20)


def test_a_second_replay_fences_the_first(bootstrap: str, tmp_path: Path) -> None:
    config = job(bootstrap)
    path = write_rows(tmp_path / "a.csv.gz", 400)

    async def both() -> tuple[Replayed | BaseException, Replayed | BaseException]:
        stream = config.streams[0]
        under_way = asyncio.Event()

        def told(row: int, total: int) -> None:
            if row:  # what is told at 0 is no commit
                under_way.set()

        # 100 s, were it left alone
        slowly = replay(config, stream, path, speed=DAY / 20, chunk_rows=10, progress=told)
        first = asyncio.create_task(slowly)
        await asyncio.wait_for(under_way.wait(), WAIT_AT_MOST_S)
        second = asyncio.create_task(replay(config, stream, path))
        return await asyncio.gather(first, second, return_exceptions=True)

    first, second = asyncio.run(both())
    assert isinstance(first, ReplayError)
    assert isinstance(second, Replayed)
    assert_every_row_once(config, 400)


@pytest.mark.slow
def test_a_killed_replay_goes_on_and_no_row_is_lost_or_doubled(bootstrap: str, tmp_path: Path) -> None:
    """Kills at random moments between the first commit and the last; in the end, all that is there is checked."""
    count = 20_000
    path = write_rows(tmp_path / "a.csv.gz", count)
    text = text_of(bootstrap)
    config = parse_config(text)
    asyncio.run(create_topics(config, source_partitions=PARTITIONS))
    (tmp_path / "job.toml").write_text(text)
    command = [sys.executable, "-m", "tests.kafka.replay_process", str(tmp_path / "job.toml"), str(path)]
    chance = random.Random(5)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for _ in range(2):
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline(), "it ended before it committed anything"
            time.sleep(chance.uniform(0.0, 0.15))
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL, "the file is too short to be killed"
    done = run(config, path)
    assert 0 < done.rows_before < count
    assert done.rows_before + done.rows == count
    assert_every_row_once(config, count)


def test_a_replay_that_is_done_closes_its_steps_on_partitions_added_since(bootstrap: str, tmp_path: Path) -> None:
    """Somebody else added them, before workers had read the last tick: it would come to the old ones alone."""
    config = job(bootstrap)
    path = write_rows(tmp_path / "a.csv.gz", 20)
    step = run(config, path).step
    source = config.streams[0].source

    async def raised() -> list[bytes | None]:
        await add_partitions(bootstrap, source, PARTITIONS + 1)
        again = await replay(config, config.streams[0], path)
        assert (again.rows, again.rows_before) == (0, 20)
        return await last_ticks(config.kafka, {source: PARTITIONS + 1})

    assert {read_tick(tick or b"")[:2] for tick in asyncio.run(raised())} == {(step, 20)}
