"""What a real cluster does to a job that runs: it forgets who writes, takes no record of their size, and keeps a
transaction open that nobody ends. Each is said within seconds, or passed over, and no step is public twice.

What needs a broker of its own runs at night; tests/simulation/test_answers.py has both on the simulated one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

import agents.worker.ingest.service
from agents.kafka.clients import fenced_producer
from agents.kafka.status import status
from agents.kafka.topics import check_topics, needed_topics
from agents.local.broker.embedded import EmbeddedBroker
from schemas.topics import Topics
from tests.kafka.support import admin_of, until, worker
from tests.kafka.test_streams_alone import Twins
from tests.kafka.test_worker_life import NOISE

pytestmark = pytest.mark.seconds(20)

FORGETS = {
    "transactional.id.expiration.ms": "3000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    "producer.id.expiration.ms": "3000",
    "producer.id.expiration.check.interval.ms": "500",
}
ROUNDS = 6
"""Steps that come seconds apart: a cluster looks for what it may forget now and then."""


@pytest.mark.nightly
async def test_a_writer_that_the_cluster_has_forgotten_goes_on_in_the_same_life(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(agents.worker.ingest.service, "REOPENED_S", 1.0)  # no other cluster forgets within seconds
    with EmbeddedBroker(properties=FORGETS) as broker:
        twins = Twins(broker.bootstrap, tmp_path)
        await twins.create()
        await twins.send(range(2))
        async with worker(twins.config()) as app:
            step, publisher = 1, f"transactional id {Topics.publisher_id(twins.a)} was forgotten by the cluster"
            await twins.until_public(twins.a, step)
            while publisher not in caplog.text and step < ROUNDS:
                step += 1
                await asyncio.sleep(5)
                await twins.send(range(step, step + 1))
                for stream in (twins.a, twins.b):
                    await twins.until_public(stream, step)
            assert publisher in caplog.text
            assert not NOISE.search(caplog.text)
            assert app.crash_reason is None
        for stream in (twins.a, twins.b):
            assert await twins.published(stream) == list(range(step + 1)), "each step once"


async def test_a_topic_that_takes_no_record_of_its_size_stops_its_stream_and_says_what_to_do(
    bootstrap: str, tmp_path: Path
) -> None:
    twins = Twins(bootstrap, tmp_path)
    config, name = twins.config(), Topics.ledger(twins.a)
    settings = next(dict(topic.settings) for topic in needed_topics(config) if topic.name == name)

    async def alter(**changed: str) -> None:
        async with admin_of(bootstrap) as admin:
            both = {**settings, **changed}
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs=both)])

    await twins.begin(2)
    async with worker(config):
        await alter(**{"max.message.bytes": "100"})
        await twins.send(range(2, 3))
        await twins.until_public(twins.b, 2)
        await until(lambda: twins.stopped(config), lambda found: found[twins.a] == ["publish"])
    [told] = [each for each in await status(config) if each.stream == twins.a]
    assert told.health == "stopped"
    assert name in told.stopped[0].reason
    assert "max.message.bytes" in told.stopped[0].what_to_do
    [problem] = await check_topics(config)
    assert (problem.topic, "max.message.bytes" in problem.fix) == (name, True)
    assert await twins.published(twins.a) == [0, 1]
    await alter()
    await until(lambda: check_topics(config), lambda problems: not problems)  # a broker hears of it a moment later
    async with worker(config):
        await twins.until_public(twins.a, 2)
    assert await twins.published(twins.a) == [0, 1, 2]


@pytest.mark.nightly
async def test_a_transaction_that_nobody_ends_is_named_with_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its coordinator does not know of it, so that it never times out."""
    with EmbeddedBroker(properties={"transaction.partition.verification.enable": "false"}) as broker:
        twins = Twins(broker.bootstrap, tmp_path)
        config, ledger = twins.config(), TopicPartition(Topics.ledger(twins.a), 0)
        await twins.begin(2)
        stranger = await fenced_producer(config.kafka, "stranger")
        await stranger.begin_transaction()
        stranger._txn_manager._txn_partitions.add(ledger)  # it asks the coordinator for none that it has
        await stranger.send_and_wait(ledger.topic, b"x", key=b"x", partition=0)
        await stranger.client.close()
        await twins.send(range(2, 3))
        async with worker(config) as app:
            await until(lambda: "stays open" in caplog.text)
            assert f"a transaction stays open on topic {ledger.topic}, partition 0" in caplog.text
            assert "kafka-transactions.sh find-hanging" in caplog.text
            assert app.crash_reason is None, "it waits"
