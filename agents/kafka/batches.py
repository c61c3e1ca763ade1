"""Batches of many records for aiokafka's producer, each written in one go: its own builder is asked record by record.

What is written is a record batch of Kafka's protocol, version 2, not compressed: the bytes that aiokafka's builder
writes.

And batches as all consumers of this process read them, whatever the names of headers are: brokers do not look at these,
and aiokafka ends at one that is not UTF-8, again and again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from aiokafka.record.default_records import DefaultRecordBase, _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c, encode_varint

from schemas.byte_columns import ByteColumn, Piece, side_by_side
from schemas.releases import Frames
from schemas.topics import BATCH_BYTES

_MOST = 1 << 12
"""Records that are written at once."""
_WIDE_BYTES = 4 * BATCH_BYTES
"""Of rows that are written at once, each as wide as the longest: one may be a thousand times as long as the others."""


class RecordBatch:
    """A batch of a transaction, in place of aiokafka's `BatchBuilder`: it has what accumulator and sender ask of one.

    It has at most `BATCH_BYTES`, or one record: what a topic takes is for its broker to say.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._records, self._size = 0, DefaultRecordBase.HEADER_STRUCT.size
        self._begin_ms = self._last_ms = 0
        self._state = -1, -1, 0
        self._built: bytearray | None = None

    def extend(self, frames: Frames, *, time_ms: int, header: tuple[str, bytes]) -> int:
        """Append the first records, so many as there is room for. Returns how many.

        Args: time_ms, header: of each.
        """
        taken = 0
        while more := self._append(frames.only(slice(taken, taken + _MOST)), time_ms, header):
            taken += more
        return taken

    def _append(self, frames: Frames, time_ms: int, header: tuple[str, bytes]) -> int:
        if not len(frames):
            return 0
        if not self._records:
            self._begin_ms = self._last_ms = time_ms
        name, said = header[0].encode(), header[1]
        attributes = b"\0" + _varint(time_ms - self._begin_ms)
        rest = b"".join((_varint(1), _varint(len(name)), name, _varint(len(said)), said))
        numbers = np.arange(self._records, self._records + len(frames)), frames.keys, frames.values
        offsets, key_sizes, value_sizes = varints = [ByteColumn.varints(each) for each in numbers]
        sizes = frames.keys + np.maximum(frames.values, 0) + sum(each.lengths for each in varints)
        sizes += len(attributes) + len(rest)
        lengths = ByteColumn.varints(sizes)
        whole = sizes + lengths.lengths
        fits = self._size + np.cumsum(whole) <= BATCH_BYTES
        fits &= np.maximum.accumulate(whole) * np.arange(1, len(whole) + 1) <= _WIDE_BYTES
        count = len(frames) if fits.all() else int(fits.argmin())
        if count == 0 and self._records:
            return 0
        some = slice(max(count, 1))
        keys, values = frames.only(some).columns
        pieces: list[Piece] = [lengths.only(some), attributes, offsets.only(some), key_sizes.only(some), keys]
        pieces += [value_sizes.only(some), values, rest]
        part = side_by_side(pieces, len(keys))
        self._parts.append(part)
        self._records += len(keys)
        self._size += len(part)
        self._last_ms = max(self._last_ms, time_ms)
        return len(keys)

    def record_count(self) -> int:
        return self._records

    def close(self) -> None:
        """Nothing is appended to a batch that was sent."""

    def closed(self) -> bool:
        return True

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._state = producer_id, producer_epoch, base_sequence

    def _build(self) -> bytearray:
        if self._built is None:
            form = DefaultRecordBase
            head = bytearray(form.HEADER_STRUCT.size)
            form.HEADER_STRUCT.pack_into(
                head, 0, 0, self._size - form.AFTER_LEN_OFFSET, form.NO_PARTITION_LEADER_EPOCH, 2, 0,
                form.TRANSACTIONAL_MASK, self._records - 1, self._begin_ms, self._last_ms, *self._state, self._records,
            )  # fmt: skip
            whole = bytearray().join((head, *self._parts))
            crc = calc_crc32c(memoryview(whole)[form.ATTRIBUTES_OFFSET :])
            whole[form.CRC_OFFSET : form.ATTRIBUTES_OFFSET] = crc.to_bytes(4, "big")
            self._built, self._parts = whole, []
        return self._built


def _varint(number: int) -> bytes:
    written = bytearray()
    encode_varint(number, written.append)
    return bytes(written)


_OVERHEAD, _LENGTH = 12, slice(8, 12)  # of a batch: what its length does not count, and where that stands


class ReadBatches:
    """The batches of a fetch, in place of aiokafka's `MemoryRecords`: it has what a fetcher asks of one."""

    def __init__(self, data: bytes) -> None:
        self._batches, self._left = MemoryRecords(data), memoryview(data)

    def size_in_bytes(self) -> int:
        return int(self._batches.size_in_bytes())

    def has_next(self) -> bool:
        return bool(self._batches.has_next())

    def next_batch(self) -> ReadBatch:
        end = _OVERHEAD + int.from_bytes(self._left[_LENGTH], "big")
        data, self._left = self._left[:end], self._left[end:]
        return ReadBatch(self._batches.next_batch(), data)


class ReadBatch:
    """A batch that was read. Attributes: batch: aiokafka's, of which all else is asked."""

    def __init__(self, batch: Any, data: memoryview) -> None:
        self.batch, self._data = batch, data

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batch, name)

    def __next__(self) -> Any:
        return next(self.batch)  # of a control batch, whose only record the fetcher looks at

    def __iter__(self) -> Iterator[Any]:
        read = 0
        try:
            for record in self.batch:
                yield record
                read += 1
        except UnicodeDecodeError:
            yield from self.leniently(read)

    def leniently(self, begin: int) -> Iterator[Any]:
        """Return the records from the one with number `begin` on, read as Java does: what is not UTF-8 in the name of a
        header is the replacement character. Slowly: by aiokafka's reader in Python.
        """
        records = _DefaultRecordBatchPy(self._data)
        iter(records)  # unpacks it
        records._buffer = _Lenient(records._buffer)
        return islice(records, begin, None)


class _Lenient(bytearray):
    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return _Lenient(found) if isinstance(place, slice) else found

    def decode(self, *_: Any) -> str:
        return super().decode("utf-8", "replace")
