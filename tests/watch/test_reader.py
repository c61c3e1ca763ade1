"""The reader of public topics, on a made-up cluster that goes away: it says so, and goes on where it was."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from agents.kafka.topics.ids import TopicIdentity
from agents.pictures.contract import CountPicture
from agents.watch.public import reader as module
from agents.watch.public.reader import PublicReader
from agents.watch.public.seen import StreamSeen
from schemas.config import Kafka
from tests.watch.test_seen import STREAM, published


@dataclass
class Cluster:
    """Attributes:

    records: of each topic. away: it answers nothing. ids: of topics.
    """

    records: dict[str, list[Any]]
    ids: dict[str, TopicIdentity]
    away: bool = False
    sought: int = 0

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

    def __init__(self, **_: Any) -> None:
        self.at: dict[Any, int] = {}

    def assign(self, partitions: Any) -> None:
        self.at = dict.fromkeys(partitions, 0)

    async def start(self) -> None:
        await self.cluster.answers()

    async def stop(self) -> None:
        """As it is."""

    def seek(self, partition: Any, offset: int) -> None:
        self.cluster.sought += offset > 0
        self.at[partition] = offset

    async def seek_to_beginning(self, partition: Any) -> None:
        self.at[partition] = 0

    async def end_offsets(self, partitions: Any) -> Mapping[Any, int]:
        await self.cluster.answers()
        return {each: len(self.cluster.records[each.topic]) for each in partitions}

    async def position(self, partition: Any) -> int:
        return self.at[partition]

    async def getmany(self, **_: Any) -> Mapping[Any, list[Any]]:
        await asyncio.sleep(0.01)
        if self.cluster.away:
            return {}  # as aiokafka: it waits, and says nothing
        found = {each: self.cluster.records[each.topic][start:] for each, start in self.at.items()}
        self.at = {each: len(self.cluster.records[each.topic]) for each in self.at}
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
    monkeypatch.setattr(module, "AIOKafkaConsumer", Consumer)
    for name in ("ASK_S", "AGAIN_S", "MISSING_S"):
        monkeypatch.setattr(module, name, 0.05)

    @asynccontextmanager
    async def admin(_: Any) -> Any:
        await made.answers()
        yield None

    async def identities(_: Any, names: list[str]) -> dict[str, TopicIdentity]:
        return {name: made.ids[name] for name in names if name in made.ids}

    monkeypatch.setattr(module, "admin_client", admin)
    monkeypatch.setattr(module, "topic_identities", identities)
    monkeypatch.setattr(module, "close_client", lambda client: client.stop())
    return made


def publish(cluster: Cluster, step: int) -> None:
    records, words = published(step + 1)[step]
    for each in records:
        topic = cluster.records[f"taxi.{each.channel}"]
        topic.append(Record(len(topic), [("privstream-step", b"%d" % step)], each.key, each.value))
    ledger = cluster.records["taxi.ledger"]
    ledger.append(Record(len(ledger), [("privstream-step", b"%d" % step)], b"%d" % step, words))


def test_it_says_when_the_cluster_is_away_and_goes_on_where_it_was(cluster: Cluster) -> None:
    async def run() -> None:
        seen = StreamSeen(STREAM, CountPicture())
        reader = PublicReader(Kafka(bootstrap="made.up:1"), [seen])
        task = asyncio.create_task(reader.run())
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
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_topics_that_are_not_there_yet_or_are_others_now_are_said_and_not_read(cluster: Cluster) -> None:
    async def run() -> None:
        seen = StreamSeen(STREAM, CountPicture())
        reader = PublicReader(Kafka(bootstrap="made.up:1"), [seen])
        ids, cluster.ids = cluster.ids, {}
        task = asyncio.create_task(reader.run())
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
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
