"""Records of a private log that wait for their turn: some in memory, the others where they are.

The publisher of a stream can be behind its engine for long: by `publish_delay`, or because writing a step takes longer
than computing it. What it has not published stays on the release log, so it need not be kept here as well.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agents.kafka.clients import log_reader
from schemas.errors import BrokerError
from schemas.releases import Chunk, LogRecord, decode_log_record

if TYPE_CHECKING:
    from schemas.config import Kafka

MOST_BYTES = 16 << 20


class LogQueue:
    """First in, first out, of the records of one stream on a partition of the release log.

    At most `most_bytes` of them are held, beside one record of any size; the others are read again, as many at once as
    may be held, when it is their turn. Nothing is trimmed meanwhile: a step that is not public is needed.
    """

    def __init__(self, kafka: Kafka, topic: str, partition: int, *, most_bytes: int | None = None) -> None:
        self._kafka, self._topic, self._partition = kafka, topic, partition
        self._most_bytes = MOST_BYTES if most_bytes is None else most_bytes
        self._order: asyncio.Queue[tuple[int, LogRecord | None]] = asyncio.Queue()
        self._left: set[int] = set()  # offsets of those that are not here
        self._again: dict[int, LogRecord] = {}
        self.held_bytes = 0

    def put(self, offset: int, record: LogRecord) -> None:
        """A record that was read at `offset`; offsets ascend."""
        if self.held_bytes + _size(record) > self._most_bytes:
            self._left.add(offset)
            self._order.put_nowait((offset, None))
        else:
            self.held_bytes += _size(record)
            self._order.put_nowait((offset, record))

    def empty(self) -> bool:
        return self._order.empty()

    async def get(self) -> tuple[int, LogRecord]:
        """The next one and its offset; waits for one. Raises: BrokerError, then start anew."""
        offset, record = await self._order.get()
        if record is None:
            if offset not in self._again:
                await self._read(offset)
            record = self._again.pop(offset)
            self._left.discard(offset)
        self.held_bytes -= _size(record)
        return offset, record

    def clear(self) -> None:
        """Nothing of what waits is needed."""
        self._order = asyncio.Queue()
        self._left, self._again, self.held_bytes = set(), {}, 0

    async def _read(self, begin: int) -> None:
        """Those that were left, from `begin` on."""
        async with log_reader(self._kafka, self._topic, self._partition) as log:
            async for records in log.read(begin):
                for record in records:
                    if record.offset in self._left and (not self._again or self.held_bytes < self._most_bytes):
                        found = self._again[record.offset] = decode_log_record(record.value)
                        self.held_bytes += _size(found)
                if self.held_bytes >= self._most_bytes or self._left <= self._again.keys():
                    break
        if begin not in self._again:
            raise BrokerError(f"{self._topic}-{self._partition} no longer has offset {begin}, which is needed")


def _size(record: LogRecord) -> int:
    return len(record.part) if isinstance(record, Chunk) else 0
