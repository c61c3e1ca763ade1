"""The producer, a process of its own: `python -m benchmarks.scale.feed JSON`.

`live` sends the events of each moment as it comes; `replay` sends steps with their ticks, as far as standard input lets
it: each line there is the last step that may be sent.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from aiokafka import AIOKafkaProducer

from agents.local.offline.processes import end_with
from benchmarks.scale.streams import START_MS, MainEvents, side_events
from schemas.events import TICK_HEADER, encode_tick

SLOT_S = 0.05
SIDE_EVERY_S = 1.0


class Writer:
    """Batches by partition, as large as they get: what a fast producer sends."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer
        self._sent: list[asyncio.Future[Any]] = []

    async def write(
        self, topic: str, partition: int, values: list[bytes], *, headers: Sequence[tuple[str, bytes]] = ()
    ) -> None:
        producer, now_ms = self._producer, time.time_ns() // 1_000_000
        given = list(headers)
        batch = producer.create_batch()
        for value in values:
            if batch.append(key=None, value=value, timestamp=now_ms, headers=given) is None:
                self._sent.append(await producer.send_batch(batch, topic, partition=partition))
                batch = producer.create_batch()
                batch.append(key=None, value=value, timestamp=now_ms, headers=given)
        if batch.record_count():
            self._sent.append(await producer.send_batch(batch, topic, partition=partition))

    async def flush(self) -> None:
        """Everything is acknowledged when this returns."""
        sent, self._sent = self._sent, []
        await asyncio.gather(*sent)


async def live(writer: Writer, order: dict[str, Any]) -> int:
    """Even load until `until`. Returns the events of the main stream."""
    events = MainEvents(order["partitions"])
    sides: list[tuple[str, str]] = [tuple(each) for each in order["sides"]]
    chance = np.random.default_rng(2)
    begin, sent, turn = time.time(), 0, 0
    while (now := time.time()) < order["until"]:
        due = int((now - begin) * order["rate"])
        for partition, values in enumerate(events.take(sent, due - sent, int(now * 1000))):
            await writer.write(order["source"], partition, values)
        sent = due
        # The others in turn, so that all have had theirs once in `SIDE_EVERY_S`.
        upto = int((now - begin) / SIDE_EVERY_S * len(sides))
        for at in range(turn, min(upto, turn + len(sides))):
            source, engine = sides[at % len(sides)]
            await writer.write(source, 0, side_events(engine, chance, order["side_events"], int(now * 1000), at))
        turn = max(turn, upto)
        await writer.flush()
        await asyncio.sleep(max(0.0, SLOT_S - (time.time() - now)))
    return sent


async def replay(writer: Writer, order: dict[str, Any], leave: list[int]) -> int:
    """Steps `first` to `last`, each with its tick. Returns the events."""
    partitions, per_step, step_ms = order["partitions"], order["per_step"], order["step_ms"]
    events = MainEvents(partitions)
    sent = 0
    for step in range(order["first"], order["last"] + 1):
        while step > leave[0]:
            await writer.flush()
            await asyncio.sleep(0.005)
        take = events.take_new if order["new_users"] else events.take
        found = take(step * per_step, per_step, START_MS + step * step_ms)
        tick = [(TICK_HEADER, encode_tick(step, row=0, source="scale"))]
        for partition, values in enumerate(found):
            await writer.write(order["source"], partition, values)
            await writer.write(order["source"], partition, [b""], headers=tick)
        sent += per_step
        if step % 10 == 0:
            await writer.flush()
        if order["pause_s"]:
            await writer.flush()
            await asyncio.sleep(order["pause_s"])
    await writer.flush()
    return sent


def _leave(leave: list[int]) -> None:
    for line in sys.stdin:
        leave[0] = int(line)


async def run(order: dict[str, Any]) -> int:
    producer = AIOKafkaProducer(bootstrap_servers=order["bootstrap"], max_batch_size=1 << 18, linger_ms=0)
    await producer.start()
    try:
        if order["kind"] == "live":
            return await live(Writer(producer), order)
        leave = [order["leave"]]
        threading.Thread(target=_leave, args=(leave,), daemon=True).start()
        return await replay(Writer(producer), order, leave)
    finally:
        await producer.stop()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    end_with(given["parent"])
    print(json.dumps({"events": asyncio.run(run(given))}), flush=True)
    os._exit(0)  # the thread that reads standard input waits for ever
