"""Rows as synthetic records: raw field names and types, and a fixed place in its bin for every number.

Public pseudo-randomness: a number's place in its bin is a function of the stream's name, the row's origin and the
attribute. Nothing here is noise and nothing protects anybody.
Source: splitmix64 ([steele2014]) under a key from SHA-256.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from engines.core.many_records import ManyRecords, RecordColumns
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


@dataclass(frozen=True, slots=True, eq=False)
class RowRecords(ManyRecords):
    """Records of rows, made when they are read.

    Attributes:
        key: see `stream_key`.
        codes: `(rows, attributes)`. ids, origins: `(rows,)`, see `engines.tabular.records.Rows`.
    """

    domain: TableDomain
    key: int
    codes: np.ndarray
    ids: IntArray
    origins: IntArray

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, rows: range) -> RecordColumns:
        """See `ManyRecords`."""
        at = np.arange(rows.start, rows.stop, rows.step)
        fractions = places(self.key, self.origins[at], len(self.domain.attributes))
        columns = self.domain.decode_values(self.codes[at].astype(np.int64), fractions)
        return RecordColumns(
            [record_id(serial) for serial in self.ids[at].tolist()],
            dict(zip(self.domain.names, columns, strict=True)),
        )
