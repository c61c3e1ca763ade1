"""A stream whose users the job routes itself, on the real broker: from producers that place them by another hash."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from agents.kafka.status import status
from agents.kafka.topics import acl_lines, check_topics, create_topics, ends_of
from agents.local.offline.replay import replay
from agents.protocol.partitioner import home_partition
from agents.readers.operator.source_findings import source_findings
from agents.worker.failpoints import VARIABLE
from agents.worker.ingest.add_partitions import add_partitions
from schemas.errors import TopicError
from tests.kafka.ingest_support import BOUND, Bench, check, crowd
from tests.kafka.support import delete, producing, until

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 3
USERS = 40
WRONG = (b"no JSON", b'{"user": 1}', None)


def routed(bootstrap: str, folder: Path) -> Bench:
    """Steps of an hour by the wall clock: none ends here, or hardly one."""
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    time_ = {"clock": "wall", "start": start.strftime("%Y-%m-%dT%H:%M:%S"), "step": "1h"}
    bench = Bench(bootstrap, folder, partitions=PARTITIONS)
    bench.streams = [bench.stream("s", partitioner="any", time=time_)]
    return bench


def produce(bench: Bench, rows: int) -> dict[tuple[int, int], Any]:
    """Send events, and some that are none, by a producer of librdkafka as it is. Returns: place of each -> its user."""
    from confluent_kafka import Producer

    producer, places = Producer({"bootstrap.servers": bench.bootstrap}), dict[tuple[int, int], Any]()

    def send(user: str, value: bytes | None) -> None:
        def delivered(error: Any, message: Any) -> None:
            assert error is None
            places[message.partition(), message.offset()] = user if value not in WRONG else None

        producer.produce(bench.source, value, user, on_delivery=delivered)

    for row in range(rows):
        user = f"u{row % USERS}"
        event = {"user": user, "at": time.time(), "x": 0.5, "y": 0.5}
        send(user, WRONG[row % 30 // 10] if row % 10 == 0 else json.dumps(event).encode())
    assert producer.flush(60) == 0
    return places


async def killed(bench: Bench, failpoint: str) -> None:
    """Run a worker that dies at a place of its code, without a chance to tidy up."""
    config = bench.folder / "job.toml"
    job = {"name": bench.job, "data_dir": str(bench.folder)}
    kafka = {"bootstrap": bench.bootstrap, "partitions": 2, "session_timeout_s": 6}
    config.write_text(tomli_w.dumps({"job": job, "kafka": kafka, "streams": bench.streams}))
    command = [sys.executable, "-m", "agents.cli", "run", str(config)]
    environment = {**os.environ, VARIABLE: failpoint, "PYTHONWARNINGS": "ignore"}
    with (bench.folder / "log").open("ab") as log:
        done = await asyncio.to_thread(
            subprocess.run, command, env=environment, cwd=ROOT, stdout=log, stderr=log, check=False, timeout=120
        )
    assert done.returncode == -signal.SIGKILL, (bench.folder / "log").read_text()[-3000:]


@pytest.mark.nightly
async def test_records_of_any_producer_are_taken_in_once_over_kills(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = routed(bootstrap, tmp_path)
    config, [stream] = bench.config, bench.config.streams
    topic = config.read_by(stream)
    assert topic in await create_topics(config, source_partitions=PARTITIONS)
    assert await check_topics(config) == []
    sent: dict[tuple[int, int], Any] = {}
    # In mid-transaction of a router, whose copies are all written; then between one and the next.
    for failpoint in ("ingest_block_appended:2", "ingest_after_commit:2"):
        sent |= await asyncio.to_thread(produce, bench, 300)
        await killed(bench, failpoint)
    sent |= await asyncio.to_thread(produce, bench, 300)
    assert len(sent) == 900
    events = {place: user for place, user in sent.items() if user is not None}
    assert any(home_partition(user, PARTITIONS) != partition for (partition, _), user in events.items())
    async with bench.running():
        await until(bench.result, lambda result: sum(result.reasons.values()) >= len(sent))
        # What is in blocks goes: it is raw.
        await until(lambda: ends_of(config.kafka, {topic: PARTITIONS}), lambda ends: any(ends[topic][0]))
        [state] = await status(config)
        findings = {finding.what: finding for finding in await source_findings(config)}
    result = await bench.result()
    assert set(result.reasons) == {"ACCEPTED", "OVER_BOUND", "NOT_JSON", "MISSING_FIELD", "EMPTY"}
    assert sum(result.reasons.values()) == len(sent)
    assert result.reasons["ACCEPTED"] == sum(min(BOUND, n) for n in Counter(events.values()).values())
    letters = await bench.letters()
    assert {each.topic for each in letters} == {bench.source}
    assert Counter((each.partition, each.offset) for each in letters) == Counter(sent.keys() - events.keys())
    assert (state.unrouted, state.ingest_lag) == (0, 0)
    assert findings[f"routing of {stream.name}"].detail.startswith("0 records")
    assert "WRONG_PARTITION" not in findings[f"events of {stream.name}"].detail
    await what_cannot_change(bench)


async def test_a_record_is_copied_though_its_source_would_take_it_no_longer(bootstrap: str, tmp_path: Path) -> None:
    """A copy comes later than its record: one record with an old timestamp would end every worker that copies it."""
    bench, old_ms = routed(bootstrap, tmp_path), 2_000
    await bench.create_sources(**{"message.timestamp.before.max.ms": str(old_ms)})
    await create_topics(bench.config)
    await bench.send([{"user": "u", "at": time.time(), "x": 0.5, "y": 0.5}])
    await asyncio.sleep(1.5 * old_ms / 1000)
    async with bench.running() as service:
        await until(bench.result, lambda found: bool(found.reasons or service.crash_reason))
    assert (await bench.result()).reasons == {"ACCEPTED": 1}
    assert await check_topics(bench.config) == []


@pytest.mark.nightly
async def test_a_routed_history_goes_live(bootstrap: str, tmp_path: Path) -> None:
    """Rows of the past two steps, then live producers of librdkafka in the same stream; nobody's bound begins anew."""
    begin = datetime.datetime.now(datetime.UTC).replace(minute=0, second=0, microsecond=0) - datetime.timedelta(hours=3)
    bench = Bench(bootstrap, tmp_path, partitions=PARTITIONS)
    start = begin.strftime("%Y-%m-%dT%H:%M:%S")
    bench.streams = [bench.stream("s", partitioner="any", time={"clock": "replay", "start": start, "step": "1h"})]
    config, [stream] = bench.config, bench.config.streams
    await create_topics(config, source_partitions=PARTITIONS)
    rows = [
        {"user": f"u{row % USERS}", "at": begin.timestamp() + 3600 * (row >= USERS) + row, "x": 0.5, "y": 0.5}
        for row in range(2 * USERS)
    ]
    path = tmp_path / "history.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    until_time = (begin + datetime.timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S")
    async with bench.running():
        done = await replay(config, stream, path, then_live=True, until=until_time)
        assert (done.rows, done.live_from) == (len(rows), 2)
        sent = await asyncio.to_thread(produce, bench, 300)
        await until(bench.result, lambda result: sum(result.reasons.values()) >= len(rows) + len(sent))
    result = await bench.result()
    assert sum(result.reasons.values()) == len(rows) + len(sent)
    assert "WRONG_PARTITION" not in result.reasons
    live = Counter(user for user in sent.values() if user is not None)
    assert result.reasons["ACCEPTED"] == sum(min(BOUND, 2 + live[f"u{user}"]) for user in range(USERS))


