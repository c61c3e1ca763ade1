"""Public words that look random: fixed functions of public names and numbers, by which synthetic records are placed.

Nothing here is noise and nothing protects anybody.
Source: splitmix64 ([steele2014]).
"""

from __future__ import annotations

import numpy as np

from schemas.arrays import FloatArray, WordArray

GAMMA = np.uint64(0x9E3779B97F4A7C15)
"""Multiples of it, mixed, are words of different numbers."""
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_UNIT = np.float64(2.0**-53)


def mixed(words: WordArray) -> WordArray:
    """Mix words in place, by a bijection of 64-bit words, and return them."""
    words ^= words >> np.uint64(30)
    words *= _MIX_1
    words ^= words >> np.uint64(27)
    words *= _MIX_2
    words ^= words >> np.uint64(31)
    return words


def fractions(words: WordArray) -> FloatArray:
    """Return the upper 53 bits of each word as a number in [0, 1)."""
    return (words >> np.uint64(11)) * _UNIT
