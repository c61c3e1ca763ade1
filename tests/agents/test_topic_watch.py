"""A topic that goes away under a running worker stops those who cannot do without it; a slow broker stops nobody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError

import agents.worker.topic_watch
from agents.kafka import stop_log
from agents.kafka.cluster import passes
from agents.kafka.lifecycle.stops import Part, Stop, Stops
from agents.kafka.lifecycle.vitals import Reach, Reading, Vitals
from agents.kafka.topics import MetadataWithIds, TopicIdentity, needed_topics
from agents.worker.topic_watch import LOOKS, Looks, TopicWatch, concerned
from schemas.config import Config
from schemas.errors import AccessError, BrokerError, LostTopicError
from schemas.topics import TopicAndPartition
from tests.kafka.support import job_config, stream_table


@pytest.fixture
def config(tmp_path: Path) -> Config:
    tables = [stream_table("a"), stream_table("b", audit="held-out.b")]
    return job_config("localhost:1", tmp_path, streams=tables, job="j")


def known(config: Config) -> dict[str, TopicIdentity]:
    return {topic.name: TopicIdentity(f"id of {topic.name}", 1) for topic in needed_topics(config)}


def watch(config: Config) -> tuple[TopicWatch, Stops]:
    stops = Stops.of(["a", "b"])
    return TopicWatch(config, stops, known(config), Vitals()), stops


def without(config: Config, topic: str) -> dict[str, TopicIdentity]:
    return {name: identity for name, identity in known(config).items() if name != topic}


@pytest.mark.parametrize(
    ("topic", "stopped"),
    [
        ("a.ledger", [("a", "topics")]),
        ("a.synthetic", [("a", "topics")]),
        ("b.measurements", [("b", "topics")]),
        ("b.utility", [("b", "audit")]),
        ("j.truth", [("b", "audit")]),
        ("j.dead-letters", []),
        ("j.stops", []),
    ],
)
def test_a_topic_that_is_gone_stops_the_parts_that_need_it(
    config: Config, topic: str, stopped: list[tuple[str, str]]
) -> None:
    watching, stops = watch(config)
    for _ in range(LOOKS + 2):
        watching.judge(without(config, topic))
    assert [(stop.stream, stop.part) for stop in stops] == stopped
    for stop in stops:
        assert stop.reason == f"stream {stop.stream}: topic {topic} was deleted while the worker ran"
        assert "A lost topic" in stop.what_to_do


@pytest.mark.parametrize("topic", ["j.blocks", "j.releases", "j.bounds", "j.fingerprints"])
def test_without_one_of_the_jobs_own_topics_nothing_is_left_to_do(config: Config, topic: str) -> None:
    watching, _ = watch(config)
    for _ in range(LOOKS - 1):
        watching.judge(without(config, topic))
    with pytest.raises(LostTopicError, match=f"topic {topic} was deleted"):
        watching.judge(without(config, topic))


def test_a_lost_changelog_begins_the_worker_anew(config: Config) -> None:
    watching, stops = watch(config)
    for _ in range(LOOKS - 1):
        watching.judge(without(config, "j-state-changelog"))
    with pytest.raises(BrokerError, match="made again") as lost:
        watching.judge(without(config, "j-state-changelog"))
    assert passes(lost.value)
    assert not list(stops)


class Cluster:
    """Answers the question for topics: some it does not know, some it does not tell."""

    def __init__(self, known: Mapping[str, TopicIdentity], *, refuses: Collection[str]) -> None:
        self._client, self._known, self._refuses = self, known, refuses

    def get_random_node(self) -> int:
        return 0

    async def send(self, _: int, asked: MetadataWithIds) -> Any:
        return SimpleNamespace(topics=[self._answer(name) for name in asked._topics])

    def _answer(self, name: str) -> tuple[Any, ...]:
        if name in self._refuses:
            return (TopicAuthorizationFailedError.errno, name, bytes(16), False, [], 0, {})
        if name in self._known:
            return (0, name, bytes(16), False, [None], 0, {})
        return (UnknownTopicOrPartitionError.errno, name, bytes(16), False, [], 0, {})


async def test_a_topic_that_it_may_not_see_is_told_and_the_others_are_judged(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = {topic.name: TopicIdentity(bytes(16).hex(), 1) for topic in needed_topics(config)}
    cluster = Cluster({n: i for n, i in names.items() if n != "a.ledger"}, refuses=["b.measurements"])
    stops, looks = Stops.of(["a", "b"]), 0
    watching = TopicWatch(config, stops, names, Vitals())

    async def slept(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks > LOOKS + 3:
            watching._stopped.set()

    async def noted(*_: Any) -> None:
        pass

    monkeypatch.setattr(watching, "sleep", slept)
    monkeypatch.setattr(stop_log, "record", noted)
    await watching._look(cluster)
    assert [(stop.stream, stop.part) for stop in stops] == [("a", "topics")], "b is not blamed"
    [line] = [record.getMessage() for record in caplog.records if "cannot be looked at" in record.getMessage()]
    assert "b.measurements" in line
    assert "What to do" in line
    assert "--acls" in line


def test_a_cluster_that_refuses_it_is_told_once_a_minute(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watching, _ = watch(config)
    tries = 0

    @contextlib.asynccontextmanager
    async def refused(_: Any) -> AsyncIterator[Any]:
        nonlocal tries
        tries += 1
        if tries == 3:
            watching._stopped.set()
        raise AccessError("authentication failed") if tries > 1 else BrokerError("nobody there")
        yield

    async def slept(_: float) -> None:
        pass

    waited: list[object] = []

    async def answered(kafka: object) -> None:
        """What says in the log that the cluster is waited for."""
        waited.append(kafka)
        if tries > 1:
            raise AccessError("authentication failed")

    monkeypatch.setattr(agents.worker.topic_watch, "admin_client", refused)
    monkeypatch.setattr(agents.worker.topic_watch, "until_it_answers", answered)
    monkeypatch.setattr(watching, "sleep", slept)
    asyncio.run(TopicWatch._watch.fun(watching))
    assert tries == len(waited) == 3
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "authentication failed" in line


def test_a_topic_of_the_same_name_is_another_one_at_once(config: Config) -> None:
    looks = Looks(known(config))
    again = {**known(config), "raw.a": TopicIdentity("another", 1)}
    assert looks.look(again) == {"raw.a": "was deleted and made again while the worker ran: what it held is gone"}
    assert looks.look(again) == {}, "it is told once"


def test_a_broker_that_does_not_know_a_topic_for_a_moment_has_not_lost_it(config: Config) -> None:
    looks = Looks(known(config))
    for _ in range(5):
        for _ in range(LOOKS - 1):
            assert looks.look(without(config, "raw.a")) == {}
        assert looks.look(known(config)) == {}


def test_every_topic_that_a_stream_cannot_do_without_concerns_it(config: Config) -> None:
    jobs_own = [topic.name for topic in needed_topics(config) if topic.partitions]
    nobodys = {name for name in jobs_own if not concerned(name, config)}
    assert nobodys == {"j.dead-letters", "j.stops", "j.clock", "j-state-changelog", "a.utility"}


@pytest.mark.parametrize(
    ("part", "partition", "read"),
    [
        ("engine", 0, ("j.blocks", 0)),
        ("publish", 0, ("j.releases", 0)),
        ("audit", None, ("j.truth", 0)),
        ("topics", None, ("j.blocks", 0)),
        ("start", None, ("j.blocks", 0)),
        ("ingest", 1, ("raw.b", 1)),
        ("ingest", None, ("raw.b", 0)),
    ],
)
def test_a_stop_is_over_when_all_that_it_came_of_is_read_again(
    config: Config, part: Part, partition: int | None, read: TopicAndPartition
) -> None:
    """Not when a worker starts, is ready, or has read what others need: `status` would say ok until it stops again."""
    config = config.model_copy(update={"kafka": config.kafka.model_copy(update={"partitions": 1})})
    vitals, stops = Vitals(), Stops.of(["a", "b"])
    watching = TopicWatch(config, stops, {}, vitals)
    stop = Stop("b", part, partition, "a reason", "advice", at_ms=0)
    everything = {(topic, at) for topic in ("j.blocks", "j.releases", "j.truth", "raw.a", "raw.b") for at in (0, 1)}
    vitals.caught_up["all"] = set(everything)
    assert not watching.over(stop), "it is not ready"
    vitals.phase = ""
    assert watching.over(stop)
    vitals.caught_up["all"] = everything - {read} - ({("raw.b", 1)} if partition is None else set())
    assert not watching.over(stop)
    vitals.caught_up["all"] = {read}
    assert watching.over(stop)
    assert watching.over(Stop("", "worker", None, "a reason", "advice", at_ms=0))
    stops.add("b", part, partition, LostTopicError("stream b: again"))
    assert not watching.over(stop), "it has stopped again"


def test_a_partition_is_read_again_once_its_first_end_is_reached_and_its_reader_idle() -> None:
    reading, tp = Reading(), ("j.blocks", 0)
    assert reading.caught_up({tp: Reach(3, 9)}, ()) == set()
    assert reading.caught_up({tp: Reach(9, 20)}, {tp}) == set(), "it is at work on what it read"
    assert reading.caught_up({tp: Reach(9, 20)}, ()) == {tp}
    assert reading.caught_up({}, ()) == set(), "somebody else has it"
    assert reading.caught_up({tp: Reach(12, 20)}, ()) == set(), "it came back, and is read anew"
