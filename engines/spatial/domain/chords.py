"""Points drawn evenly in pieces of polygons: at a height, somewhere along the chords that the piece has there.

A point is drawn as `(u, v)`: v says the height in the piece's bounding box, and u, times the longest that all chords of
the piece are anywhere, how far along the chords of this height it lies; beyond their end the draw is refused. So what
is not refused is even, and thin pieces that lie askew refuse few.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engines.spatial.domain.pieces import Ragged
from schemas.arrays import BoolArray, FloatArray, IntArray

_CHUNK = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class Strips:
    """Between heights of neighbouring corners of pieces, `(strips,)` each."""

    pieces: IntArray
    south: FloatArray
    north: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Chords:
    """Attributes:

    rows: of each piece's edges. edges: `(edges, 4)` x, y, x, y, none of them level; some may run back over others.
    """

    rows: Ragged
    edges: FloatArray
    _frames: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_frames", np.full((3, self.count), np.nan))

    @property
    def count(self) -> int:
        """Pieces."""
        return len(self.rows.starts) - 1

    @property
    def nbytes(self) -> int:
        """Of memory."""
        return self.edges.nbytes + self.rows.starts.nbytes + self._frames.nbytes

    def drawn(self, pieces: IntArray, u: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Points of pieces, x and y, and whether the draw holds; `(points,)` each. u and v are in [0, 1)."""
        longest, low, high = self._frames_of(pieces)
        target, y = u * longest, low + v * (high - low)
        point, west, east = self._at(pieces, y)
        length = east - west
        before = np.cumsum(length) - length
        before -= before[np.searchsorted(point, point)]
        hit = (before <= target[point]) & (target[point] < before + length)
        x, holds = np.zeros(len(pieces)), np.zeros(len(pieces), np.bool_)
        x[point[hit]] = west[hit] + (target[point[hit]] - before[hit])
        holds[point[hit]] = True
        return x, y, holds

    def middles(self) -> tuple[FloatArray, FloatArray]:
        """A point well inside of each piece, `(pieces,)` x and y; NaN where there is none."""
        x, y = np.full(self.count, np.nan), np.full(self.count, np.nan)
        for start in range(0, self.count, _CHUNK):
            strips = self._strips(np.arange(start, min(start + _CHUNK, self.count)))
            height = (strips.south + strips.north) / 2
            at, west, east = self._at(strips.pieces, height)
            room = (east - west) * (strips.north - strips.south)[at]
            order = np.argsort(room, kind="stable")
            order = order[room[order] > 0]
            at, middle = at[order], ((west + east) / 2)[order]
            # Of what is written twice the last, which has the most room, stays.
            x[strips.pieces[at]], y[strips.pieces[at]] = middle, height[at]
        return x, y

    def _frames_of(self, pieces: IntArray) -> FloatArray:
        """`(3, pieces)`: the most that a piece's chords of one height are together, the lowest height that has any, and
        the highest; worked out when they are first asked for."""
        unknown = np.unique(pieces[np.isnan(self._frames[0, pieces])])
        for start in range(0, len(unknown), _CHUNK):
            some = unknown[start : start + _CHUNK]
            strips = self._strips(some)
            quarter = (strips.north - strips.south) / 4
            first, last = (self._lengths(strips.pieces, y) for y in (strips.south + quarter, strips.north - quarter))
            # Between two corners the length is linear: this is what it is at the strip's ends.
            ends = np.maximum(1.5 * first - 0.5 * last, 1.5 * last - 0.5 * first)
            there = np.maximum(first, last) > 0
            longest, low, high = np.zeros(self.count), np.full(self.count, np.inf), np.full(self.count, -np.inf)
            np.maximum.at(longest, strips.pieces, ends)
            np.minimum.at(low, strips.pieces[there], strips.south[there])
            np.maximum.at(high, strips.pieces[there], strips.north[there])
            self._frames[:, some] = longest[some] * (1 + 1e-6), low[some], high[some]
        return self._frames[:, pieces]

    def _lengths(self, pieces: IntArray, y: FloatArray) -> FloatArray:
        at, west, east = self._at(pieces, y)
        return np.bincount(at, east - west, minlength=len(y)).astype(np.float64)

    def _strips(self, pieces: IntArray) -> Strips:
        at, rows = self.rows.rows(pieces)
        owner = np.concatenate([pieces[at], pieces[at]])
        heights = np.concatenate([self.edges[rows, 1], self.edges[rows, 3]])
        order = np.lexsort((heights, owner))
        owner, heights = owner[order], heights[order]
        strip = (owner[1:] == owner[:-1]) & (heights[1:] > heights[:-1])
        return Strips(owner[1:][strip], heights[:-1][strip], heights[1:][strip])

    def _at(self, pieces: IntArray, y: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """The chords of pieces at heights: which of `pieces`, and both ends, from west to east."""
        at, rows = self.rows.rows(pieces)
        x0, y0, x1, y1 = self.edges[rows].T
        height = y[at]
        crossed = (y0 <= height) != (y1 <= height)
        at, x0, y0, x1, y1, height = (part[crossed] for part in (at, x0, y0, x1, y1, height))
        x = x0 + (height - y0) / (y1 - y0) * (x1 - x0)
        order = np.lexsort((x, at))
        x = x[order]
        return at[order][::2], x[::2], x[1::2]
