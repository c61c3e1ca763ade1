"""Binomial noise: fair coins counted, less their mean.

Guarantee: exact; a count of independent uniform bits. What privacy it buys is worked out by its user
    ([zhang2022], lemma A.2), and is less than that of discrete Gaussian noise of the same variance.
Source: [dwork2006]; [zhang2022], appendix A.3.
Units: integers.
"""

from functools import partial

import numpy as np

from engines.core.noise.arguments import check_count, whole
from engines.core.noise.door import released
from engines.core.noise.source import NoiseSource
from engines.core.noise.witness import BinomialLaw, drawn
from schemas.arrays import IntArray
from schemas.errors import EngineInputError

MAX_HALF = 2**32
"""Coins take time: two for each unit of `half`."""

_WORDS = 2**20
_WORD_BITS = 64


def centred_binomials(count: int, half: int, source: NoiseSource) -> IntArray:
    """Draw `(count,)` int64 values N with N + half ~ Binomial(2 half, 1/2), one after the other; variance half / 2.

    Args:
        half: at least 0, at most 2**32.
    Raises: EngineInputError if `count` is negative or `half` is out of range.

    >>> from engines.core.noise import seeded
    >>> centred_binomials(2, 50, seeded(1))
    array([-10,   5])
    """
    check_count(count)
    if not 0 <= half <= MAX_HALF:
        raise EngineInputError("half must be between 0 and 2**32")
    return drawn(source, BinomialLaw(half), partial(_values, count, half))


def _values(count: int, half: int, source: NoiseSource) -> IntArray:
    return np.array([_value(half, source) for _ in range(count)], dtype=np.int64)


def _value(half: int, source: NoiseSource) -> int:
    heads, coins = 0, 2 * half
    while coins:
        words = source.words(min(_WORDS, -(-coins // _WORD_BITS)))
        tossed = min(coins, _WORD_BITS * len(words))
        spare = _WORD_BITS * len(words) - tossed
        heads += int(np.bitwise_count(words[:-1]).sum())
        # The last word is cut to the coins that are still wanted.
        heads += (int(words[-1]) >> spare).bit_count()
        coins -= tossed
    return heads - half


def binomial_mechanism(value: int, half: int, source: NoiseSource) -> int:
    """Add centred binomial noise of `2 half` fair coins to a private integer.

    Guarantee: what `engines.series.papers.ar1` works out.
    Raises: EngineInputError if `half` is out of range.
    """
    draw = partial(centred_binomials, half=half, source=source)
    noisy: int = released(value, BinomialLaw(half), draw, source, checked=whole)
    return noisy
