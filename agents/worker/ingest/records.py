"""Fetched records as aiokafka's parser makes them, many at a time.

Going over records one by one in Python, and wrapping each into an eleven-field `ConsumerRecord`, is three quarters of
what `getmany` costs. Here the client's own loop, with all it knows of aborted transactions and control batches, goes
over chunks of a batch, and what it hands out are the parser's records: the four fields that ingest reads, and a key.
One consumer is told so, no other in this process (Faust's reads on). The client has no interface for it: a fetch
result is fitted as it is put into the fetcher's buffer. A release of aiokafka in which that does nothing costs speed,
no result.
"""

from __future__ import annotations

import sys
import weakref
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import PartitionRecords

MOST_BYTES = 64 << 20
"""That are handed out at once, about: a mebibyte of small batches can hold gigabytes."""
HEADER_BYTES = 70
"""What a header takes in memory, at least."""
OFFSET, KEY, VALUE, HEADERS = (attrgetter(name) for name in ("offset", "key", "value", "headers"))


def hand_out_bare_records(consumer: AIOKafkaConsumer) -> None:
    """Let a started consumer's `getmany` return records with `offset`, `timestamp`, `key`, `value`, `headers` only."""
    fetcher = consumer._fetcher
    fetcher._records = _Buffer(fetcher._records)


class _Buffer(OrderedDict[Any, Any]):
    def __setitem__(self, source: Any, result: Any) -> None:
        records = getattr(result, "_partition_records", None)
        if records is not None:
            records._records = _Batches(records._records)
            # Neither may refer back to itself by what is put into it: a mebibyte of the source would stay in memory
            # until the collector, which runs rarely here, finds the cycle. The client wants a result of its very class.
            records.__class__ = _ChunkedRecords
            result.getall = partial(_getall, weakref.proxy(result), [])
        super().__setitem__(source, result)


class _ChunkedRecords(PartitionRecords):
    def _consumer_record(self, tp: Any, chunk: _Chunk) -> Sequence[Any]:
        # The broker sends whole batches, wherever in one the fetch began.
        return from_offset(chunk, self.next_fetch_offset)


def _getall(result: Any, left: list[Any], max_records: int | None = None) -> list[Any]:
    """Do as `FetchResult.getall` for a result whose records come in chunks; `left` are those of one that nobody asked
    for.
    """
    records = result._partition_records
    if records is None:
        return []
    if not result.check_assignment(result._topic_partition):
        records._records_iterator = None  # which refers back to the records, too
        return []
    most = sys.maxsize if max_records is None else max_records
    taken, size = left.copy(), 0
    left.clear()
    while len(taken) < most and size < MOST_BYTES:
        chunk = next(records, None)
        if chunk is None:
            result._update_position()
            result._partition_records = None
            return taken
        taken += chunk
        size += bytes_of(chunk)
    left += taken[most:]
    if left:
        del taken[most:]
    # What the consumer's position is compared with the next time. Also where what was left before is all that was
    # asked for: else the position would stay before it, as that of a source that has lost its tail.
    records.next_fetch_offset = left[0].offset if left else taken[-1].offset + 1
    result._update_position()
    return taken


def value_bytes(records: Sequence[Any]) -> int:
    """Return what values of records take in memory, about."""
    return sum(map(len, filter(None, map(VALUE, records))))


def bytes_of(records: Sequence[Any]) -> int:
    """Return what keys, values and headers of records take in memory, about."""
    keys = sum(map(len, filter(None, map(KEY, records))))
    return keys + value_bytes(records) + HEADER_BYTES * sum(map(len, map(HEADERS, records)))


class _Chunk(list[Any]):
    """Records of one batch, which the client's loop takes for one record at the offset of the last."""

    __slots__ = ("offset",)

    def __init__(self, records: Iterator[Any]) -> None:
        super().__init__(records)
        self.offset = self[-1].offset if self else -1


class _Batches:
    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def has_next(self) -> bool:
        return bool(self._batches.has_next())

    def next_batch(self) -> _Batch:
        return _Batch(self._batches.next_batch())


class _Batch:
    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[_Chunk]:
        chunks: Iterator[_Chunk] = self._batch.chunks(_Chunk)
        return chunks

    def __next__(self) -> Any:
        return next(self._batch)  # of a control batch, whose only record the client looks at


def from_offset(records: Sequence[Any], offset: int) -> Sequence[Any]:
    """Return the records from `offset` on; their offsets ascend."""
    if not records or records[0].offset >= offset:
        return records
    return records[bisect_left(records, offset, key=OFFSET) :]
