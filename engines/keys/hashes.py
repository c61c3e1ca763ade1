"""Hashes of keys: two words in place of a key of any length, by a function that is drawn anew for each period. PRIVATE.

A key is the halves s_1, ..., s_n of its words. With uniform words m_0, ..., m_n, the upper bits of
    m_0 + m_1 s_1 + ... + m_n s_n  mod 2^64
are a hash. A key has four of them, with words of their own: 32, 32, 32 and 12 bits.
Guarantee: two keys that were chosen without knowledge of m have the same hash with probability 2^-108, exactly: no
    assumption on what anybody can compute. Nothing that leaves depends on m unless two keys of a period share a hash;
    so among n keys of a period some two do with probability n^2 2^-109 at most, chosen by what was released too.
Source: [lemire2014], multilinear hashing. SHA-256 and BLAKE2 of each key, from Python, take six times as long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.core.noise import NoiseSource
from schemas.arrays import KeyArray, WordArray

PEOPLE_BITS = 20
"""Lowest bits of the second word that a hash leaves free."""
_HALF = np.uint64(32)
_LOWER = np.uint64(2**32 - 1)
_COLUMNS = 4
_ROWS = 2**12
"""Keys at a time, which stay in the processor's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyHash:
    """One function; see the module. Attributes: multipliers: `(1 + 2 * words, 4)` uint64, m_0 first."""

    multipliers: KeyArray

    @staticmethod
    def drawn(words: int, source: NoiseSource) -> KeyHash:
        """Draw a function of keys of so many words."""
        rows = 1 + 2 * words
        return KeyHash(source.words(_COLUMNS * rows).reshape(rows, _COLUMNS))

    @property
    def words(self) -> int:
        """Number of words of the keys that it takes."""
        return len(self.multipliers) // 2

    @staticmethod
    def none(words: int) -> KeyHash:
        """Return the function of a table that no key will come to: all hashes are 0."""
        return KeyHash(np.zeros((1 + 2 * words, _COLUMNS), np.uint64))

    def of(self, keys: KeyArray) -> tuple[WordArray, WordArray]:
        """Return two words `(keys,)` each; of the second one the lowest `PEOPLE_BITS` are 0."""
        first, second = np.empty(len(keys), np.uint64), np.empty(len(keys), np.uint64)
        for begin in range(0, len(keys), _ROWS):
            some = keys[begin : begin + _ROWS]
            halves = np.concatenate((some >> _HALF, some & _LOWER), axis=1)
            hashes = self.multipliers[0] + halves @ self.multipliers[1:]
            upper = hashes & ~_LOWER
            first[begin : begin + _ROWS] = upper[:, 0] | (hashes[:, 1] >> _HALF)
            second[begin : begin + _ROWS] = upper[:, 2] | (hashes[:, 3] >> _HALF)
        return first, second >> np.uint64(PEOPLE_BITS) << np.uint64(PEOPLE_BITS)
