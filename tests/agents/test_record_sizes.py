"""What a topic may be set to, and what the job writes there: compared before anything is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.kafka.clients import MAX_REQUEST_BYTES
from agents.kafka.topics import TopicProblem, _problems_of
from agents.worker.process import _by_stream
from schemas.errors import LostTopicError, TopicError
from schemas.topics import BATCH_BYTES, Topics
from tests.kafka.support import job_config, stream_table

TOPICS = Topics("job", 2)
BY_TRANSACTIONS = [
    *(TOPICS.blocks, TOPICS.held_out, TOPICS.releases, TOPICS.bounds, TOPICS.dead_letters),
    *Topics.published("s"),
]
ALL = {topic.name: topic for topic in (*TOPICS.private(), *TOPICS.public("s"))}


@pytest.mark.parametrize("name", BY_TRANSACTIONS)
def test_a_limit_below_what_is_written_is_a_problem_with_a_command(name: str, tmp_path: Path) -> None:
    config = job_config("broker:9092", tmp_path, streams=[stream_table("s")])
    topic = ALL[name]
    wanted = int(topic.settings["max.message.bytes"])
    assert wanted > BATCH_BYTES
    if name in (TOPICS.blocks, TOPICS.held_out, TOPICS.releases, TOPICS.bounds):
        assert wanted > MAX_REQUEST_BYTES
    for value, problems in ((wanted, 0), (wanted + 1, 0), (wanted - 1, 1)):
        found = {**topic.settings, "max.message.bytes": str(value)}
        told = list(_problems_of(topic, topic.partitions or 0, found, config))
        assert len(told) == problems
        assert all(f"--add-config max.message.bytes={wanted}" in each.fix for each in told)


@pytest.mark.parametrize(("gone", "kind"), [(True, LostTopicError), (False, TopicError)])
def test_a_setting_of_a_public_topic_is_no_lost_topic(gone: bool, kind: type[Exception], tmp_path: Path) -> None:
    config = job_config("broker:9092", tmp_path, streams=[stream_table("s"), stream_table("t")])
    refused = _by_stream(config, [TopicProblem("s.synthetic", "has max.message.bytes = 9", "set it", gone=gone)])
    assert {name: type(error) for name, error in refused.items()} == {"s": kind}
