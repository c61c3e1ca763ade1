"""`topics --add-partitions` on the real broker: killed on its way, refused where it must be; what workers do then.

The long run, killed at every place, is of each night; tests/protocol/test_added_partitions.py stops a run anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
import tomli_w
from aiokafka import TopicPartition
from aiokafka.errors import ProducerFenced

from agents.kafka import stop_log
from agents.kafka.clients import close_client, fenced_producer
from agents.kafka.fingerprint import check_fingerprints, stored_fingerprints
from agents.kafka.lifecycle.stops import Stops
from agents.kafka.topics import admin_client, topic_identities
from agents.worker.ingest.add_partitions import add_partitions
from agents.worker.ingest.counters import IngestCounters
from agents.worker.ingest.partition_task import IngestOptions, SourceTask
from agents.worker.ingest.restore import restore
from agents.worker.ingest.service import IngestService
from agents.worker.ingest.specs import source_specs, user_key_ids
from schemas.blocks import Block
from schemas.errors import SourceError, TopicError
from schemas.events import TICK_HEADER, encode_going_live, encode_tick
from tests.crash.field import ROOT
from tests.kafka.ingest_support import START_S, STEP_S, Bench, event
from tests.kafka.support import producing, records_of, until, worker
from tests.kafka.test_streams_alone import Twins

pytestmark = [pytest.mark.kafka, pytest.mark.seconds(10)]

USERS = 12
BOUND = 3


class Growing(Twins):
    """Streams a and b on one source of two partitions, a with held-out events: everybody sends in each step."""

    partitions = 2

    async def send(self, steps: range) -> None:
        async with producing(self.bootstrap, metadata_max_age_ms=500) as producer:
            for step, topic in itertools.product(steps, filter(None, (self.source, self.held_out))):
                users = [*(f"u{number}" for number in range(USERS)), *(f"new {step} {number}" for number in range(4))]
                for number, user in enumerate(users):
                    at = START_S + step * STEP_S
                    value = orjson.dumps({"user": user, "at": at, "x": number / len(users), "y": 0.5})
                    await producer.send(topic, value, key=user.encode())
                await producer.flush()
                tick = encode_tick(step, row=0, source="growing")
                for partition in range(self.partitions):
                    await producer.send_and_wait(topic, b"", partition=partition, headers=[(TICK_HEADER, tick)])

    async def command(self, topic: str, number: int, *, failpoint: str = "") -> int:
        """The command in a process of its own; returns its exit code."""
        path = self.folder / "job.toml"
        path.write_text(tomli_w.dumps(self.document(keep_private_log=True)))
        environment = {**os.environ, "PRIVSTREAM_FAILPOINTS": failpoint, "PYTHONWARNINGS": "ignore"}
        arguments = ["topics", str(path), "--add-partitions", f"{topic}={number}"]
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-m", "agents.cli", *arguments], env=environment, cwd=ROOT,
            capture_output=True, text=True,
        )  # fmt: skip
        self.said = done.stdout + done.stderr
        return done.returncode

    async def changed(self) -> set[str]:
        """Streams of which a worker that started now would take in nothing more."""
        config = self.config()
        checked = await check_fingerprints(config, user_key_ids=user_key_ids(config))
        return set(checked.changed)

    async def blocks(self, stream: str) -> list[Block]:
        """Those that are left, and may be trimmed."""
        found = [Block.decode(record.value) for record in await records_of(self.bootstrap, self.topics.blocks)]
        return [block for block in found if block.stream == stream]


@pytest.mark.nightly
async def test_users_at_the_bound_stay_there_and_each_step_is_public_once(bootstrap: str, tmp_path: Path) -> None:
    job = Growing(bootstrap, tmp_path, audit=True)
    assert job.held_out is not None
    config = job.config(keep_private_log=True)
    await job.create()
    await job.send(range(4))
    async with worker(config):
        for stream in (job.a, job.b):
            await job.until_public(stream, 3)
        await until_audited(job, 3)
        with pytest.raises(TopicError, match="has members"):
            await add_partitions(config, job.source, 4)
    before = {stream: await public(job, stream) for stream in (job.a, job.b)}

    await job.send(range(4, 5))
    with pytest.raises(TopicError, match=f"{job.source}-0 is read up to offset .*-1 is read up to offset"):
        await add_partitions(config, job.source, 4)
    with pytest.raises(TopicError, match=f"{job.held_out}-0 is read up to offset"):
        await add_partitions(config, job.held_out, 4)  # its tick would never come to the new ones
    async with worker(config):
        await job.until_public(job.b, 4)
        await until_audited(job, 4)
    assert await job.changed() == set()

    replay = await fenced_producer(config.kafka, f"{config.job.name}-replay-{job.b}")  # it knows two partitions
    # Killed on its way, it is run again; until it is done no worker takes in a record.
    for failpoint in ("partitions_added:1", "partition_block_committed:2", "partitions_stored:1"):
        assert await job.command(job.source, 4, failpoint=failpoint) == -signal.SIGKILL
        assert await job.changed() == {job.a, job.b}
        assert await what_a_start_is_told(job) == {job.a, job.b}
    assert await job.command(job.source, 4) == 0, job.said
    assert await job.changed() == set()
    assert (await add_partitions(config, job.source, 4)).streams == []
    assert await job.command(job.held_out, 4, failpoint="partitions_added:1") == -signal.SIGKILL
    assert (await add_partitions(config, job.held_out, 4)).streams == [job.a], "though it has the number by now"
    held_out = [Block.decode(each.value) for each in await records_of(job.bootstrap, job.topics.held_out)]
    assert {block.tick for block in held_out if block.partition >= 2} == {4}

    # A replay that went on, and went live on the old partitions alone, would leave the new ones replayed for ever.
    with pytest.raises(ProducerFenced):
        await go_live(job, replay)
    await close_client(replay)

    job.partitions = 4
    await job.send(range(5, 8))
    async with worker(config):
        for stream in (job.a, job.b):
            await job.until_public(stream, 7)
        await until_audited(job, 7)
    for stream in (job.a, job.b):
        assert [number for number, _ in await public(job, stream)] == list(range(8)), "each step once, in order"
        assert (await public(job, stream))[:4] == before[stream][:4]
        blocks = await job.blocks(stream)
        charges: Counter[tuple[int, ...]] = Counter()
        for block in blocks:
            charges.update(dict(zip(map(tuple, block.users.tolist()), block.increments.tolist(), strict=True)))
        assert max(charges.values()) == BOUND
        assert len(charges) == USERS + 8 * 4
        moved = [block for block in blocks if block.partition >= 2]
        assert sum(block.counts.get("OVER_BOUND", 0) for block in moved) > 0
        assert sum(block.counts.get("ACCEPTED", 0) for block in moved) > 0
        assert {block.partitions for block in moved} == {4}
        assert not any(block.counts.get("WRONG_PARTITION", 0) for block in blocks)


async def what_a_start_is_told(job: Growing) -> set[str]:
    """Streams of which a worker that starts now says how to complete what is half done."""
    found: set[str] = set()

    async def told() -> bool:
        stops = (await stop_log.recorded(job.config())).values()
        found.update(stop.stream for stop in stops if "--add-partitions" in stop.reason + stop.what_to_do)
        return len(found) == 2

    with contextlib.suppress(SourceError, TimeoutError):
        async with worker(job.config()):
            await until(told, timeout_s=15)
    return found


async def go_live(job: Growing, replay: Any) -> None:
    async with replay.transaction():
        for partition in range(2):
            marker = encode_going_live(4, live_from=5, row=0, source="growing")
            await replay.send_and_wait(job.source, b"", partition=partition, headers=[(TICK_HEADER, marker)])


async def public(job: Growing, stream: str) -> list[tuple[int, bytes]]:
    return [(int(entry.key), entry.value) for entry in await records_of(job.bootstrap, f"{stream}.ledger")]


async def until_audited(job: Growing, step: int) -> None:
    await until(
        lambda: records_of(job.bootstrap, f"{job.a}.utility"), lambda found: step in [int(each.key) for each in found]
    )


async def test_a_worker_with_the_old_number_that_wakes_up_takes_in_nothing(bootstrap: str, tmp_path: Path) -> None:
    """It has looked at its source and was stopped before it fenced its partition; its session ran out meanwhile."""
    job = Growing(bootstrap, tmp_path)
    await job.create()
    config = job.config()
    await check_fingerprints(config, user_key_ids=user_key_ids(config))
    specs = source_specs(config, source_partitions=dict.fromkeys((job.a, job.b), 2))
    asleep = IngestService(config, specs)._new_consumer()
    source = TopicPartition(job.source, 0)
    asleep.assign([source])
    await asleep.start()
    try:
        done = await add_partitions(config, job.source, 4)
        assert done.streams == [job.a, job.b]
        assert {each.fields["source_partitions"] for each in (await stored_fingerprints(config)).values()} == {4}
        stops = Stops.of([job.a, job.b])
        task = SourceTask(
            config, source, specs[job.source], options=IngestOptions(), counters=IngestCounters(), stops=stops
        )
        with pytest.raises(SourceError, match="is read as one of 2 partitions, and its bounds are those of 4"):
            await restore(config, asleep, [task])
        assert task.machines == []
        await task.close()
    finally:
        await asleep.stop()


async def test_what_is_refused_changes_nothing(bootstrap: str, tmp_path: Path) -> None:
    job = Growing(bootstrap, tmp_path)
    await job.create()
    config = job.config()
    await check_fingerprints(config, user_key_ids=user_key_ids(config))
    for number, words in ((1, "Kafka takes none away"), (5, "ask for a multiple of 2")):
        with pytest.raises(TopicError, match=words):
            await add_partitions(config, job.source, number)
    with pytest.raises(TopicError, match="no stream of this configuration reads it"):
        await add_partitions(config, "raw.other", 4)
    with pytest.raises(TopicError, match="is not configured"):
        await add_partitions(job.config(job.a), job.source, 4)
    assert await job.changed() == set()
    assert (await add_partitions(job.config(job.a, retired=[job.b]), job.source, 4)).streams == [job.a]
    assert await job.changed() == {job.b}


async def test_steps_of_the_wall_clock_go_on_where_they_were(bootstrap: str, tmp_path: Path) -> None:
    bench = Bench(bootstrap, tmp_path)
    bench.streams = [bench.stream("s", time={"clock": "wall", "grace": "0s"})]
    await bench.create()
    config = bench.config
    await check_fingerprints(config, user_key_ids=user_key_ids(config))
    now_s = START_S + 5 * STEP_S
    async with bench.running(now_us=lambda: now_s * 1_000_000):
        await bench.until_ticked(4)
    await add_partitions(config, bench.source, 6)
    before = await bench.result()
    assert [before.ticks[partition] for partition in range(6)] == [4] * 6
    bench.partitions = 6
    await bench.send([event(f"u{number}", 0) for number in range(12)])
    now_s += STEP_S
    async with bench.running(now_us=lambda: now_s * 1_000_000):
        after = await bench.until_ticked(5)
    assert after.events == {5: 12}, "nothing joins a step that the partition has closed where the users were before"


async def test_a_topic_that_no_stream_has_begun_to_read_is_given_its_partitions(bootstrap: str, tmp_path: Path) -> None:
    job = Growing(bootstrap, tmp_path)
    await job.create()
    for number, words in ((3, "3 partitions in place of 2; no stream had begun"), (3, "nothing to do")):
        assert await job.command(job.source, number) == 0, job.said
        assert words in job.said
        async with admin_client(job.config().kafka) as admin:
            assert (await topic_identities(admin, [job.source]))[job.source].partitions == 3
