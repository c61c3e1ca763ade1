"""Rows as synthetic records: raw field names and types, and a fixed place in its bin for every number.

Public pseudo-randomness: a number's place in its bin is a function of the stream's name, the row's origin and the
attribute. Nothing here is noise and nothing protects anybody.
Source: splitmix64 ([steele2014]) under a key from SHA-256.
"""

from __future__ import annotations

import hashlib

import numpy as np

from engines.contract import SyntheticRecord
from engines.tabular.domain import TableDomain
from schemas.arrays import FloatArray, IntArray, WordArray

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def stream_key(name: str) -> int:
    """The public key of a stream's placement."""
    return int.from_bytes(hashlib.sha256(b"privstream/rows/1\0" + name.encode()).digest()[:8], "little")


def record_id(serial: int) -> str:
    """Key of the record with this serial number."""
    return f"{serial:x}"


def places(key: int, origins: IntArray, attributes: int) -> FloatArray:
    """`(rows, attributes)` in [0, 1): where numbers lie in their bins."""
    columns = _mix(np.arange(1, attributes + 1, dtype=np.uint64) * _GAMMA + np.uint64(key))
    words = _mix((origins.astype(np.uint64) * _GAMMA)[:, None] + columns[None, :])
    fractions: FloatArray = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return fractions


def _mix(words: WordArray) -> WordArray:
    """Finaliser of splitmix64: a bijection of 64-bit words that looks random."""
    words = (words ^ (words >> np.uint64(30))) * _MIX_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_2
    mixed: WordArray = words ^ (words >> np.uint64(31))
    return mixed


def records(
    domain: TableDomain, key: int, codes: np.ndarray, ids: IntArray, origins: IntArray
) -> list[SyntheticRecord]:
    """Records of rows with these `(rows, attributes)` codes."""
    columns = domain.decode_values(codes.astype(np.int64), places(key, origins, len(domain.attributes)))
    names = domain.names
    return [
        SyntheticRecord(record_id(serial), dict(zip(names, row, strict=True)))
        for serial, row in zip(ids.tolist(), zip(*columns, strict=True), strict=True)
    ]
