"""What the tests on the real broker share: topics of their own, a configuration, and raw records."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import PolicyViolationError

from agents.kafka.clients import close_client
from agents.kafka.topics import needed_topics, topic_identities
from agents.worker.app import ROLES
from agents.worker.process import prepare
from schemas.config import Config
from schemas.config.load import config_from_mapping
from schemas.topics import COMPACTED

WAIT_AT_MOST_S = 120.0
"""How long to wait for what must come: never the point of a test, so enough for a machine with much else to do."""

_numbers = itertools.count()


def fresh_name(prefix: str) -> str:
    """A name that no other test on this broker has."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}-{int(time.time()) % 100_000}"


def job_config(
    bootstrap: str,
    folder: Path,
    *,
    streams: Iterable[Mapping[str, Any]],
    partitions: int = 2,
    job: str | None = None,
    **job_settings: Any,
) -> Config:
    """A configuration of small streams, each given as overrides of `stream_table`."""
    return config_from_mapping(
        {
            "job": {"name": job or fresh_name("job"), "data_dir": str(folder), **job_settings},
            "kafka": {"bootstrap": bootstrap, "partitions": partitions, "session_timeout_s": 6},
            "streams": [dict(stream) for stream in streams],
        }
    )


def stream_table(name: str, **overrides: Any) -> dict[str, Any]:
    """A stream of events in the unit square, steps of one minute, closed by replay ticks."""
    table: dict[str, Any] = {
        "name": name,
        "engine": "spatial",
        "source": f"raw.{name}",
        "privacy": {"epsilon": 1.0, "unit": "user", "user": "user", "max_contributions": 3},
        "time": {"field": "at", "format": "s", "start": "2020-01-01T00:00:00", "step": "60s", "clock": "replay"},
        "domain": {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0]},
        "options": {"depth": 8, "initial_steps": 2},
    }
    return {**table, **overrides}


@asynccontextmanager
async def worker(config: Config, *roles: str) -> AsyncIterator[Any]:
    """A whole worker in this process, or some roles of one. Yields its application."""
    app = await prepare(config, insecure_seed=None, roles=roles or ROLES)
    async with app:
        yield app


@asynccontextmanager
async def admin_of(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def create(bootstrap: str, *topics: NewTopic) -> None:
    """And wait until the broker says that they are there, which is a moment later."""
    names = {topic.name for topic in topics}
    async with admin_of(bootstrap) as admin:
        await admin.create_topics(list(topics))
        await until(lambda: topic_identities(admin, names), lambda found: found.keys() == names)


async def delete(bootstrap: str, topic: str) -> None:
    """And wait until the broker says that it is gone."""
    async with admin_of(bootstrap) as admin:
        await admin.delete_topics([topic])
        await until(lambda: topic_identities(admin, [topic]), lambda found: topic not in found)


async def add_partitions(bootstrap: str, topic: str, number: int) -> None:
    """Until there are so many, and the broker says so."""
    async with admin_of(bootstrap) as admin:
        await admin.create_partitions({topic: NewPartitions(total_count=number)})
        await until(lambda: topic_identities(admin, [topic]), lambda found: found[topic].partitions == number)


async def delete_records(bootstrap: str, topic: str, *partitions: int, before: int = -1) -> None:
    """Those below an offset, or all, of partitions 0 or those named."""
    async with admin_of(bootstrap) as admin:
        deleted = {TopicPartition(topic, each): RecordsToDelete(before_offset=before) for each in partitions or (0,)}
        await admin.delete_records(deleted)


async def empty_compacted(config: Config, name: str) -> None:
    """Delete all records of a compacted private topic, as somebody might: by another cleanup.policy for a moment.

    A broker hears of the policy a moment after the controller took it, and refuses until then.
    """
    [topic] = [each for each in needed_topics(config) if each.name == name]
    resource, bootstrap = ConfigResourceType.TOPIC, config.kafka.bootstrap
    assert topic.settings["cleanup.policy"] == COMPACTED["cleanup.policy"]

    async def deleted() -> bool:
        with suppress(PolicyViolationError):
            await delete_records(bootstrap, name, *range(topic.partitions or 1))
            return True
        return False

    async with admin_of(bootstrap) as admin:
        await admin.alter_configs([ConfigResource(resource, name, configs={"cleanup.policy": "delete"})])
        await until(deleted)
        await admin.alter_configs([ConfigResource(resource, name, configs=dict(topic.settings))])


@asynccontextmanager
async def producing(bootstrap: str, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def records_of(bootstrap: str, topic: str, *, partition: int = 0, committed: bool = True) -> list[Any]:
    """All records of a partition, as a consumer of its own reads them from offset 0."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed" if committed else "read_uncommitted",
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=4 << 20,
    )
    tp = TopicPartition(topic, partition)
    consumer.assign([tp])
    try:
        await consumer.start()
        end = (await consumer.end_offsets([tp]))[tp]
        found: list[Any] = []
        while await consumer.position(tp) < end:
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                found += batch
        return found
    finally:
        await close_client(consumer)


async def until(
    ask: Callable[[], Any], met: Callable[[Any], bool] = bool, *, timeout_s: float = WAIT_AT_MOST_S
) -> None:
    """Ask, and await the answer where it is awaitable, until it is met. Raises: TimeoutError."""
    end = time.monotonic() + timeout_s
    while True:
        found = ask()
        if met(await found if inspect.isawaitable(found) else found):
            return
        if time.monotonic() > end:
            raise TimeoutError("the condition was not met in time")
        await asyncio.sleep(0.1)
