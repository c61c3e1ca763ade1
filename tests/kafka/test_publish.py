"""The public schedule: a step is published at its public time, not before; late ones go out at once and are counted."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka.errors import InvalidProducerEpoch, ProducerFenced
from prometheus_client import REGISTRY

import agents.worker.publish
from agents.kafka import clients
from agents.kafka.clients import read_to_end
from agents.kafka.topics import create_topics
from agents.protocol.partitioner import home_partition
from agents.protocol.release.publisher import Publication
from agents.worker.job import Job
from agents.worker.publish import PublishStreamTask, PublishTask
from schemas.blocks import Block
from schemas.config import Config
from schemas.errors import ForkError
from schemas.releases import (
    Candidate,
    Chunk,
    Frames,
    PublicRecord,
    Seed,
    frame_records,
    link,
    sha256,
    split_into_chunks,
)
from schemas.topics import Topics
from tests.entries import entry_like
from tests.kafka.support import fresh_name, job_config, producing, records_of, stream_table, until
from tests.kafka.test_engine import crash_of, running

START_S = 1_577_836_800
STEP_S = 3
DELAY_S = 3


class Clock:
    """A wall clock that stands at `start_s` until it is first asked, however long the worker takes to start."""

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s
        self._asked_s: float | None = None

    def time(self) -> float:
        now_s = time.monotonic()
        if self._asked_s is None:
            self._asked_s = now_s
        return self._start_s + now_s - self._asked_s


def wall_clock(bootstrap: str, folder: Path, *, clock: str = "wall") -> Config:
    """Steps of three seconds, published three seconds after their end."""
    start = datetime.datetime.fromtimestamp(START_S, datetime.UTC).replace(tzinfo=None).isoformat()
    timing = {"field": "at", "format": "s", "start": start, "step": f"{STEP_S}s", "grace": "0s", "clock": clock}
    table = stream_table(fresh_name("s"), time=timing, publish_delay=f"{DELAY_S}s")
    return job_config(bootstrap, folder, streams=[table])


async def tick(config: Config, steps: range, *, live_from: int | None = None) -> None:
    """Empty blocks that close steps on both source partitions."""
    stream = config.streams[0].name
    home = home_partition(stream, config.kafka.partitions)
    async with producing(config.kafka.bootstrap) as producer:
        for step in steps:
            for partition in range(2):
                block = Block(stream, partition, step, step + 1, step, {}, live_from=live_from)
                await producer.send_and_wait(f"{config.job.name}.blocks", block.encode(), partition=home)


def late_steps(config: Config) -> float:
    return REGISTRY.get_sample_value("privstream_late_publications_total", {"stream": config.streams[0].name}) or 0.0


@pytest.mark.parametrize("live", [False, True])
async def test_a_step_waits_for_its_public_time(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    """By the wall clock from the start, or since a replay went live."""
    due = [START_S + (step + 1) * STEP_S + DELAY_S for step in range(3)]
    clock = Clock(due[0] - 2)
    begun: list[float] = []

    def note(name: str) -> None:
        if name == "publish_due":
            begun.append(clock.time())

    monkeypatch.setattr(agents.worker.publish, "time", clock)
    monkeypatch.setattr(agents.worker.publish, "failpoint", note)
    config = wall_clock(bootstrap, tmp_path, clock="replay" if live else "wall")
    await create_topics(config)
    await tick(
        config, range(3), live_from=0 if live else None
    )  # closed far too early: what is computed must still wait
    ledger = Topics.ledger(config.streams[0].name)
    async with running(config):

        async def all_there() -> bool:
            entries = await records_of(bootstrap, ledger)
            assert all(clock.time() >= due[int(entry.key)] for entry in entries)
            return len(entries) == 3

        await until(all_there)
    # Each at its time and not with the next one.
    assert all(at <= started < at + STEP_S for at, started in zip(due, begun, strict=True))
    assert late_steps(config) == 0
    entries = await records_of(bootstrap, ledger)
    assert [entry.timestamp for entry in entries] == [1000 * (START_S + (step + 1) * STEP_S) for step in range(3)]


@pytest.mark.parametrize("held", [clients.MOST_BYTES, 0])
async def test_a_late_step_goes_out_at_once_and_is_counted(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    """Also where every candidate is read from the log again, because nothing may be held."""
    monkeypatch.setattr(clients, "MOST_BYTES", held)
    config = wall_clock(bootstrap, tmp_path)  # all of it years ago
    await create_topics(config)
    await tick(config, range(4))

    async with running(config):
        await until(lambda: records_of(bootstrap, Topics.ledger(config.streams[0].name)), lambda found: len(found) == 4)
    assert late_steps(config) == 4


async def test_a_public_step_with_other_bytes_stops_the_worker(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log was restored from elsewhere: its step 0 is not the one that is public."""

    def candidate(stream: str, note: bytes) -> Candidate:
        payload, chain = frame_records([]), "0" * 64
        return Candidate(
            stream=stream,
            step=0,
            previous_chain=chain,
            chain=link(chain, stream=stream, step=0, digest=sha256(payload), ledger=note),
            digest=sha256(payload),
            payload=payload,
            ledger=note,
            progress={},
            arrays={},
        )

    config = job_config(bootstrap, tmp_path, streams=[stream_table(fresh_name("s"))])
    name = config.streams[0].name
    await create_topics(config)
    home = home_partition(name, config.kafka.partitions)
    answer = candidate(name, b"{}")
    public = msgspec.structs.replace(entry_like(stream=name, step=0, digest="f" * 64), chain="e" * 64)
    async with producing(bootstrap) as producer:
        await producer.send_and_wait(Topics.ledger(name), public.encode(), key=b"0", partition=0)
        log: list[Seed | Chunk] = [
            Seed(name, 0, b"s" * 32),
            *split_into_chunks(answer.encode().release, stream=name, step=0),
        ]
        for record in log:
            await producer.send_and_wait(f"{config.job.name}.releases", record.encode(), partition=home)
    assert isinstance(await crash_of(config, monkeypatch, roles=("publish",)), ForkError)


