"""Public pseudo-random placement: which child the next point of a cell goes to, and where it lies in the finest cell.

Nothing here is noise and nothing protects anybody: it is a fixed public function of the stream's name, so that
synthetic points are a function of the released counts and stay where they are.
Source: splitmix64 ([steele2014]) under a key from SHA-256; positions are Kronecker sequences (the R2
sequence).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from engines.spatial.domain import SpatialDomain
from engines.spatial.domain.base import FRACTION, SHARE_BITS
from schemas.arrays import BoolArray, FloatArray, IntArray, WordArray

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
# 2**64 / p and 2**64 / p**2 with p the plastic number: the multiples fill the unit square evenly.
_R2_X, _R2_Y = np.uint64(0xC13FA9A902A6328F), np.uint64(0x91E10DA5C79E7B1D)


def _mix(words: WordArray) -> WordArray:
    """Finaliser of splitmix64, in place: a bijection of 64-bit words that looks random."""
    words ^= words >> np.uint64(30)
    words *= _MIX_1
    words ^= words >> np.uint64(27)
    words *= _MIX_2
    words ^= words >> np.uint64(31)
    return words


@dataclass(frozen=True, slots=True)
class Placement:
    """Public random-looking constants of one stream's cells.

    Args:
        name: of the stream; two streams place their points differently.
        domain: whose cells share their points by measure; without one, all cells halve them.
    """

    name: str
    domain: SpatialDomain | None = None
    _key: WordArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha256(b"privstream/points/1\0" + self.name.encode()).digest()
        object.__setattr__(self, "_key", np.frombuffer(digest[:16], "<u8").astype(np.uint64))

    def words(self, nodes: IntArray) -> WordArray:
        """One uniform-looking word per heap number, `(nodes,)`."""
        return _mix(nodes.astype(np.uint64) * _GAMMA + self._key[:1])

    def first_child(self, nodes: IntArray) -> IntArray:
        """`(nodes,)` 0 or 1: the child that takes points 0, 2, 4, ... of a cell of equal halves, or an odd one."""
        return (self.words(nodes) & np.uint64(1)).astype(np.int64)

    @property
    def halved(self) -> bool:
        """True where all cells have equal halves, down to the finest."""
        return self.domain is None or self.domain.halved

    def divisible(self, nodes: IntArray, depths: IntArray) -> BoolArray:
        """`(nodes,)` True where a cell above the finest level has children."""
        if self.domain is None or self.domain.halved:
            return np.ones(len(nodes), np.bool_)
        return self.domain.divisible(nodes, depths)

    def first_of(self, nodes: IntArray, depths: IntArray, counts: IntArray) -> IntArray:
        """`(nodes,)`: how many of a cell's first `counts` points go to its first child.

        With `w / 2**b` the first child's share it is `(n w + c) >> b`, c fixed per cell: one more or as many for one
        point more, so the first n points of a cell are the first points of its children.
        """
        if self.domain is None or self.domain.halved:
            return (counts + 1 - self.first_child(nodes)) >> 1
        return self._shared(nodes, depths, counts)[0]

    def child_of(self, nodes: IntArray, depths: IntArray, indices: IntArray) -> tuple[IntArray, IntArray]:
        """The child, 0 or 1, that a cell's point with this index goes to, and its index there; `(nodes,)` each."""
        if self.domain is None or self.domain.halved:
            return (indices & 1) ^ self.first_child(nodes), indices >> 1
        before, after = self._shared(nodes, depths, indices)
        second = 1 - (after - before)
        return second, np.where(second == 1, indices - before, before)

    def _shared(self, nodes: IntArray, depths: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
        """How many of the first `counts`, and of one more, go to the first child."""
        assert self.domain is not None
        shares = self.domain.left_shares(nodes, depths)
        exact = counts * shares + (self.words(nodes) >> np.uint64(64 - SHARE_BITS)).astype(np.int64)
        return exact >> SHARE_BITS, (exact + shares) >> SHARE_BITS

    def fractions(self, nodes: IntArray) -> FloatArray:
        """`(nodes,)` in [0, 1), fixed per cell: rounds fractional counts so that they are right on average."""
        return (self.words(nodes) >> np.uint64(11)) * FRACTION

    def positions(self, nodes: IntArray, indices: IntArray) -> tuple[FloatArray, FloatArray]:
        """Where the points with these indices lie in their finest cells: x and y, `(points,)` each, in [0, 1)."""
        start = self.words(nodes)
        turns = indices.astype(np.uint64)
        x = start + turns * _R2_X
        y = _mix(start ^ self._key[1:]) + turns * _R2_Y
        return (x >> np.uint64(11)) * FRACTION, (y >> np.uint64(11)) * FRACTION
