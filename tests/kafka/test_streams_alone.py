"""Two streams of one job, on one source topic and at home on one partition: what befalls one leaves the other alone.
The whole worker in this process, on the real broker.
"""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic

import agents.worker.topic_watch
from agents.kafka import stop_log
from agents.kafka.status import status
from agents.kafka.topics import create_topics
from agents.worker.app import ROLES
from agents.worker.process import prepare
from schemas.config import Config
from schemas.config.load import config_from_mapping
from schemas.errors import SourceError, TopicError
from schemas.events import TICK_HEADER, encode_tick
from schemas.topics import Topics
from tests.kafka.ingest_support import START_S, STEP_S
from tests.kafka.support import (
    admin_of,
    create,
    delete,
    delete_records,
    fresh_name,
    producing,
    records_of,
    stream_table,
    until,
    worker,
)

pytestmark = pytest.mark.seconds(4)

EVENTS = 20
SOURCES = 2


class Twins:
    """A job of streams a and b on one source. Args: audit: a has held-out events, which are the same."""

    def __init__(self, bootstrap: str, folder: Path, *, audit: bool = False) -> None:
        self.bootstrap, self.folder, self.name = bootstrap, folder, fresh_name("twins")
        self.a, self.b, self.source = f"{self.name}-a", f"{self.name}-b", f"raw.{self.name}"
        self.held_out = f"held-out.{self.name}" if audit else None
        key = folder / "user-key"
        key.write_bytes(b"sixteen secret bytes or more")
        self.privacy = {
            "epsilon": 1.0,
            "unit": "user",
            "user": "user",
            "max_contributions": 3,
            "user_key_file": str(key),
        }
        self.topics = Topics(self.name, 1)

    def config(self, *streams: str, **job: Any) -> Config:
        return config_from_mapping(self.document(*streams, **job))

    def document(self, *streams: str, **job: Any) -> dict[str, Any]:
        """The configuration as it stands in a file."""
        names = streams or (self.a, self.b)
        options = {"depth": 6, "initial_steps": 1}
        tables = [stream_table(s, source=self.source, privacy=self.privacy, options=options) for s in names]
        for table in tables:
            if self.held_out is not None and table["name"] == self.a:
                table["audit"] = self.held_out
        return {
            "job": {"name": self.name, "data_dir": str(self.folder / "data"), **job},
            "kafka": {"bootstrap": self.bootstrap, "partitions": 1, "session_timeout_s": 6},
            "streams": tables,
        }

    async def create(self) -> None:
        await create_topics(self.config(), source_partitions=SOURCES)

    async def begin(self, steps: int) -> None:
        """The first steps of both streams are public."""
        await self.create()
        await self.send(range(steps))
        async with worker(self.config()):
            for stream in (self.a, self.b):
                await self.until_public(stream, steps - 1)

    async def send(self, steps: range) -> None:
        """Events of new users in each step, and its ticks."""
        async with producing(self.bootstrap) as producer:
            for step, topic in itertools.product(steps, filter(None, (self.source, self.held_out))):
                for number in range(EVENTS):
                    user = f"u{step}-{number}"
                    at = START_S + step * STEP_S
                    value = orjson.dumps({"user": user, "at": at, "x": number / EVENTS, "y": 0.5})
                    await producer.send(topic, value, key=user.encode())
                await producer.flush()
                tick = encode_tick(step, row=0, source="twins")
                for partition in range(SOURCES):
                    await producer.send_and_wait(topic, b"", partition=partition, headers=[(TICK_HEADER, tick)])

    async def published(self, stream: str) -> list[int]:
        return [int(entry.key) for entry in await records_of(self.bootstrap, Topics.ledger(stream))]

    async def until_public(self, stream: str, step: int) -> None:
        await until(lambda: self.published(stream), lambda found: step in found)

    async def stopped(self, config: Config) -> dict[str, list[str]]:
        return {each.stream: [stop.part for stop in each.stopped] for each in await status(config)}


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents.worker.topic_watch, "LOOK_S", 0.5)