async def test_two_jobs_with_one_stream_name_cannot_both_publish(bootstrap: str, tmp_path: Path) -> None:
    """Each has read an empty ledger, so each believes that step 0 is its own to publish."""
    name = fresh_name("s")
    first = job_config(bootstrap, tmp_path / "1", streams=[stream_table(name)])
    second = job_config(bootstrap, tmp_path / "2", streams=[stream_table(name)])
    await create_topics(first)
    home = home_partition(name, first.kafka.partitions)
    stream_tasks = []
    for config in (first, second):
        assert config.job.data_dir is not None
        config.job.data_dir.mkdir()
        task = PublishTask(Job(config=config, source_partitions={name: 2}), home)
        stream_tasks.append(PublishStreamTask(task, config.streams[0], task.job.stops))
    await stream_tasks[0].open(first.kafka)
    await stream_tasks[1].open(second.kafka)

    def step(value: bytes) -> Publication:
        return Publication(name, 0, Frames.of(b""), value, "0" * 64)

    with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
        await stream_tasks[0].publish([step(b"first")])
    await stream_tasks[1].publish([step(b"second")])
    for stream_task in stream_tasks:
        await stream_task.close()
    found: list[Any] = []

    async def settled() -> bool:
        found[:] = await records_of(bootstrap, Topics.ledger(name))
        return bool(found)

    await until(settled)  # Kafka says that it is committed before readers can see it
    found += await records_of(bootstrap, Topics.ledger(name), committed=False)
    assert [entry.value for entry in found] == [b"second"] * 2


class _KilledError(Exception):
    """The worker ends here."""


async def test_steps_of_many_batches_are_public_once_whole_and_in_order(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the first attempt ends with all of it sent and nothing committed: that never becomes public."""
    config = job_config(bootstrap, tmp_path, streams=[stream_table(fresh_name("s"))])
    name = config.streams[0].name
    synthetic = [[b"%d %d" % (step, number) for number in range(2_000)] for step in range(3)]

    def steps(worker: bytes) -> list[Publication]:
        return [
            Publication(
                name,
                step,
                Frames.of(
                    frame_records(
                        [
                            *(PublicRecord("synthetic", key, worker * 600) for key in keys),
                            PublicRecord("measurements", b"%d" % step, worker),
                        ]
                    )
                ),
                worker,
                "0" * 64,
            )
            for step, keys in enumerate(synthetic)
        ]

    await create_topics(config)
    home = home_partition(name, config.kafka.partitions)

    async def publish(worker: bytes) -> None:
        # A machine of its own: these steps were never on the release log, where a witness would look for them.
        there = {"data_dir": tmp_path / worker.decode()}
        there["data_dir"].mkdir()
        its_own = config.model_copy(update={"job": config.job.model_copy(update=there)})
        task = PublishTask(Job(config=its_own, source_partitions={name: 2}), home)
        stream_task = PublishStreamTask(task, config.streams[0], task.job.stops)
        await stream_task.open(config.kafka)
        try:
            await stream_task.publish(steps(worker))
        finally:
            await stream_task.close()

    def end(failpoint: str) -> None:
        if failpoint == "publish_appended":
            raise _KilledError

    with monkeypatch.context() as killed:
        killed.setattr(agents.worker.publish, "failpoint", end)
        with pytest.raises(_KilledError):
            await publish(b"1")
    await publish(b"2")
    topics = {"synthetic": Topics.synthetic(name), "measurements": Topics.measurements(name)}
    topics["ledger"] = Topics.ledger(name)
    found = {channel: await read_to_end(config.kafka, topic, 0) for channel, topic in topics.items()}
    keys = {"synthetic": [key for each in synthetic for key in each], "measurements": [b"0", b"1", b"2"]}
    keys["ledger"] = keys["measurements"]
    for channel, records in found.items():
        assert [each.key for each in records] == keys[channel]
        assert {each.value for each in records} == {b"2" * 600 if channel == "synthetic" else b"2"}
        for each in records:
            step = int(each.key.split()[0])
            assert each.headers == (("privstream-step", b"%d" % step),)
            assert each.timestamp == 1000 * (START_S + (step + 1) * 60)
