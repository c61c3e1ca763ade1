"""Batches of many records for aiokafka's producer, each written in one go: its own builder is asked record by record.

What is written is a record batch of Kafka's protocol, version 2, not compressed: the bytes that aiokafka's builder
writes.

And batches as all consumers of this process read them, whatever a producer has made of them. Brokers look at little of
what is in a batch: not at the names of headers, nor at what stands behind what is compressed, nor at how large that is.
At such a batch aiokafka raises an error, or takes all memory, again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
from aiokafka.codec import cramjam
from aiokafka.errors import UnsupportedCodecError
from aiokafka.record.default_records import (
    DefaultRecordBase,
    DefaultRecordBatch,
    _DefaultRecordBatchPy,
    _DefaultRecordPy,
)
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c, encode_varint

from schemas.byte_columns import ByteColumn, Piece, side_by_side
from schemas.releases import Frames
from schemas.topics import BATCH_BYTES

_MOST = 1 << 12
"""Records that are written at once."""
FEW_RECORDS = 1 << 6
"""Of a step and topic: so many take longer all at once than one after the other."""
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
            self._last_ms = max(self._last_ms, time_ms)
        return taken

    def _append(self, frames: Frames, time_ms: int, header: tuple[str, bytes]) -> int:
        if not len(frames):
            return 0
        if not self._records:
            self._begin_ms = self._last_ms = time_ms
        name, said = header[0].encode(), header[1]
        attributes = b"\0" + _varint(time_ms - self._begin_ms)
        rest = b"".join((_varint(1), _varint(len(name)), name, _varint(len(said)), said))
        if len(frames) <= FEW_RECORDS:
            return self._append_few(frames, attributes, rest)
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
        return len(keys)

    def _append_few(self, frames: Frames, attributes: bytes, rest: bytes) -> int:
        """Append records as `_append` does, one after the other."""
        for taken, (_, key, value) in enumerate(frames):
            sizes = _varint(self._records), _varint(len(key)), _varint(-1 if value is None else len(value))
            record = b"".join((attributes, sizes[0], sizes[1], key, sizes[2], value or b"", rest))
            part = _varint(len(record)) + record
            if self._records and self._size + len(part) > BATCH_BYTES:
                return taken
            self._parts.append(part)
            self._records += 1
            self._size += len(part)
        return len(frames)

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


CHUNK_RECORDS = 1_000  # a batch of a mebibyte may unpack to millions, which must not be objects all at once
C = TypeVar("C", bound=Sequence[Any])
_OVERHEAD, _LENGTH = 12, slice(8, 12)  # of a batch: what its length does not count, and where that stands
_MAGIC, _ATTRIBUTES = 16, 22  # the version of its format; the lower byte of its attributes
_VERSION = 2


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


MOST_UNPACKED = 32 << 20
"""Bytes of a batch that was compressed: brokers bound what comes, and 25 kB of zstd can hold 600 MB. Two of these bytes
can be a header, which takes 70 in memory.
"""
_CODECS: dict[int, tuple[Any, int]] = {1: (cramjam.gzip, 1_032), 3: (cramjam.lz4, 255), 4: (cramjam.zstd, 1 << 15)}
"""Number of a codec -> how to unpack it, and how many times as large that can be. That of snappy is 22 at most."""
_UNREADABLE = b"\xff"
"""In place of a value that cannot be unpacked: it is in no format."""


class ReadBatch:
    """A batch that was read. Attributes: batch: aiokafka's, of which all else is asked."""

    def __init__(self, batch: Any, data: memoryview) -> None:
        self.batch, self._data = batch, data

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batch, name)

    def __next__(self) -> Any:
        return next(self.batch)  # of a control batch, whose only record the fetcher looks at

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.chunks(list[Any]))

    def chunks(self, kind: Callable[[Iterator[Any]], C]) -> Iterator[C]:
        """Return the records, so many in each sequence of this kind that few are objects at once."""
        records, read = self.records(), 0
        while True:
            try:
                chunk = kind(islice(records, CHUNK_RECORDS))
            except Exception as error:
                records = self.mended(read, error)
                continue
            if not chunk:
                return
            yield chunk
            read += len(chunk)

    def records(self) -> Iterator[Any]:
        """Return the records. What is raised at one of them is for `mended`."""
        form = DefaultRecordBase
        size, codec = form.HEADER_STRUCT.size, self._data[_ATTRIBUTES] & form.CODEC_MASK
        kind, ratio = _CODECS.get(codec, (None, 0))
        if kind is None or self._data[_MAGIC] != _VERSION or ratio * len(self._data) <= MOST_UNPACKED:
            return chain(self.batch)
        # Of memory that is not written to nothing is used.
        room = np.empty(size + MOST_UNPACKED, np.uint8)
        try:
            end = size + kind.decompress_into(self._data[size:], room[size:])
        except cramjam.DecompressionError as error:
            return self.mended(0, error)
        room[:size] = np.frombuffer(self._data[:size], np.uint8)
        room[_ATTRIBUTES] ^= codec
        self._data = memoryview(room[:end].tobytes())
        return chain(DefaultRecordBatch(self._data))

    def mended(self, read: int, error: Exception) -> Iterator[Any]:
        """Return the records from the one with number `read` on, at which an error was raised. The checksum is right:
        the batch is what its producer has sent, and would raise it again.

        What is not UTF-8 in the name of a header is the replacement character, as Java has it; slowly, by aiokafka's
        reader in Python. Anything else is a record without a value that could be read.

        Raises: the error, if it is of this machine.
        """
        if isinstance(error, UnsupportedCodecError | MemoryError) or self._data[_MAGIC] != _VERSION:
            raise error
        if isinstance(error, UnicodeDecodeError):
            records = _DefaultRecordBatchPy(self._data)
            iter(records)  # unpacks it
            records._buffer = _Lenient(records._buffer)
            return islice(records, read, None)
        left = DefaultRecordBase.HEADER_STRUCT.unpack_from(self._data)[-1] - read
        end, time_ms, by = self.batch.next_offset, self.batch.max_timestamp, self.batch.timestamp_type
        return (_DefaultRecordPy(at, time_ms, by, None, _UNREADABLE, []) for at in range(end - left, end))


class _Lenient(bytearray):
    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return _Lenient(found) if isinstance(place, slice) else found

    def decode(self, *_: Any) -> str:
        return super().decode("utf-8", "replace")
