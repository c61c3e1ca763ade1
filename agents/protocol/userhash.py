"""User ids as keyed 128-bit hashes: AES-CMAC.

The id itself is never stored: a hash under a secret key cannot be turned back by trying all ids without that key.
128 bits, because two users who share a hash would share one bound; at 64 bits chance does that among 10^9 users.
Source: [dworkin2005], section 6.2.

| id                                                             | becomes              |
|----------------------------------------------------------------|----------------------|
| text of 1 to 256 bytes of UTF-8 without NUL                     | its bytes            |
| integer                                                        | its decimal digits   |
| empty, longer, with NUL or a lone surrogate, anything else     | unusable             |
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from schemas.arrays import BoolArray, IntArray

Words = npt.NDArray[np.uint64]

MAX_ID_BYTES = 256
KEY_BYTES = 16
PADDING = 16
"""Bytes behind the last id of a buffer, so that a block, or any 8 bytes, can be read from every place of an id."""
_BLOCK = 16
_LARGEST_INT = 10**MAX_ID_BYTES


def user_key(secret: bytes, *, stream: str) -> bytes:
    """Return the 16-byte hash key of one stream. Streams get different keys: their stores cannot be joined on users."""
    return hmac.digest(secret, b"privstream user hash 1\0" + stream.encode(), "sha256")[:KEY_BYTES]


def key_id(key: bytes) -> str:
    """Return a name of a key, and of how users are hashed with it, that does not give it away: for the fingerprint that
    refuses to go on with others, by which every user would count as new.
    """
    hashed = UserHash(key).of_ids(IdBytes.from_ids(["privstream"])).astype("<u8").tobytes()
    return hashlib.sha256(b"privstream user key id 1\0" + key + hashed).hexdigest()[:16]


@dataclass(frozen=True, slots=True, eq=False)
class IdBytes:
    """The UTF-8 of a batch of ids in one buffer, padded at the end by `PADDING` bytes.

    Attributes:
        data: `(bytes,)` uint8; id i is `data[starts[i] : starts[i] + lengths[i]]`.
        usable: `(ids,)` bool; an unusable id has no bytes.
    """

    data: npt.NDArray[np.uint8]
    starts: IntArray
    lengths: IntArray
    usable: BoolArray

    @staticmethod
    def from_ids(ids: Sequence[object]) -> IdBytes:
        """Return the bytes of ids.

        >>> IdBytes.from_ids(["ann", 7, "", True]).usable.tolist()
        [True, True, False, False]
        """
        count = len(ids)
        if count == 0:
            nothing = np.zeros(0, np.int64)
            return IdBytes(np.zeros(PADDING, np.uint8), nothing, nothing, np.zeros(0, bool))
        try:
            joined = "\0".join(ids).encode()  # type: ignore[arg-type]
            if joined.count(0) != count - 1:
                joined = _checked(ids)
        except (TypeError, UnicodeEncodeError):
            joined = _checked(ids)
        data = np.frombuffer(joined + bytes(PADDING), np.uint8)
        ends = np.append(np.flatnonzero(data[: len(joined)] == 0), len(joined))
        starts = np.zeros(count, np.int64)
        starts[1:] = ends[:-1] + 1
        lengths = ends - starts
        usable = (lengths > 0) & (lengths <= MAX_ID_BYTES)
        # What goes over the bytes of ids takes a turn for each eight, or each one: a crafted id of a megabyte would
        # keep everything else of its worker waiting for seconds.
        lengths[~usable] = 0
        return IdBytes(data, starts, lengths, usable)

    def word(self, rows: IntArray, index: int) -> Words:
        """Return eight bytes of each id from byte `8 * index` on, little-endian; bytes past its end may be anything."""
        windows = np.ndarray((len(self.data) - 7,), "<u8", self.data.data, strides=(1,))
        return windows[self.starts[rows] + 8 * index].astype(np.uint64, copy=False)


def _checked(ids: Sequence[object]) -> bytes:
    return b"\0".join([id_bytes(each) for each in ids])


def id_bytes(value: object) -> bytes:
    """Return the bytes of one id; b"" stands for an unusable one. Ids that have the same bytes are one user."""
    if type(value) is int and -_LARGEST_INT < value < _LARGEST_INT:
        return str(value).encode()
    if type(value) is not str or "\0" in value:
        return b""
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        return b""
    return encoded if len(encoded) <= MAX_ID_BYTES else b""


class UserHash:
    """Hashes ids, and what is made of them, under one key. Holds the key: never print or log it.

    A hash is AES-CMAC of the bytes, as `cryptography.hazmat.primitives.cmac` has it for one message: here the blocks of
    all messages go through one call of AES. Source: [dworkin2005], section 6.2.
    """

    def __init__(self, key: bytes) -> None:
        # Blocks are chained by `_hashes`.
        self._cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305
        whole = _doubled(int.from_bytes(self._encrypted(bytes(_BLOCK)), "big"))
        for_whole, for_padded = (
            np.frombuffer(subkey.to_bytes(_BLOCK, "big"), np.uint8) for subkey in (whole, _doubled(whole))
        )
        lengths, places = np.arange(_BLOCK + 1)[:, None], np.arange(_BLOCK)
        # By the length of a message's last block: which of its bytes are the message's, and what they are mixed with.
        self._mask = np.where(places < lengths, 0xFF, 0).astype(np.uint8).view(np.uint64)
        last = np.where(places == lengths, 0x80, 0).astype(np.uint8) ^ for_padded
        last[_BLOCK] = for_whole
        self._last = last.view(np.uint64)

    def of_ids(self, ids: IdBytes) -> Words:
        """Return the hash of each id.

        Returns: `(ids, 2)` uint64, the digest as two little-endian words. The first word is never 0, which marks free
            slots in a table; 2**-64 of all ids share the hash of another for it. Unusable ids get some hash.
        """
        return self._hashes(ids.data, ids.starts, ids.lengths)

    def of_rows(self, rows: Words) -> Words:
        """Return the hash of each row of words, `(rows, 2)` uint64 as of `of_ids`; words of 0 at the end are no part of
        a row.

        Args: rows: `(rows, words)` uint64. All have one length, so different rows are different inputs of the hash.
        """
        count, width = rows.shape
        words = ((rows != 0) * np.arange(1, width + 1)).max(axis=1, initial=0)
        data = np.frombuffer(rows.astype("<u8").tobytes() + bytes(PADDING), np.uint8)
        return self._hashes(data, np.arange(count) * 8 * width, 8 * words)

    def _hashes(self, data: npt.NDArray[np.uint8], starts: IntArray, lengths: IntArray) -> Words:
        """Return the hashes of parts of `data`, which goes on for `PADDING` bytes behind the last."""
        blocks = np.ndarray((len(data) - _BLOCK + 1, 2), np.uint64, data.data, strides=(1, 8))
        hashes = np.zeros((len(starts), 2), np.uint64)
        rows, begin = np.arange(len(starts)), 0
        while len(rows):
            left = lengths[rows] - begin
            ends, used = left <= _BLOCK, np.minimum(left, _BLOCK)
            mixed = (blocks[starts[rows] + begin] & self._mask[used]) ^ hashes[rows]
            mixed[ends] ^= self._last[used[ends]]
            hashes[rows] = np.frombuffer(self._encrypted(mixed.tobytes()), np.uint64).reshape(-1, 2)
            rows, begin = rows[~ends], begin + _BLOCK
        hashes = hashes.view("<u8").astype(np.uint64, copy=False)
        hashes[hashes[:, 0] == 0, 0] = 1
        return hashes

    def _encrypted(self, blocks: bytes) -> bytes:
        return self._cipher.encryptor().update(blocks)


def _doubled(block: int) -> int:
    """Return a block times x in the field of 2**128 elements."""
    return (block << 1 & (1 << 128) - 1) ^ (0x87 if block >> 127 else 0)
