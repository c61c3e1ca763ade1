"""Uniform words compared with the binary digits of exp(-v) for whole v: one word decides, ties look at more digits.

Guarantee: exact. A word is the first 64 binary digits of a uniform real number; if they differ from the first 64 of
    exp(-v), the comparison of the two reals is decided, and otherwise (once in 2**64) the next 64 digits of both
    are compared, and so on. exp(-v) is irrational, so the digits differ somewhere.
Source: the comparison is folklore ([vonneumann1951]); the digits come from the alternating series of 1/e in integers.
"""

from functools import cache

import numpy as np

from engines.core.noise.source import NoiseSource
from schemas.arrays import BoolArray, IntArray
from schemas.errors import EngineInputError

WORD_BITS = 64
TOP = 32
"""Largest v that is decided by one word; larger ones by several, as exp(-v) is exp(-32) * exp(-(v - 32))."""

MAX_GEOMETRIC = 2**20
"""No uniform source gets here, its probability is exp(-2**20): a sum that far out could leave int64."""


@cache
def exp_digits(v: int, words: int) -> int:
    """Return floor(2**(64 * words) * exp(-v)), for v >= 0, in integer arithmetic with proven bounds.

    >>> exp_digits(1, 1) / 2**64
    0.36787944117144233
    """
    guard = WORD_BITS
    while True:
        precision = WORD_BITS * words + guard
        low, high = _inverse_e(precision)
        low_power = high_power = 1 << precision
        for _ in range(v):
            low_power = (low_power * low) >> precision
            high_power = -((-high_power * high) >> precision)
        # Where both bounds agree on the digits asked for, so does every number between them.
        if low_power >> guard == high_power >> guard:
            return low_power >> guard
        guard *= 2


def _inverse_e(precision: int) -> tuple[int, int]:
    """Bracket 2**precision / e."""
    term, total, terms = 1 << precision, 0, 0
    while term:
        total += -term if terms % 2 else term
        terms += 1
        term //= terms
    # Each term is floor(2**precision / terms!), less than one off; the terms left out add less than one.
    return total - terms - 1, total + terms + 1


# _LIMITS[v] holds the first 64 digits of exp(-v); entry 0 is never looked at.
_LIMITS = np.array([0] + [exp_digits(v, 1) for v in range(1, TOP + 1)], dtype=np.uint64)
_ASCENDING = _LIMITS[:0:-1].copy()


def _below(word: int, v: int, source: NoiseSource) -> bool:
    """Compare a uniform real that begins with `word` with exp(-v), one word after the other."""
    words = 1
    while word == exp_digits(v, words):
        word = (word << WORD_BITS) | int(source.words(1)[0])
        words += 1
    return word < exp_digits(v, words)


def below_exp(v: IntArray, source: NoiseSource) -> BoolArray:
    """Draw `(n,)` coins, the i-th True with probability exp(-v[i]) exactly; each entry must be in [1, 32].

    >>> from engines.core.noise import seeded
    >>> below_exp(np.array([1, 1, 1, 32]), seeded(3))
    array([False,  True,  True, False])
    """
    words = source.words(v.size)
    limits = _LIMITS[v]
    below = words < limits
    for i in np.flatnonzero(words == limits):
        below[i] = _below(int(words[i]), int(v[i]), source)
    return below


def geometric(count: int, source: NoiseSource) -> IntArray:
    """Draw `(count,)` int64 values V >= 0 with P(V >= v) = exp(-v) exactly.

    Raises: EngineInputError if a value reaches 2**20, which means that the source is not uniform.

    >>> from engines.core.noise import seeded
    >>> geometric(5, seeded(3))
    array([0, 3, 1, 0, 0])
    """
    values = np.zeros(count, dtype=np.int64)
    # Given V >= 32, V - 32 is distributed like V, so those few start again from there.
    pending = np.arange(count)
    for reached in range(0, MAX_GEOMETRIC, TOP):
        words = source.words(pending.size)
        above = np.searchsorted(_ASCENDING, words, side="right")
        found = TOP - above
        # A word that begins like exp(-v) itself: more digits decide whether v is reached.
        for i in np.flatnonzero(_ASCENDING[above - 1] == words):
            if _below(int(words[i]), int(found[i]) + 1, source):
                found[i] += 1
        values[pending] = reached + found
        pending = pending[found == TOP]
        if not pending.size:
            return values
    raise EngineInputError("source is not uniform: it gave only small words")
