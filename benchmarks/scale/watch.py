"""The consumer: when each step of each stream was there for a reader of the public topics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from schemas.topics import Topics

FETCH_WAIT_MS = 50
"""How often the reader looks, at least."""
WIDE_WAIT_MS = 1
"""The same for each stream, if that is longer. Each fetch names all topics, and is answered for all: a reader that
looked twenty times a second at a thousand would take half a core of the two, and the broker another half.
"""


class Releases:
    """Reads the ledgers, each of which is written in one transaction with the rest of its step.

    Attributes:
        seen: stream -> step -> seconds since 1970 UTC.
    """

    def __init__(self, bootstrap: str, streams: Sequence[str]) -> None:
        self.seen: dict[str, dict[int, float]] = {name: {} for name in streams}
        self._bootstrap = bootstrap
        self._topics = {Topics.ledger(name): name for name in streams}
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Releases:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=(wait_ms := max(FETCH_WAIT_MS, WIDE_WAIT_MS * len(self._topics))),
            # Many are not asked again as soon as one of them has something.
            fetch_min_bytes=1 if wait_ms == FETCH_WAIT_MS else 1 << 20,
        )
        self._consumer.assign([TopicPartition(topic, 0) for topic in self._topics])
        await self._consumer.start()
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: Any) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._consumer.stop()

    async def _read(self) -> None:
        while True:
            found = await self._consumer.getmany(timeout_ms=1000)
            now = time.time()
            for tp, records in found.items():
                steps = self.seen[self._topics[tp.topic]]
                for record in records:
                    steps.setdefault(int(record.key), now)

    def last(self, stream: str) -> int:
        """The last public step, -1 before any."""
        return max(self.seen[stream], default=-1)

    async def until(
        self, met: Callable[[], bool], *, timeout_s: float, what: str, look: Callable[[], object] = lambda: None
    ) -> None:
        """Wait for something, looking at `look` meanwhile. Raises: TimeoutError; what `look` raises."""
        end = time.monotonic() + timeout_s
        while not met():
            if self._task is not None and self._task.done():
                self._task.result()
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
            look()
            await asyncio.sleep(0.02)
