"""A topic that goes away under a running worker stops those who cannot do without it; a slow broker stops nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.lifecycle.cluster import passes
from agents.lifecycle.stops import Stops
from agents.lifecycle.watch import LOOKS, Looks, TopicWatch, concerned
from agents.topic_admin import needed_topics
from agents.topic_ids import TopicIdentity
from schemas.config import Config
from schemas.errors import BrokerError, LostTopicError
from tests.kafka.support import job_config, stream_table


def two_streams(folder: Path) -> Config:
    tables = [stream_table("a"), stream_table("b", audit="held-out.b")]
    return job_config("localhost:1", folder, streams=tables, job="j")


def known(config: Config) -> dict[str, TopicIdentity]:
    return {topic.name: TopicIdentity(f"id of {topic.name}", 1) for topic in needed_topics(config)}


def watch(config: Config) -> tuple[TopicWatch, Stops]:
    stops = Stops.of(["a", "b"])
    return TopicWatch(config, stops, known(config)), stops


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
    tmp_path: Path, topic: str, stopped: list[tuple[str, str]]
) -> None:
    config = two_streams(tmp_path)
    watching, stops = watch(config)
    for _ in range(LOOKS + 2):
        watching.judge(without(config, topic))
    assert [(stop.stream, stop.part) for stop in stops] == stopped
    for stop in stops:
        assert stop.reason == f"stream {stop.stream}: topic {topic} was deleted while the worker ran"
        assert "A lost topic" in stop.what_to_do


@pytest.mark.parametrize("topic", ["j.blocks", "j.releases", "j.bounds", "j.fingerprints"])
def test_without_one_of_the_jobs_own_topics_nothing_is_left_to_do(tmp_path: Path, topic: str) -> None:
    config = two_streams(tmp_path)
    watching, _ = watch(config)
    for _ in range(LOOKS - 1):
        watching.judge(without(config, topic))
    with pytest.raises(LostTopicError, match=f"topic {topic} was deleted"):
        watching.judge(without(config, topic))


def test_a_lost_changelog_begins_the_worker_anew(tmp_path: Path) -> None:
    config = two_streams(tmp_path)
    watching, stops = watch(config)
    for _ in range(LOOKS - 1):
        watching.judge(without(config, "j-state-changelog"))
    with pytest.raises(BrokerError, match="made again") as lost:
        watching.judge(without(config, "j-state-changelog"))
    assert passes(lost.value)
    assert not list(stops)


def test_a_topic_of_the_same_name_is_another_one_at_once(tmp_path: Path) -> None:
    config = two_streams(tmp_path)
    looks = Looks(known(config))
    again = {**known(config), "raw.a": TopicIdentity("another", 1)}
    assert looks.look(again) == {"raw.a": "was deleted and made again while the worker ran: what it held is gone"}
    assert looks.look(again) == {}, "it is told once"


def test_a_broker_that_does_not_know_a_topic_for_a_moment_has_not_lost_it(tmp_path: Path) -> None:
    config = two_streams(tmp_path)
    looks = Looks(known(config))
    for _ in range(5):
        for _ in range(LOOKS - 1):
            assert looks.look(without(config, "raw.a")) == {}
        assert looks.look(known(config)) == {}


def test_every_topic_that_a_stream_cannot_do_without_concerns_it(tmp_path: Path) -> None:
    config = two_streams(tmp_path)
    jobs_own = [topic.name for topic in needed_topics(config) if topic.partitions]
    nobodys = {name for name in jobs_own if not concerned(name, config)}
    assert nobodys == {"j.dead-letters", "j.stops", "j-state-changelog", "a.utility"}
