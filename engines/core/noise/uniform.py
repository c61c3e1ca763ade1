"""Uniform integers and fair bits.

Guarantee: exact. Every value below a bound has the same probability, by rejection; no modulo bias and no float.
"""

import numpy as np

from engines.core.noise.arguments import check_count
from engines.core.noise.source import WORD_BYTES, NoiseSource
from schemas.arrays import BoolArray, IntArray
from schemas.errors import EngineInputError

MAX_BOUND = 2**63
_TWO_64 = 2**64


def uniform_below(bound: int, count: int, source: NoiseSource) -> IntArray:
    """Draw `(count,)` int64 integers, uniform on {0, ..., bound - 1}.

    Args:
        bound: in [1, 2**63).
    Raises: EngineInputError if the bound is out of range or `count` is negative.

    >>> from engines.core.noise import seeded
    >>> uniform_below(6, 5, seeded(1))
    array([4, 4, 1, 1, 2])
    """
    check_count(count)
    if not 1 <= bound < MAX_BOUND:
        raise EngineInputError("bound must be in [1, 2**63)")
    if bound == 1:
        return np.zeros(count, dtype=np.int64)
    words = source.words(count)
    if bound & (bound - 1) == 0:
        return (words & np.uint64(bound - 1)).view(np.int64)
    # Words from the largest multiple of the bound upwards would favour small values: draw those again.
    last = np.uint64(_TWO_64 - _TWO_64 % bound - 1)
    refused = words > last
    if refused.any():
        words = words.copy()
        again = np.flatnonzero(refused)
        while again.size:
            words[again] = source.words(again.size)
            again = again[words[again] > last]
    # Division by a scalar is vectorised in numpy, the remainder is not.
    return (words - words // np.uint64(bound) * np.uint64(bound)).view(np.int64)


def random_bits(count: int, source: NoiseSource) -> BoolArray:
    """Draw `(count,)` fair bits, 64 from each word, lowest bit first.

    >>> from engines.core.noise import seeded
    >>> random_bits(4, seeded(1))
    array([False,  True,  True, False])
    """
    check_count(count)
    words = source.words(-(-count // (8 * WORD_BYTES)))
    packed = words.astype("<u8", copy=False).view(np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").view(np.bool_)
