"""Topics are created as `schemas.topics` says, checked against it, and access rules keep private ones private."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from aiokafka.admin import NewTopic

from agents.kafka.fingerprint import stored_fingerprints
from agents.kafka.topics import (
    acl_lines,
    admin_client,
    altering,
    check_topics,
    create_topics,
    needed_topics,
    topic_identities,
)
from agents.readers.operator.doctor import cluster_findings
from agents.worker.app import ROLES
from agents.worker.process import prepare
from schemas.config import Kafka
from schemas.errors import BrokerError, ConfigError
from schemas.topics import Topics
from tests.kafka.support import create, fresh_name, job_config, stream_table

BY_BROKER = {"message.timestamp.type": "LogAppendTime"}


async def test_created_topics_pass_the_check_and_are_created_once(bootstrap: str, tmp_path: Path) -> None:
    config = job_config(bootstrap, tmp_path, streams=[stream_table(fresh_name("s"))])
    missing = await check_topics(config)
    said = [each for each in await cluster_findings(config) if each.what.startswith("topic")]
    assert len(said) == 2, "what --create makes, and what producers make"
    assert f"each of {len(missing) - 1} does not exist: " in said[0].detail
    needed = {topic.name for topic in needed_topics(config) if not topic.optional}
    assert {problem.topic for problem in missing} == needed
    created = await create_topics(config)
    assert set(created) == {topic.name for topic in needed_topics(config) if topic.partitions}
    assert set(created) - needed == {f"{config.job.name}.clock"}, "asked for the time once the replay goes live"
    (left,) = await check_topics(config)
    assert left.topic == config.streams[0].source
    assert "does not exist" in str(left)
    assert await create_topics(config, source_partitions=3) == [config.streams[0].source]
    assert await check_topics(config) == []
    assert await create_topics(config, source_partitions=3) == []


async def test_a_topic_of_another_shape_is_named_with_its_fix(bootstrap: str, tmp_path: Path) -> None:
    config = job_config(bootstrap, tmp_path, streams=[stream_table(fresh_name("s"))])
    topics = config.topics
    # Time retention would delete private records that are still needed, on its own schedule.
    await create(bootstrap, NewTopic(topics.blocks, 2, 1), NewTopic(topics.releases, 5, 1))
    await create_topics(config, source_partitions=2)
    found = await check_topics(config)
    # What can be typed as it stands: Kafka's programs know no cluster by themselves.
    fixes = [problem.fix for problem in found if "retention.ms" in problem.reason]
    assert f"kafka-configs.sh --bootstrap-server {bootstrap} --alter --topic {topics.blocks} --add-config " in fixes[0]
    secured = config.kafka.model_copy(update={"security_protocol": "SASL_SSL"})
    assert f"{bootstrap} --command-config admin.properties --alter" in altering(secured, "t", "retention.ms", "-1")
    problems = {(problem.topic, problem.reason) for problem in found}
    assert (topics.releases, "has 5 partitions and needs 2") in problems
    assert any(topic == topics.blocks and "retention.ms" in reason for topic, reason in problems)
    assert {topic for topic, _ in problems} == {topics.blocks, topics.releases}


async def test_a_public_topic_that_says_when_it_was_written_to_is_refused(bootstrap: str, tmp_path: Path) -> None:
    """By a default of its brokers (`log.message.timestamp.type`) it would hold the time of computing of each step."""
    config = job_config(bootstrap, tmp_path, streams=[stream_table(fresh_name("s"))])
    published = Topics.published(config.streams[0].name)
    await create(bootstrap, *(NewTopic(name, 1, 1, topic_configs=BY_BROKER) for name in published))
    await create_topics(config, source_partitions=1)
    refused = [each for each in await check_topics(config) if "timestamp" in each.reason]
    assert {each.topic for each in refused} == set(published)
    assert refused[0].fix.endswith("--add-config message.timestamp.type=CreateTime")


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
async def test_a_compacted_source_is_refused_unless_every_reader_allows_it(
    bootstrap: str, tmp_path: Path, policy: str
) -> None:
    """Compaction deletes events that were not read yet, and nothing is left to tell how many."""
    name, source = fresh_name("s"), fresh_name("raw")
    one, other = stream_table(name, source=source), stream_table(f"{name}-t", source=source)
    config = job_config(bootstrap, tmp_path, streams=[one, other])
    await create(bootstrap, NewTopic(source, 1, 1, topic_configs={"cleanup.policy": policy}))
    await create_topics(config)
    (problem,) = await check_topics(config)
    assert problem.topic == source
    assert "cleanup.policy = compact" in problem.reason
    assert "allow_compacted = true" in problem.fix
    findings = await cluster_findings(config)
    assert [each.verdict for each in findings if each.what == "topic"] == ["problem"]
    with pytest.raises(BrokerError, match=f"{source}: is a source with cleanup.policy = compact"):
        await prepare(config, insecure_seed=None, roles=ROLES)
    half = [one | {"allow_compacted": True}, other]
    assert len(await check_topics(job_config(bootstrap, tmp_path, streams=half, job=config.job.name))) == 1
    both = [table | {"allow_compacted": True} for table in (one, other)]
    assert await check_topics(job_config(bootstrap, tmp_path, streams=both, job=config.job.name)) == []


def test_readers_may_read_public_topics_and_nothing_else(tmp_path: Path) -> None:
    config = job_config("localhost:9092", tmp_path, streams=[stream_table("taxi", audit="audit.taxi")], job="job")
    lines = acl_lines(config, reader="User:outside", worker="User:job")
    rights: dict[tuple[str, str, str], set[str]] = {}
    for line in lines:
        words = shlex.split(line)
        assert words[:4] == ["kafka-acls.sh", "--bootstrap-server", "localhost:9092", "--add"]
        given = list(zip(words[4::2], words[5::2], strict=True))
        pattern = "".join(value for option, value in given if option == "--resource-pattern-type")
        (principal,) = (value for option, value in given if option == "--allow-principal")
        for kind in ("topic", "group", "transactional-id"):
            for name in (value for option, value in given if option == f"--{kind}"):
                operations = {value for option, value in given if option == "--operation"}
                rights.setdefault((principal, kind, name + "*" * (pattern == "prefixed")), set()).update(operations)
    public = ("taxi.synthetic", "taxi.measurements", "taxi.ledger")
    private = {topic.name for topic in needed_topics(config) if topic.partitions is not None} - set(public)
    assert {"taxi.utility", "job.bounds", "job-state-changelog"} <= private
    assert rights == {
        **{("User:outside", "topic", name): {"Read"} for name in public},
        ("User:outside", "group", "outside"): {"Read"},
        **{("User:job", "topic", name): {"All"} for name in {*public, *private}},
        **{("User:job", "topic", f"{name}.taxi"): {"Read", "DescribeConfigs", "Write"} for name in ("raw", "audit")},
        **{("User:job", "group", name): {"Read"} for name in ("job", "job-ingest")},
        **{("User:job", "transactional-id", f"job-{role}-*"): {"Write"} for role in ("ingest", "engine", "replay")},
        ("User:job", "transactional-id", "privstream-publisher-taxi"): {"Write"},
    }


def test_a_live_source_is_only_read_and_a_secured_cluster_is_asked_as_its_administrator(tmp_path: Path) -> None:
    live = stream_table("taxi")
    live["time"] = {**live["time"], "clock": "wall"}
    config = job_config("localhost:9092", tmp_path, streams=[live], job="job")
    assert not any("--operation Write --topic" in line for line in acl_lines(config))
    kafka = config.kafka.model_copy(update={"security_protocol": "SSL"})
    lines = acl_lines(config.model_copy(update={"kafka": kafka}), reader="User:CN=ann b", reader_group="dashboards")
    assert all(" --command-config admin.properties --add " in line for line in lines)
    assert "--allow-principal 'User:CN=ann b' --operation Read --group dashboards" in lines[-1]


@pytest.mark.parametrize("group", ["job", "job-ingest"])
def test_readers_never_get_a_group_of_the_job(tmp_path: Path, group: str) -> None:
    """Its offsets count private events."""
    config = job_config("localhost:9092", tmp_path, streams=[stream_table("taxi")], job="job")
    with pytest.raises(ConfigError, match="is a group of the job"):
        acl_lines(config, reader="User:ann", reader_group=group)


async def test_a_source_that_must_have_one_partition_gets_one_and_is_refused_with_more(
    bootstrap: str, tmp_path: Path
) -> None:
    """Nothing is remembered of a stream that cannot begin: its source may still be made anew."""
    (tmp_path / "user.key").write_bytes(bytes(range(32)))
    alone = stream_table(fresh_name("s"), partitioner="none")
    alone["privacy"] = {**alone["privacy"], "user_key_file": str(tmp_path / "user.key")}
    beside = stream_table(fresh_name("s"), privacy=alone["privacy"])
    config = job_config(bootstrap, tmp_path, streams=[alone, beside])
    await create_topics(config, source_partitions=3)
    assert await check_topics(config) == []
    found = await topic_partitions(bootstrap, [alone["source"], beside["source"]])
    assert found == {alone["source"]: 1, beside["source"]: 3}

    two = alone | {"source": fresh_name("raw")}
    await create(bootstrap, NewTopic(two["source"], 2, 1))
    config = job_config(bootstrap, tmp_path, streams=[two, beside], job=config.job.name)
    (problem,) = await check_topics(config)
    assert (problem.topic, two["name"] in problem.reason) == (two["source"], True)
    assert "has 2 partitions" in problem.reason
    assert "one partition" in problem.fix
    await prepare(config, insecure_seed=None, roles=ROLES)
    assert set(await stored_fingerprints(config)) == {beside["name"]}


async def topic_partitions(bootstrap: str, names: list[str]) -> dict[str, int]:
    async with admin_client(Kafka(bootstrap=bootstrap)) as admin:
        return {name: each.partitions for name, each in (await topic_identities(admin, names)).items()}