async def what_cannot_change(bench: Bench) -> None:
    """The source may grow, and the routed topic may not; nor can it be made again."""
    config, [stream] = bench.config, bench.config.streams
    topic = config.read_by(stream)
    assert any(topic in line and "--operation All" in line for line in acl_lines(config))
    with pytest.raises(TopicError, match="no stream of this configuration reads it"):
        await add_partitions(config, topic, PARTITIONS + 1)
    await until(lambda: add_partitions_now(bench))
    sent = await asyncio.to_thread(produce, bench, 300)
    assert any(partition >= PARTITIONS for partition, _ in sent)
    before = sum((await bench.result()).reasons.values())
    async with bench.running():
        await until(bench.result, lambda result: sum(result.reasons.values()) >= before + len(sent))
    result = await bench.result()
    assert sum(result.reasons.values()) == before + len(sent)
    assert "WRONG_PARTITION" not in result.reasons
    await delete(bench.bootstrap, topic)
    with pytest.raises(TopicError, match="must not be made again empty"):
        await create_topics(config)


async def add_partitions_now(bench: Bench) -> bool:
    """Add partitions to the source, once the last worker's session is over."""
    try:
        return (await add_partitions(bench.config, bench.source, 2 * PARTITIONS)).partitions == 2 * PARTITIONS
    except TopicError:
        return False


async def test_a_replay_is_routed_by_the_ticks_of_each_source_partition(bootstrap: str, tmp_path: Path) -> None:
    """Rows that stand where no user belongs, over a restart in the middle."""
    bench = Bench(bootstrap, tmp_path, partitions=2)
    bench.streams = [bench.stream("s", partitioner="any")]
    await create_topics(bench.config, source_partitions=2)
    events: list[dict[str, Any]] = []
    for step in range(3):
        async with producing(bootstrap) as producer:
            for each in crowd(step):
                at = 1 - bench.home(each["user"])
                await producer.send_and_wait(bench.source, json.dumps(each).encode(), partition=at)
        events += crowd(step)
        async with bench.running():
            await bench.tick(step)
            result = await bench.until_ticked(step)
    check(result, list(events))
