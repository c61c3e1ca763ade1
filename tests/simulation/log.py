"""One partition of a topic as a broker keeps it: real batches, transactions, idempotence, deletion, compaction."""

from __future__ import annotations

import copy
import struct
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
ATTRIBUTES_AT, CRC_AT = 21, 17
TRANSACTIONAL, CONTROL = 0x10, 0x20
OK, OUT_OF_RANGE = 0, 1
OUT_OF_ORDER, INVALID_EPOCH = 45, 47
KEPT_BATCHES = 5  # of a producer, by which a broker knows a batch that it gets again


@dataclass(slots=True)
class Batch:
    """A batch at its place. `control`: None for data, else whether the marker commits."""

    base: int
    last: int
    data: bytes
    producer: int
    epoch: int
    transactional: bool
    control: bool | None
    at_s: float


@dataclass(slots=True)
class ProducerState:
    epoch: int
    next_sequence: int = 0
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))


@dataclass(frozen=True, slots=True)
class Record:
    """What an observer outside of the job sees."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class PartitionLog:
    """See the module.

    Attributes:
        start, end: first offset that is still there, and the next one to be written.
        everything: all batches that ever were, deleted ones too: for those who judge, not for those who read.
        listeners: called when there is more to read.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.start = self.end = 0
        self.everything: list[Batch] = []
        self.aborted: list[tuple[int, int, int]] = []  # (producer, first offset, offset of the marker)
        self.listeners: list[Callable[[], None]] = []
        self._batches: list[Batch] = []
        self._lasts: list[int] = []
        self._open: dict[int, int] = {}
        self._producers: dict[int, ProducerState] = {}

    def snapshot(self) -> Callable[[], None]:
        """What puts this back to how it is now; who listens stays."""
        state = copy.deepcopy({name: value for name, value in vars(self).items() if name != "listeners"}, {})
        return lambda: vars(self).update(copy.deepcopy(state))

    # --- writing --------------------------------------------------------------------------------------------------

    def append(self, data: bytes, *, now_s: float) -> tuple[int, int]:
        """Write a producer's batch: (error code, base offset). A batch that is here already gets its old offset."""
        fields = HEADER.unpack_from(data)
        attributes, last_delta, producer, epoch, sequence, count = *fields[5:7], *fields[9:13]
        transactional = bool(attributes & TRANSACTIONAL)
        if producer >= 0:
            state = self._producers.get(producer)
            if state is None or epoch > state.epoch:
                state = self._producers[producer] = ProducerState(epoch)
            elif epoch < state.epoch:
                return INVALID_EPOCH, -1
            for known, offset in state.recent:
                if known == sequence:
                    return OK, offset
            if sequence != state.next_sequence:
                return OUT_OF_ORDER, -1
            state.next_sequence += count
            state.recent.append((sequence, self.end))
        base = self.end
        if transactional:
            self._open.setdefault(producer, base)
        self._put(bytes(data), base, last_delta, producer, epoch, transactional, None, now_s)
        return OK, base

    def mark(self, producer: int, epoch: int, *, commit: bool, now_s: float) -> None:
        """Write the marker that ends a producer's transaction here."""
        state = self._producers.get(producer)
        if state is None or epoch > state.epoch:
            self._producers[producer] = ProducerState(epoch)
        builder = DefaultRecordBatchBuilder(2, 0, 1, producer, epoch, -1, 1 << 10)
        builder.append(0, int(now_s * 1000), struct.pack(">HH", 0, int(commit)), bytes(6), [])
        data = bytearray(builder.build())
        struct.pack_into(">h", data, ATTRIBUTES_AT, TRANSACTIONAL | CONTROL)
        struct.pack_into(">I", data, CRC_AT, calc_crc32c(memoryview(data)[ATTRIBUTES_AT:]))
        first = self._open.pop(producer, None)
        if first is not None and not commit:
            self.aborted.append((producer, first, self.end))
        self._put(bytes(data), self.end, 0, producer, epoch, True, commit, now_s)

    def write(self, *records: tuple[bytes | None, bytes | None, list[tuple[str, bytes]]], now_s: float) -> int:
        """Records of an outside producer; the offset of the first."""
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 22)
        for index, (key, value, headers) in enumerate(records):
            builder.append(index, int(now_s * 1000), key, value, headers)
        return self.append(bytes(builder.build()), now_s=now_s)[1]

    def _put(self, data: bytes, base: int, delta: int, *rest: Any) -> None:
        data = struct.pack(">q", base) + data[8:]
        batch = Batch(base, base + delta, data, *rest)
        self.end = batch.last + 1
        for batches in (self.everything, self._batches):
            batches.append(batch)
        self._lasts.append(batch.last)
        for listener in self.listeners:
            listener()

    def has_open(self, producer: int) -> bool:
        return producer in self._open

    # --- reading --------------------------------------------------------------------------------------------------

    @property
    def stable_end(self) -> int:
        """Everything below belongs to no open transaction."""
        return min(self._open.values(), default=self.end)

    def fetch(self, offset: int, limit: int, *, committed: bool) -> tuple[int, list[tuple[int, int]], bytes]:
        """(error code, aborted transactions, batches) from `offset` on."""
        if not self.start <= offset <= self.end:
            return OUT_OF_RANGE, [], b""
        end = self.stable_end if committed else self.end
        parts: list[bytes] = []
        size, until = 0, offset
        for index in range(bisect_left(self._lasts, offset), len(self._batches)):
            batch = self._batches[index]
            if batch.base >= end or (parts and size + len(batch.data) > limit):
                break
            parts.append(batch.data)
            size, until = size + len(batch.data), batch.last + 1
        aborted = []
        if committed and parts:
            aborted = [(who, first) for who, first, last in self.aborted if first < until and last >= offset]
        return OK, aborted, b"".join(parts)

    def records(self, *, committed: bool, everything: bool = True) -> Iterator[Record]:
        """All data records, of deleted batches too; with `committed` those that a read-committed reader was shown."""
        for batch in self.everything if everything else self._batches:
            if batch.control is not None or (batch.base < self.start and not everything):
                continue
            if committed and batch.transactional and not self._is_committed(batch):
                continue
            for record in DefaultRecordBatch(batch.data):
                yield Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))

    def _is_committed(self, batch: Batch) -> bool:
        if self._open.get(batch.producer, self.end) <= batch.base:
            return False
        return not any(who == batch.producer and first <= batch.base < last for who, first, last in self.aborted)

    # --- deleting -------------------------------------------------------------------------------------------------

    def delete_below(self, offset: int) -> None:
        """Delete records, as `DeleteRecords` and retention do. Whole batches are dropped, as whole files are."""
        self.start = max(self.start, min(offset, self.end))
        gone = bisect_right(self._lasts, self.start - 1)
        del self._batches[:gone], self._lasts[:gone]

    def compact(self) -> None:
        """Keep the last committed record of each key; offsets stay, batches keep their ends."""
        end = self.stable_end
        newest: dict[bytes | None, int] = {}
        for record in self.records(committed=True, everything=False):
            newest[record.key] = record.offset
        kept: list[Batch] = []
        for batch in self._batches:
            if batch.base >= end or batch.control is not None:
                kept.append(batch)
            elif not batch.transactional or self._is_committed(batch):
                records = list(DefaultRecordBatch(batch.data))
                left = [record for record in records if newest.get(record.key) == record.offset]
                if len(left) == len(records):
                    kept.append(batch)
                elif left:
                    kept.append(_rebuilt(batch, left))
        self._batches, self._lasts = kept, [batch.last for batch in kept]


def _rebuilt(batch: Batch, records: list[Any]) -> Batch:
    fields = HEADER.unpack_from(batch.data)
    builder = DefaultRecordBatchBuilder(2, 0, int(batch.transactional), *fields[9:12], 1 << 24)
    for record in records:
        builder.append(record.offset - batch.base, record.timestamp, record.key, record.value, list(record.headers))
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, batch.base)
    struct.pack_into(">i", data, 23, batch.last - batch.base)
    struct.pack_into(">I", data, CRC_AT, calc_crc32c(memoryview(data)[ATTRIBUTES_AT:]))
    return Batch(batch.base, batch.last, bytes(data), *[getattr(batch, name) for name in Batch.__slots__[3:]])