async def test_a_lost_ledger_stops_one_stream_now_and_after_a_restart(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    twins = Twins(bootstrap, tmp_path)
    config = twins.config()
    await twins.create()
    await twins.send(range(2))
    async with worker(config) as app:
        for stream in (twins.a, twins.b):
            await twins.until_public(stream, 1)
        assert await twins.stopped(config) == {twins.a: [], twins.b: []}
        await delete(bootstrap, Topics.ledger(twins.a))
        await until(lambda: f"STOPPED: stream {twins.a} (topics)" in caplog.text)
        await twins.send(range(2, 5))
        await twins.until_public(twins.b, 4)
        assert app.crash_reason is None
        await until(
            lambda: stop_log.recorded(config), lambda found: [stop.stream for stop in found.values()] == [twins.a]
        )
    caplog.clear()
    with pytest.raises(TopicError, match="must not be made again empty"):
        await create_topics(config)
    await twins.send(range(5, 6))
    async with worker(config) as app:
        assert f"STOPPED: stream {twins.a} (start): {Topics.ledger(twins.a)}: is gone" in caplog.text
        await twins.until_public(twins.b, 5)
        assert app.crash_reason is None
    assert await twins.published(twins.b) == list(range(6))


async def test_a_foreign_record_stops_the_stream_that_it_names(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ingest and engine read it; both leave the stream out, and the other one's blocks, offsets and answers go on."""
    twins = Twins(bootstrap, tmp_path)
    config = twins.config()
    await twins.begin(2)
    async with producing(bootstrap) as producer:
        await producer.send_and_wait(twins.topics.blocks, b"not a block", key=twins.a.encode(), partition=0)
    for steps in (range(2, 4), range(4, 6)):  # and again after a restart
        caplog.clear()
        await twins.send(steps)
        async with worker(config) as app:
            await twins.until_public(twins.b, steps[-1])
            assert app.crash_reason is None
            assert f"STOPPED: stream {twins.a} (ingest of partition" in caplog.text
            assert f"STOPPED: stream {twins.a} (engine of partition 0)" in caplog.text
            assert f"STOPPED: stream {twins.b}" not in caplog.text
            await until(lambda: twins.stopped(config), lambda found: {"engine", "ingest"} <= set(found[twins.a]))
    assert await twins.published(twins.a) == [0, 1]


@pytest.mark.parametrize("value", [b"{}", None])
async def test_a_record_of_a_ledger_that_is_no_entry_is_named_where_one_looks(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, value: bytes | None
) -> None:
    """`status` says it of the stream, whose last step it still knows, and the worker stops that stream alone."""
    twins = Twins(bootstrap, tmp_path)
    config, named = twins.config(), f"topic {twins.a}.ledger holds a record that is not a ledger entry"
    await twins.begin(2)
    async with producing(bootstrap) as producer:
        await producer.send_and_wait(Topics.ledger(twins.a), value, key=b"7", partition=0)
    one, other = await status(config)
    assert (one.published, other.published) == (1, 1)
    assert (one.health, other.health) == ("foreign record", "no worker")
    assert one.doubt is not None
    assert named in one.doubt.detail
    await twins.send(range(2, 4))
    async with worker(config) as app:
        await twins.until_public(twins.b, 3)
        await until(lambda: f"STOPPED: stream {twins.a} (publish of partition 0): " in caplog.text)
        assert named in caplog.text
        assert app.crash_reason is None


@pytest.mark.parametrize("last", [True, False])
async def test_a_stream_that_was_taken_out_and_put_back_goes_on_where_it_was(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, last: bool
) -> None:
    """Another stream of the same source, group and partition of private topics went on meanwhile; or none did."""
    twins = Twins(bootstrap, tmp_path)
    await twins.begin(3)
    await twins.send(range(3, 6))
    if last:
        async with worker(twins.config(twins.b)):
            assert f"stream {twins.a} was started once and is not configured" in caplog.text
            await twins.until_public(twins.b, 5)
    await twins.send(range(6, 8))
    async with worker(twins.config()):
        for stream in (twins.a, twins.b):
            await twins.until_public(stream, 7)
    for stream in (twins.a, twins.b):
        assert await twins.published(stream) == list(range(8))
    # Each event once: those of the other stream, taken in at one go, are the same.
    assert await _ingested(twins, twins.a) == await _ingested(twins, twins.b)


async def _ingested(twins: Twins, stream: str) -> int:
    """Source offset up to which the group says that the stream's blocks reach, over all partitions."""
    async with admin_of(twins.bootstrap) as admin:
        offsets = await admin.list_consumer_group_offsets(f"{twins.name}-ingest")
    total = 0
    for partition in range(SOURCES):
        found = offsets[TopicPartition(twins.source, partition)]
        total += orjson.loads(found.metadata)["next"][stream]
    return total


async def test_a_retired_stream_holds_nothing_back_and_cannot_come_back_unnoticed(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    twins = Twins(bootstrap, tmp_path)
    await twins.begin(2)
    await twins.send(range(2, 6))
    async with worker(twins.config(twins.b, retired=[twins.a])):
        await twins.until_public(twins.b, 5)

        async def trimmed() -> bool:
            keys = {record.key for record in await records_of(bootstrap, twins.topics.releases)}
            return keys == {twins.b.encode()}

        await until(trimmed)
    assert "was started once" not in caplog.text
    await twins.send(range(6, 8))
    async with worker(twins.config()):
        await twins.until_public(twins.b, 7)
        await until(lambda: f"STOPPED: stream {twins.a} (engine of partition 0)" in caplog.text)
    assert await twins.published(twins.a) == [0, 1]


async def test_what_was_taken_in_of_a_source_that_has_changed_is_published_and_then_the_worker_ends(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The source was made again between two starts. Both streams read it: nothing else is left to do."""
    twins = Twins(bootstrap, tmp_path)
    config = twins.config()
    await twins.create()
    await twins.send(range(4))

    async def taken_in() -> bool:
        keys = [record.key.decode() for record in await records_of(bootstrap, twins.topics.blocks)]
        return all((each.stream in keys and each.over == 3) for each in await status(config))

    app = await prepare(config, insecure_seed=None, roles=("ingest",))
    async with app:
        await until(taken_in)
    await delete(bootstrap, twins.source)
    await create_topics(config, source_partitions=SOURCES)
    await twins.send(range(6))  # of other events at the same offsets
    app = await prepare(config, insecure_seed=None, roles=ROLES)
    with contextlib.suppress(SourceError):
        async with app:
            for stream in (twins.a, twins.b):
                assert f"STOPPED: stream {stream} (ingest)" in caplog.text
                await twins.until_public(stream, 3)
            await until(lambda: app.crash_reason is not None)
            reason = app.crash_reason
    assert isinstance(reason, SourceError)
    assert "made again" in str(reason)
    for stream in (twins.a, twins.b):
        assert await twins.published(stream) == list(range(4))


async def test_measurements_made_again_between_two_starts_are_noticed_and_deleted_ones_are_not_held_against_a_stream(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of stream a the topic is another one of the same name; of stream b everything was deleted, as retention does."""
    twins = Twins(bootstrap, tmp_path)
    await twins.begin(2)
    lost, cut = Topics.measurements(twins.a), Topics.measurements(twins.b)
    for topic in (lost, cut):
        assert await records_of(bootstrap, topic)
    await delete(bootstrap, lost)
    [like] = [each for each in twins.topics.public(twins.a) if each.name == lost]
    await create(bootstrap, NewTopic(lost, 1, 1, topic_configs=dict(like.settings)))
    await delete_records(bootstrap, cut)
    await twins.send(range(2, 4))
    async with worker(twins.config()) as app:
        await until(lambda: f"STOPPED: stream {twins.a} (publish of partition 0): {lost} does not hold" in caplog.text)
        await twins.until_public(twins.b, 3)
        assert app.crash_reason is None
    assert "A lost topic" in caplog.text
    assert await twins.published(twins.a) == [0, 1]
    assert await records_of(bootstrap, lost) == []
