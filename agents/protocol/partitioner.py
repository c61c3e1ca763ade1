"""Which partition a key belongs to, by the two hashes that Kafka's producers use.

All events of a user must lie on one partition, because each partition keeps the contribution bounds of its own users: a
user on two partitions would get the bound twice. So the place of every record is checked against its user.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from agents.protocol.userhash import IdBytes
from schemas.arrays import IntArray, distinct

Hash32 = npt.NDArray[np.uint32]
Hashing = Literal["murmur2", "crc32"]
Partitioner = Literal["murmur2", "crc32", "none"]
OTHER: Mapping[Hashing, Hashing] = {"murmur2": "crc32", "crc32": "murmur2"}

_M = np.uint32(0x5BD1E995)
_SEED = 0x9747B28C
_CRC_TABLE = np.array([zlib.crc32(bytes([byte])) for byte in range(256)], np.uint32)


def partitions_of(ids: IdBytes, *, partitioner: Partitioner, partitions: int) -> IntArray:
    """Return the partition of each id, as producers with that partitioner choose it from the id's UTF-8 as the record's
    key.

    Args:
        partitioner: `murmur2` (Java, aiokafka), `crc32` (librdkafka's `consistent`), `none`: partition 0.
    """
    if partitioner == "none":
        return np.zeros(len(ids.lengths), np.int64)
    if partitioner == "crc32":
        return crc32(ids).astype(np.int64) % partitions
    return (murmur2(ids).astype(np.int64) & 0x7FFFFFFF) % partitions


@lru_cache(1 << 12)
def home_partition(stream: str, partitions: int) -> int:
    """Return the partition of the private topics on which everything of a stream is kept: that of its name as a key."""
    ids = IdBytes.from_ids([stream])
    return int(partitions_of(ids, partitioner="murmur2", partitions=partitions)[0])


def bounds_partition(stream: str, source_partition: int, partitions: int) -> int:
    """Return the partition of the bounds topic for a source partition: they are large, so a stream's are spread out."""
    return (home_partition(stream, partitions) + source_partition) % partitions


def murmur2(ids: IdBytes) -> Hash32:
    """Return Kafka's murmur2 of each id, `(ids,)` uint32."""
    hashes = np.empty(len(ids.lengths), np.uint32)
    whole_words = ids.lengths >> 3
    for words in distinct(whole_words):
        rows = np.flatnonzero(whole_words == words)
        lengths = ids.lengths[rows]
        state = np.uint32(_SEED) ^ lengths.astype(np.uint32)
        for index in range(words):
            word = ids.word(rows, index)
            state = _mix(state, word.astype(np.uint32))
            state = _mix(state, (word >> np.uint64(32)).astype(np.uint32))
        rest = (lengths & 7).astype(np.uint64)
        tail = ids.word(rows, words) & ((np.uint64(1) << (rest << np.uint64(3))) - np.uint64(1))
        hashes[rows] = _finish(_last_bytes(state, tail, rest))
    return hashes


def _mix(state: Hash32, block: Hash32) -> Hash32:
    block = block * _M
    block ^= block >> np.uint32(24)
    block *= _M
    state = state * _M
    state ^= block
    return state


def _last_bytes(state: Hash32, tail: npt.NDArray[np.uint64], rest: npt.NDArray[np.uint64]) -> Hash32:
    """Mix in the 0 to 7 bytes after the last whole word: a block of four where there is one, then up to three."""
    low = tail.astype(np.uint32)
    state = np.where(rest >= 4, _mix(state, low), state)
    remainder = np.where(rest >= 4, (tail >> np.uint64(32)).astype(np.uint32), low)
    return np.where((rest & np.uint64(3)) != 0, (state ^ remainder) * _M, state)


def _finish(state: Hash32) -> Hash32:
    state = state ^ (state >> np.uint32(13))
    state *= _M
    state ^= state >> np.uint32(15)
    return state


def crc32(ids: IdBytes) -> Hash32:
    """Return the CRC-32 of each id, `(ids,)` uint32, as `zlib.crc32`."""
    state = np.full(len(ids.lengths), 0xFFFFFFFF, np.uint32)
    for index in range(int(ids.lengths.max(initial=0))):
        rows = np.flatnonzero(ids.lengths > index)
        byte = ids.data[ids.starts[rows] + index]
        old = state[rows]
        # The table holds finished checksums of one byte, which differ from the raw table by the two inversions.
        state[rows] = (
            _CRC_TABLE[byte ^ (old & np.uint32(255)).astype(np.uint8) ^ np.uint8(255)] ^ _PAD ^ (old >> np.uint32(8))
        )
    return state ^ np.uint32(0xFFFFFFFF)


# crc32(bytes([b])) = table[b ^ 0xFF] ^ 0x00FFFFFF ^ 0xFFFFFFFF = table[b ^ 0xFF] ^ 0xFF000000
_PAD = np.uint32(0xFF000000)
