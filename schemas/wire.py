"""The container of every private record, with a kind and a format version.

Layout: 4 bytes magic and kind, 1 byte version, then zstd(safetensors(arrays, {"header": canonical JSON})), with the
checksum of zstd. Parts of a record that is too long for Kafka are compressed already, and are framed as they are:
magic, version, length of a JSON header, the header, the part, and a CRC-32 of all of it.
Equal headers and arrays give equal bytes under one version of the libraries, as recomputing a step requires. Bytes of
two processes are never compared directly: their digests decide.
There is no pickle, so a record cannot make a reader execute code.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np
import orjson
import zstandard
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from schemas.errors import EncodedSizeError, WireError

Arrays = Mapping[str, np.ndarray]
MAX_DECODED_BYTES = 1 << 30
"""Most bytes of a record before it is compressed. `encode` writes no more, and `decode` reads no more: a forged
length must not exhaust memory."""


class Kind(Enum):
    """Kind of a private record. The values are on the wire: never reuse or change one."""

    BLOCK = b"PSBL"
    SEED = b"PSSD"
    CANDIDATE = b"PSCA"
    RELEASE = b"PSRL"
    BOUNDS = b"PSBO"
    STATE = b"PSST"
    STATE_PART = b"PSSP"
    TRUTH = b"PSTR"
    JOURNAL = b"PSJO"
    ROUTE = b"PSRO"


VERSION = 1
"""Format version of all kinds."""


class _Contexts(threading.local):
    """Those of zstd, of one thread: to make one takes a third of what writing a small record does."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor()
        self._compressors: dict[int, zstandard.ZstdCompressor] = {}

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        if level not in self._compressors:
            self._compressors[level] = zstandard.ZstdCompressor(level=level, write_checksum=True)
        return self._compressors[level]


_CONTEXTS = _Contexts()


def encode(kind: Kind, header: Mapping[str, Any], arrays: Arrays, *, level: int = 1) -> bytes:
    """Pack a header and arrays into one record.

    Args:
        header: a JSON object; keys are sorted, so that equal headers give equal bytes.
        arrays: numpy arrays of fixed-width types, of any shape; names must not be empty.
        level: zstd level; 1 is right for hot paths.
    Raises: EncodedSizeError if it would have more than `MAX_DECODED_BYTES`; TypeError or ValueError for a header that
        JSON does not preserve, such as one with NaN.
    """
    text = orjson.dumps(header, option=orjson.OPT_SORT_KEYS)
    if orjson.loads(text) != header:
        raise ValueError(f"JSON does not preserve the header of a {kind.name} record: use texts, numbers, lists, dicts")
    metadata = {"header": text.decode()}
    tensors = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    body = save_tensors(tensors, metadata=metadata)
    if len(body) > MAX_DECODED_BYTES:
        size, most = f"{len(body):,}", f"{MAX_DECODED_BYTES:,}"
        raise EncodedSizeError(f"a {kind.name} record would have {size} bytes, more than the {most} that are read back")
    return kind.value + bytes([VERSION]) + _CONTEXTS.compressor(level).compress(body)


def decode(kind: Kind, data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the arrays of a record that `encode` packed.

    Raises: WireError if the bytes are of another kind, of an unknown version, or damaged; the message names sizes only.
    """
    _check_kind(kind, data)
    try:
        packed = memoryview(data)[5:]
        # What `max_output_size` says is not heeded where the frame says its size, as those of `encode` do.
        if not 0 <= zstandard.frame_content_size(packed) <= MAX_DECODED_BYTES:
            raise WireError(f"{kind.name} record of {len(data)} bytes says no size, or more than {MAX_DECODED_BYTES:,}")
        body = _CONTEXTS.decompressor.decompress(packed, allow_extra_data=False)
        length = int.from_bytes(body[:8], "little")
        header = orjson.loads(orjson.loads(body[8 : 8 + length])["__metadata__"]["header"])
        return header, load_tensors(body)
    except (zstandard.ZstdError, SafetensorError, KeyError, IndexError, orjson.JSONDecodeError) as error:
        raise WireError(f"damaged {kind.name} record of {len(data)} bytes: {type(error).__name__}") from None


_LENGTH = struct.Struct("<I")


def frame(kind: Kind, header: Mapping[str, Any], part: bytes) -> bytes:
    """Pack a header and bytes that are compressed already; `unframe` is the inverse."""
    text = orjson.dumps(header, option=orjson.OPT_SORT_KEYS)
    body = b"".join((kind.value, bytes([VERSION]), _LENGTH.pack(len(text)), text, part))
    return body + _LENGTH.pack(zlib.crc32(body))


def unframe(kind: Kind, data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header and the bytes that `frame` packed. Raises: WireError, see `decode`."""
    _check_kind(kind, data)
    begin, end = 5 + _LENGTH.size, len(data) - _LENGTH.size
    if end >= begin and _LENGTH.unpack_from(data, end)[0] == zlib.crc32(memoryview(data)[:end]):
        part = begin + _LENGTH.unpack_from(data, 5)[0]
        try:
            if part <= end:
                return orjson.loads(data[begin:part]), data[part:end]
        except orjson.JSONDecodeError:
            pass
    raise WireError(f"damaged {kind.name} record of {len(data)} bytes")


def unframe_first(kind: Kind, data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header that `frame` packed without a part, and the bytes behind its frame. Raises: WireError."""
    _check_kind(kind, data)
    end = 5 + 2 * _LENGTH.size
    if len(data) >= end:
        end += _LENGTH.unpack_from(data, 5)[0]
    return unframe(kind, data[:end])[0], data[end:]


def _check_kind(kind: Kind, data: bytes) -> None:
    """Check kind and version. Raises: WireError if one of them differs."""
    if len(data) < 5 or data[:4] != kind.value:
        raise WireError(f"expected a {kind.name} record, found another kind ({len(data)} bytes)")
    if data[4] != VERSION:
        raise WireError(f"{kind.name} record has format version {data[4]}; this release reads version {VERSION}")
