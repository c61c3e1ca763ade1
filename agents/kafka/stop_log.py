"""What has stopped, for `privstream status`: kept in a topic, because no worker need be up to be asked.

A record stays until a worker starts that finds nothing wrong with the stream; whether the stream has come further
meanwhile is for the reader to see. What still stands in another worker, that one writes down again. Losing the topic
loses nothing else.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from agents.kafka.clients import close_client, read_to_end
from agents.kafka.security import security_kwargs
from agents.lifecycle.stops import Stop
from schemas.errors import BrokerError
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Config

log = logging.getLogger(__name__)

NOT_KEPT = (KafkaError, BrokerError, OSError, TimeoutError)


def encode(stop: Stop) -> bytes:
    return orjson.dumps({"v": 1, **dataclasses.asdict(stop)})


def decode(value: bytes) -> Stop | None:
    """None for what another version wrote."""
    content = orjson.loads(value)
    if content.pop("v", None) != 1:
        return None
    return Stop(**content)


async def recorded(config: Config) -> dict[bytes, Stop]:
    """Key -> what has stopped and was not cleared. Raises: BrokerError."""
    _, _, records = await read_to_end(config.kafka, _topic(config), 0, 0)
    latest = {record.key: record.value for record in records}
    found = {key: None if value is None else decode(value) for key, value in latest.items()}
    return {key: stop for key, stop in found.items() if stop is not None}


async def record(config: Config, stops: Iterable[Stop]) -> None:
    """Write down what is not there, or is there from before. Raises: any of `NOT_KEPT`."""
    there = await recorded(config)
    new = {_key(stop): stop for stop in stops}
    # Another worker's newer stop of the same part stays: the stream may have come further there.
    await _write(config, {k: encode(s) for k, s in new.items() if k not in there or there[k].at_ms < s.at_ms})


async def clear(config: Config, streams: Collection[str]) -> None:
    """A worker starts, and at its start nothing is wrong with these streams. Raises: any of `NOT_KEPT`."""
    await _write(config, {key: None for key, stop in (await recorded(config)).items() if stop.stream in streams})


async def _write(config: Config, records: dict[bytes, bytes | None]) -> None:
    if not records:
        return
    producer = AIOKafkaProducer(bootstrap_servers=config.kafka.bootstrap, acks="all", **security_kwargs(config.kafka))
    try:
        await producer.start()
        for key, value in records.items():
            await producer.send_and_wait(_topic(config), value, key=key, partition=0)
    finally:
        await close_client(producer)


def _topic(config: Config) -> str:
    return Topics(config.job.name, config.kafka.partitions).stops


def _key(stop: Stop) -> bytes:
    return f"{stop.stream}/{stop.part}/{'' if stop.partition is None else stop.partition}".encode()
