"""What has stopped, for `status`, `doctor`, the live page and metrics: kept in a topic, because no worker need be up
to be asked.

Each stop is written at once, and all that is not written yet when a worker ends, before it gives anything up
(`agents.worker.process`). A record stays until a worker has read again all that the stop could have come of, and has
not met it (`agents.worker.topic_watch`); whether the stream has come further meanwhile is for the reader to see. What
still stands in another worker, that one writes down again. Where a worker ends and cannot write, it is in no consumer
group any more, which `agents.kafka.status` sees.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Collection, Iterable

import orjson
from aiokafka.errors import KafkaError

from agents.kafka.clients import read_to_end, write
from agents.kafka.lifecycle.stops import Stop, Stops
from schemas.config import Config
from schemas.errors import BrokerError

log = logging.getLogger(__name__)

NOT_KEPT = (KafkaError, BrokerError, OSError, TimeoutError)
REQUEST_MS = 3_000
LAST_S = 4.0
"""What writing may take of the time that a worker has to leave (`agents.kafka.lifecycle.leaving`)."""
NOTHING = b"nothing"
"""Key of a record that says nothing: its writer may write."""


def encode(stop: Stop) -> bytes:
    return orjson.dumps({"v": 1, **dataclasses.asdict(stop)})


def decode(value: bytes) -> Stop | None:
    """Return a stop; None for what another version wrote."""
    content = orjson.loads(value)
    if content.pop("v", None) != 1:
        return None
    return Stop(**content)


async def recorded(config: Config) -> dict[bytes, Stop]:
    """Return key -> what has stopped and was not cleared. Raises: BrokerError."""
    records = await read_to_end(config.kafka, config.topics.stops, 0)
    latest = {record.key: record.value for record in records}
    found = {key: None if value is None else decode(value) for key, value in latest.items()}
    return {key: stop for key, stop in found.items() if stop is not None}


async def may_write(config: Config) -> None:
    """Check the topic at a start: a worker that could not write down why it stops would be taken for one that is well.

    Raises: any of `NOT_KEPT`.
    """
    await _write(config, {NOTHING: None})


async def keep(config: Config, stops: Stops) -> None:
    """Write down what is not written yet. Raises: any of `NOT_KEPT`."""
    unkept = stops.unkept
    await _write(config, {_key(stop): encode(stop) for stop in unkept})
    stops.kept(unkept)


async def last_words(config: Config, stops: Stops) -> None:
    """`keep`, for a worker that ends, within `LAST_S`, whatever the cluster does."""
    keeping = asyncio.ensure_future(keep(config, stops))
    await asyncio.wait([keeping], timeout=LAST_S)
    if not keeping.done() or keeping.cancelled() or keeping.exception() is not None:
        log.warning(
            "what has stopped could not be written to %s: status says that no worker is there", config.topics.stops
        )


async def record(config: Config, stops: Iterable[Stop]) -> None:
    """Write down again what is not there, or is there from before. Raises: any of `NOT_KEPT`."""
    there = await recorded(config)
    new = {_key(stop): stop for stop in stops}
    # Another worker's newer stop of the same part stays: the stream may have come further there.
    await _write(config, {k: encode(s) for k, s in new.items() if k not in there or there[k].at_ms < s.at_ms})


async def clear(config: Config, stops: Collection[Stop]) -> None:
    """Clear stops of which nothing is wrong any more; what stopped since stays. Raises: any of `NOT_KEPT`."""
    there = await recorded(config)
    await _write(config, {_key(stop): None for stop in stops if there.get(_key(stop)) == stop})


async def _write(config: Config, records: dict[bytes, bytes | None]) -> None:
    if records:
        await write(config.kafka, config.topics.stops, records, request_timeout_ms=REQUEST_MS)


def _key(stop: Stop) -> bytes:
    return f"{stop.stream}/{stop.part}/{'' if stop.partition is None else stop.partition}".encode()
