"""The reader of public topics, on a made-up cluster that goes away: it says so, and goes on where it was."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from agents.kafka import clients
from agents.kafka.topics import TopicIdentity
from agents.readers.consume import ledger
from agents.readers.watch import public as module
from agents.readers.watch import server
from agents.readers.watch.public import PublicReader, StreamSeen
from agents.show.pictures import Picture
from schemas.config import Kafka
from tests.watch.test_seen import STREAM, published


@dataclass
class Cluster:
    """Attributes:

    records: of each topic. away: it answers nothing. ids: of topics. cancels: whoever asks next is cancelled, once.
    open: topic -> records at its end that are written, and not yet shown as committed.
    """

    records: dict[str, list[Any]]
    ids: dict[str, TopicIdentity]
    away: bool = False
    cancels: bool = False
    sought: int = 0
    open: Counter[str] = field(default_factory=Counter)

    async def answers(self) -> None:
        while self.away:  # noqa: ASYNC110  what is waited for sets no event
            await asyncio.sleep(0.01)


@dataclass
class Record:
    offset: int
    headers: Any
    key: bytes
    value: bytes | None


class Consumer:
    cluster: Cluster

    def __init__(self, *, isolation_level: str, **_: Any) -> None:
        self.committed = isolation_level == "read_committed"
        self.at: dict[Any, int] = {}
        self.paused: set[Any] = set()

    def assign(self, partitions: Any) -> None:
        self.at = dict.fromkeys(partitions, 0)

    async def start(self) -> None:
        await self.cluster.answers()

    async def stop(self) -> None:
        """As it is."""

    def seek(self, partition: Any, offset: int) -> None:
        self.cluster.sought += offset > 0
        self.at[partition] = offset

    def pause(self, *partitions: Any) -> None:
        self.paused |= set(partitions)

    def resume(self, *partitions: Any) -> None:
        self.paused -= set(partitions)

    async def seek_to_beginning(self, partition: Any) -> None:
        self.at[partition] = 0

    async def end_offsets(self, partitions: Any) -> Mapping[Any, int]:
        await self.cluster.answers()
        return {each: self.end(each) for each in partitions}

    def end(self, partition: Any) -> int:
        """As far as it is shown."""
        return len(self.cluster.records[partition.topic]) - self.committed * self.cluster.open[partition.topic]

    async def position(self, partition: Any) -> int:
        return self.at[partition]

    async def getmany(self, **_: Any) -> Mapping[Any, list[Any]]:
        await asyncio.sleep(0.01)
        if self.cluster.cancels:
            self.cluster.cancels = False
            raise asyncio.CancelledError
        if self.cluster.away:
            return {}  # as aiokafka: it waits, and says nothing
        read = [each for each in self.at if each not in self.paused]
        found = {each: self.cluster.records[each.topic][self.at[each] : self.end(each)] for each in read}
        self.at |= {each: self.end(each) for each in read}
        return found


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  what is waited for sets no event
            await asyncio.sleep(0.005)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster({f"taxi.{name}": [] for name in ("synthetic", "measurements", "ledger")}, {})
    made.ids = {name: TopicIdentity("a", 1) for name in made.records}
    monkeypatch.setattr(Consumer, "cluster", made, raising=False)
    monkeypatch.setattr(clients, "AIOKafkaConsumer", Consumer)
    monkeypatch.setattr(clients, "close_client", lambda client: client.stop())
    for name in ("ASK_S", "AGAIN_S", "MISSING_S"):
        monkeypatch.setattr(module, name, 0.05)

    async def identities(_: Any, names: list[str]) -> dict[str, TopicIdentity]:
        await made.answers()
        return {name: made.ids[name] for name in names if name in made.ids}

    monkeypatch.setattr(module, "existing_topics", identities)
    return made


def publish(cluster: Cluster, step: int) -> None:
    records, words = published(step + 1)[step]
    for each in records:
        topic = cluster.records[f"taxi.{each.channel}"]
        topic.append(Record(len(topic), [("privstream-step", b"%d" % step)], each.key, each.value))
    ledger = cluster.records["taxi.ledger"]
    ledger.append(Record(len(ledger), [("privstream-step", b"%d" % step)], b"%d" % step, words))


@asynccontextmanager
async def reading(*, kept_up: bool = False) -> AsyncIterator[tuple[PublicReader, StreamSeen]]:
    """A reader that runs until the body is left. Args: kept_up: it begins anew where it ends."""
    seen = StreamSeen(STREAM, Picture())
    reader = PublicReader(Kafka(bootstrap="made.up:1"), [seen])
    task = asyncio.create_task(server._kept_up(reader.run) if kept_up else reader.run())
    try:
        yield reader, seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        seen.close()


async def test_it_says_when_the_cluster_is_away_and_goes_on_where_it_was(cluster: Cluster) -> None:
    async with reading() as (reader, seen):
        publish(cluster, 0)
        await until(lambda: seen.step == 0 and reader.problem is None)
        news = reader.news
        cluster.away = True
        await until(lambda: reader.problem == "the cluster does not answer")
        assert news.is_set()
        publish(cluster, 1)
        cluster.away = False
        await until(lambda: seen.step == 1 and reader.problem is None)
        assert seen.summary()["verdicts"] == {"verified": 2}  # nothing was read twice
        assert cluster.sought == 3


@pytest.mark.parametrize("channel", ["synthetic", "measurements"])
async def test_a_step_whose_commit_is_shown_of_its_ledger_first_is_waited_for(cluster: Cluster, channel: str) -> None:
    """Once it was judged by what was shown: as compacted, and what came next as records of somebody else."""
    async with reading() as (reader, seen):
        cluster.open[f"taxi.{channel}"] = 1
        publish(cluster, 0)
        await until(lambda: seen.open == 0 and reader.problem is None)
        await asyncio.sleep(0.2)
        assert seen.step == -1
        cluster.open.clear()
        await until(lambda: seen.step == 0)
        assert (seen.summary()["verdicts"], seen.summary()["beyond"]) == ({"verified": 1}, None)


async def test_topics_that_are_not_there_yet_or_are_others_now_are_said_and_not_read(cluster: Cluster) -> None:
    ids, cluster.ids = cluster.ids, {}
    async with reading() as (reader, seen):
        await until(lambda: "does not exist yet" in (reader.problem or ""))
        cluster.ids = ids
        publish(cluster, 0)
        await until(lambda: seen.step == 0 and reader.problem is None)
        cluster.ids = {**ids, "taxi.ledger": TopicIdentity("b", 1)}
        cluster.away = True
        await until(lambda: reader.problem == "the cluster does not answer")
        cluster.away = False
        await until(lambda: "made anew" in (reader.problem or ""))
        publish(cluster, 1)
        await asyncio.sleep(0.2)
        assert seen.step == 0


async def test_a_record_that_names_no_step_is_counted_and_the_page_goes_on(cluster: Cluster) -> None:
    topic = cluster.records["taxi.synthetic"]
    for step in (b"abc", None, b"-5", b"9" * 5000, b"3000000000", "\u0663".encode(), b""):
        topic.append(Record(len(topic), [("privstream-step", step)], b"k", b"{}"))
    publish(cluster, 0)
    async with reading() as (_reader, seen):
        await until(lambda: seen.step == 0)
        assert (seen.summary()["unreadable"], seen.summary()["verdicts"]) == (7, {"verified": 1})


def test_a_record_that_ends_the_reader_is_not_read_again() -> None:
    class Ends(StreamSeen):
        def take(self, *_: Any) -> None:
            raise ZeroDivisionError

    seen = Ends(STREAM, Picture())
    reader = PublicReader(Kafka(bootstrap="made.up:1"), [seen])
    with pytest.raises(ZeroDivisionError):
        reader._take("taxi.synthetic", [Record(7, [("privstream-step", b"0")], b"k", b"{}")])
    assert seen.positions == {"taxi.synthetic": 8}


async def test_a_reader_that_begins_anew_goes_on_with_a_step_that_is_kept_in_a_file(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "IN_MEMORY", 0)  # every record is beyond it
    monkeypatch.setattr(server, "AGAIN_S", 0.0)
    publish(cluster, 0)
    topic, last = "taxi.synthetic", cluster.records["taxi.synthetic"].pop()
    entry = cluster.records["taxi.ledger"].pop()
    async with reading(kept_up=True) as (_reader, seen):
        await until(lambda: seen.positions.get(topic) == last.offset > 0)
        cluster.cancels = True
        await until(lambda: cluster.sought)  # the next one began where this one was
        cluster.records[topic].append(last)
        cluster.records["taxi.ledger"].append(entry)
        await until(lambda: seen.step == 0)
        assert (seen.summary()["verdicts"], seen.unreadable) == ({"verified": 1}, 0)


async def test_the_ledger_is_read_before_the_records(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    take = StreamSeen.take

    def noted(self: StreamSeen, channel: Any, *rest: Any) -> None:
        taken.append(channel)
        take(self, channel, *rest)

    monkeypatch.setattr(StreamSeen, "take", noted)

    for step in range(3):
        publish(cluster, step)
    async with reading() as (_reader, seen):
        await until(lambda: seen.step == 2)
        assert taken[:3] == ["ledger"] * 3
        assert "ledger" not in taken[3:]


def test_other_readers_of_public_topics_refuse_or_pass_over_such_a_record(caplog: pytest.LogCaptureFixture) -> None:
    from types import SimpleNamespace

    from agents.readers.consume.ledger import PublicRecordsError
    from agents.readers.consume.reader import _Steps
    from agents.worker.audit import AuditStreamTask

    record = Record(7, [("privstream-step", b"abc")], b"k", b"{}")
    log: Any = SimpleNamespace(topic=SimpleNamespace(topic="taxi.synthetic"), read=lambda: None)
    with pytest.raises(PublicRecordsError, match="offset 7"):
        _Steps(log, "synthetic", 0)._step_of(record)
    taken: list[int] = []
    machine: Any = SimpleNamespace(stream=STREAM, on_synthetic=lambda offset, *_: taken.append(offset))
    task = AuditStreamTask(None, machine)  # type: ignore[arg-type]
    with caplog.at_level("WARNING"):
        task._on_public(False, record)
    assert "offset 7" in caplog.text
    task._on_public(False, Record(8, [("privstream-step", b"0")], b"k", b"{}"))
    assert taken == [8]
