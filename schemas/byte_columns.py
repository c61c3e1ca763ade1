"""Byte strings of many rows, column by column: what is written for a million records is not an object for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.arrays import IntArray

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class ByteColumn:
    """A byte string for each row.

    Attributes:
        cells: `(rows, width)`; what is behind a row's length means nothing.
        lengths: `(rows,)`.
    """

    cells: Bytes
    lengths: IntArray

    def __len__(self) -> int:
        return len(self.lengths)

    @staticmethod
    def of(values: Sequence[bytes]) -> ByteColumn:
        """Return the column of these values."""
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        width = max(int(lengths.max(initial=0)), 1)
        cells = np.array(values, f"S{width}").view(np.uint8).reshape(len(values), width)
        return ByteColumn(cells, lengths)

    @staticmethod
    def without_nul(values: npt.NDArray[np.bytes_]) -> ByteColumn:
        """Return the column of `(rows,)` values, none of which has a NUL."""
        cells = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.itemsize)
        return ByteColumn(cells, np.count_nonzero(cells, axis=1))

    @staticmethod
    def fixed(values: npt.NDArray[Any]) -> ByteColumn:
        """Return the column of `(rows,)` values as they are in memory."""
        width = values.itemsize
        return ByteColumn(values.view(np.uint8).reshape(len(values), width), np.full(len(values), width))

    @staticmethod
    def cut(data: Bytes, begins: IntArray, lengths: IntArray) -> ByteColumn:
        """Return the column of the bytes of `data` that begin at `begins`, so many of each."""
        width = int(lengths.max(initial=1))
        # A window for each row, whole: behind the last one is nothing to read.
        if len(begins) and begins[-1] + width > len(data):
            data = np.concatenate((data, np.zeros(width, np.uint8)))
        if len(data) < width:
            return ByteColumn(np.zeros((0, width), np.uint8), lengths)
        windows = np.ndarray((len(data) - width + 1, width), np.uint8, np.ascontiguousarray(data), strides=(1, 1))
        return ByteColumn(windows[begins], lengths)

    @staticmethod
    def varints(numbers: IntArray) -> ByteColumn:
        """Return numbers as Kafka writes them: zigzag, seven bits a byte, the lowest first."""
        left = (numbers << 1) ^ (numbers >> 63)
        cells, lengths = [], np.ones(len(numbers), np.int64)
        while True:
            more = left > 0x7F
            cells.append(((left & 0x7F) | (more << 7)).astype(np.uint8))
            if not more.any():
                return ByteColumn(np.stack(cells, axis=1), lengths)
            left, lengths = left >> 7, lengths + more

    def only(self, rows: IntArray | slice) -> ByteColumn:
        """Return the column of these rows, any number of times each."""
        return ByteColumn(self.cells[rows], self.lengths[rows])


Piece = bytes | ByteColumn
"""The same for all rows, or one for each."""
_AT_ONCE = 1 << 12
"""Rows that are put side by side at once: few enough for the processor's cache."""


def side_by_side(pieces: Sequence[Piece], rows: int) -> bytes:
    """Return row behind row, each with its pieces one behind the other.

    >>> side_by_side([b"<", ByteColumn.of([b"a", b"bc"]), b">"], 2)
    b'<a><bc>'
    """
    widths = [len(piece) if isinstance(piece, bytes) else piece.cells.shape[1] for piece in pieces]
    parts: list[bytes] = []
    for some in (slice(begin, min(begin + _AT_ONCE, rows)) for begin in range(0, rows, _AT_ONCE)):
        shape, at = (some.stop - some.start, sum(widths)), 0
        cells, there = np.empty(shape, np.uint8), np.ones(shape, np.bool_)
        for piece, width in zip(pieces, widths, strict=True):
            place = slice(at, at := at + width)
            if isinstance(piece, bytes):
                cells[:, place] = np.frombuffer(piece, np.uint8)
            else:
                cells[:, place] = piece.cells[some]
                if (lengths := piece.lengths[some]).min() < width:
                    there[:, place] = np.arange(width) < lengths[:, None]
        parts.append(cells[there].tobytes())
    return b"".join(parts)


def lengths_of(pieces: Sequence[Piece], rows: int) -> IntArray:
    """Return the length of each row of `side_by_side`."""
    lengths = np.zeros(rows, np.int64)
    for piece in pieces:
        lengths += len(piece) if isinstance(piece, bytes) else piece.lengths
    return lengths
