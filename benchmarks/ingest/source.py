"""What the programs read, and the job that reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from rich.progress import Progress

from agents.kafka.topics import admin_client
from schemas.config import Kafka
from schemas.config.load import config_from_mapping
from schemas.events import TICK_HEADER, encode_tick

PARTITIONS = 4
SOURCE = "raw.bench"
SMALL = "raw.bench.small"  # for programs that would need an hour for the other one
USERS = 50_000
CODECS = ("none", "lz4", "zstd", "snappy", "gzip")


def source_in(codec: str, run: str) -> str:
    """The topic of a run whose batches are compressed so."""
    return f"{SOURCE}.{run}.{codec}"


def configuration(bootstrap: str, folder: str, job: str, *, source: str = SOURCE, routed: bool = False) -> Any:
    """One stream of points, with users bounded; a program's job has topics of its own.

    Args: routed: whether the job places users itself. All events are late then, since the wall clock ends steps.
    """
    key = Path(folder) / "user-key"
    if not key.exists():
        key.write_bytes(b"a key for benchmarks only")
    return config_from_mapping(
        {
            "job": {"name": job, "data_dir": folder},
            "kafka": {"bootstrap": bootstrap, "partitions": PARTITIONS},
            "streams": [
                {
                    "name": f"{job}-taxi",
                    "engine": "spatial",
                    "source": source,
                    "partitioner": "any" if routed else "murmur2",
                    "privacy": {"epsilon": 1.0, "user": "user", "max_contributions": 100, "user_key_file": str(key)},
                    "time": {
                        "field": "at",
                        "format": "%Y-%m-%d %H:%M:%S",
                        "timezone": "America/New_York",
                        "start": "2016-01-01T00:00:00",
                        "step": "6h",
                        "clock": "wall" if routed else "replay",
                    },
                    "domain": {"kind": "box", "x": "lon", "y": "lat", "bounds": [-74.05, 40.60, -73.75, 40.90]},
                }
            ],
        }
    )


def event(random: np.random.Generator, users: np.ndarray, index: int) -> bytes:
    """About 80 bytes, as a compact producer writes them."""
    second = index % 21_600
    return b'{"user":"u%07d","lon":%.5f,"lat":%.5f,"at":"2016-01-01 %02d:%02d:%02d"}' % (
        users[index],
        -74.05 + 0.2999 * random.random(),
        40.60 + 0.2999 * random.random(),
        second // 3600,
        second // 60 % 60,
        second % 60,
    )


async def fill(
    bootstrap: str, topic: str, events: int, progress: Progress, *, codec: str = "none", ticked: bool = True
) -> float:
    """Make the topic and write the events to their users' partitions. Returns their mean size in bytes.

    Args: ticked: at the end comes the tick that ends their step; it is JSON, but no event.
    """
    from agents.protocol.partitioner import partitions_of
    from agents.protocol.userhash import IdBytes

    async with admin_client(Kafka(bootstrap=bootstrap)) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    random = np.random.default_rng(7)
    users = random.integers(0, USERS, events)
    ids = IdBytes.from_ids([f"u{user:07d}" for user in users.tolist()])
    homes = partitions_of(ids, partitioner="murmur2", partitions=PARTITIONS).tolist()
    task = progress.add_task(f"writing {topic}", total=events)
    total = 0
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        max_batch_size=1 << 19,
        max_request_size=1 << 20,
        compression_type=None if codec == "none" else codec,
    )
    await producer.start()
    batches = {partition: producer.create_batch() for partition in range(PARTITIONS)}
    for index in range(events):
        key, value = b"u%07d" % users[index], event(random, users, index)
        total += len(value)
        home = homes[index]
        if batches[home].append(key=key, value=value, timestamp=None) is None:
            await producer.send_batch(batches[home], topic, partition=home)
            batches[home] = producer.create_batch()
            batches[home].append(key=key, value=value, timestamp=None)
            progress.update(task, completed=index)
    tick = [(TICK_HEADER, encode_tick(0, row=0, source="bench"))]
    for home, batch in batches.items():
        if batch.record_count():
            await producer.send_batch(batch, topic, partition=home)
        if ticked:
            await producer.send_and_wait(topic, b"{}", partition=home, headers=tick)
    await producer.stop()
    progress.update(task, completed=events)
    return total / events
