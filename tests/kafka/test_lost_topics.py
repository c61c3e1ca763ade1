"""A job that has lost a private topic says so wherever it is asked, and does not go on, on the real broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete

from agents.doctor import cluster_findings
from agents.protocol.partitioner import home_partition
from agents.topic_admin import check_topics, create_topics
from schemas.blocks import Block
from schemas.errors import BrokerError, GapError
from schemas.topics import COMPACTED
from tests.kafka.ingest_support import Bench, crowd, in_loop
from tests.kafka.support import records_of, until


async def _history(bench: Bench) -> None:
    """Blocks of which the first are deleted, as the engine does it, and snapshots that stand for them."""
    await bench.create()
    async with bench.running():
        for step in range(6):
            await bench.send(crowd(step))
            await bench.tick(step)
            await bench.until_ticked(step)
    home = home_partition(f"{bench.job}-s", 2)
    records = await records_of(bench.bootstrap, bench.topics.blocks, partition=home)
    floor = max(Block.decode(record.value).floor for record in records)
    assert floor > 0
    admin = AIOKafkaAdminClient(bootstrap_servers=bench.bootstrap)
    await admin.start()
    try:
        await admin.delete_records({TopicPartition(bench.topics.blocks, home): RecordsToDelete(before_offset=floor)})
    finally:
        await admin.close()


async def _made_again(admin: AIOKafkaAdminClient, bench: Bench) -> None:
    """Deleted; not made again by the job's own command; made again by hand."""
    bounds = bench.topics.bounds
    await admin.delete_topics([bounds])

    async def gone() -> bool:
        return bounds not in await admin.list_topics()

    await until(gone)
    with pytest.raises(BrokerError, match=rf"{bounds}: is gone.*must not be made again"):
        await create_topics(bench.config)
    [problem] = [each for each in await check_topics(bench.config) if each.topic == bounds]
    assert "must not be made again" in problem.reason
    assert "--create" not in problem.mend
    settings = next(dict(topic.settings) for topic in bench.topics.private() if topic.name == bounds)
    await admin.create_topics([NewTopic(bounds, 2, 1, topic_configs=settings)])


async def _cut(admin: AIOKafkaAdminClient, bench: Bench) -> None:
    """With another cleanup.policy for a moment, as retention would have it."""
    resource = ConfigResourceType.TOPIC
    await admin.alter_configs([ConfigResource(resource, bench.topics.bounds, configs={"cleanup.policy": "delete"})])
    for partition in range(2):
        tp = TopicPartition(bench.topics.bounds, partition)
        await admin.delete_records({tp: RecordsToDelete(before_offset=-1)})
    settings = next(dict(topic.settings) for topic in bench.topics.private() if topic.name == bench.topics.bounds)
    assert settings["cleanup.policy"] == COMPACTED["cleanup.policy"]
    await admin.alter_configs([ConfigResource(resource, bench.topics.bounds, configs=settings)])


@pytest.mark.parametrize(
    ("lose", "says"), [(_made_again, "deleted and made again"), (_cut, "has lost its first records")]
)
@in_loop
async def test_a_lost_bounds_topic_is_refused(
    bootstrap: str,
    tmp_path: Path,
    lose: Callable[[AIOKafkaAdminClient, Bench], Awaitable[None]],
    says: str,
) -> None:
    bench = Bench(bootstrap, tmp_path, partitions=1)
    await _history(bench)
    await create_topics(bench.config)
    assert await check_topics(bench.config, bounds=True) == []
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await lose(admin, bench)
    finally:
        await admin.close()

    async def noticed() -> bool:
        return any(says in each.reason for each in await check_topics(bench.config, bounds=True))

    await until(noticed)  # brokers know of a change a moment later
    findings = await cluster_findings(bench.config)
    assert any(each.verdict == "problem" and says in each.detail and "anew" in each.mend for each in findings)
    with pytest.raises(GapError, match=r"has lost snapshots.*Restore the private topics.*under another name"):
        async with bench.running() as service:
            await until(lambda: service.crash_reason is not None)
