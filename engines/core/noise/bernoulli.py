"""Coins of probability exp(-x) for a rational x.

Guarantee: exact for every rational, however large or small; integers only. A coin of probability exp(-1000) is True
    with that probability and not with zero.
Source: [canonne2020], algorithm 1. Whole
    parts of x are drawn by `digits.below_exp` instead of one coin of exp(-1) after the other.
"""

from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from engines.core.noise.arguments import INT64_MAX, int64_vector
from engines.core.noise.digits import TOP, below_exp
from engines.core.noise.source import WORD_BYTES, NoiseSource
from engines.core.noise.uniform import MAX_BOUND, uniform_below
from engines.core.noise.witness import CoinsLaw, drawn
from schemas.arrays import BoolArray, IntArray, WordArray
from schemas.errors import EngineInputError


def bernoulli_exp(numerators: ArrayLike, denominator: int, source: NoiseSource) -> BoolArray:
    """Draw `(n,)` coins, the i-th True with probability exp(-numerators[i] / denominator).

    Args:
        numerators: `(n,)` int64, non-negative.
        denominator: a positive integer of any size.
    Raises: EngineInputError if a numerator is negative or the denominator is not positive.

    >>> from engines.core.noise import seeded
    >>> bernoulli_exp([0, 1, 3_000_000], 3, seeded(1))
    array([ True,  True, False])
    """
    numerators = int64_vector("numerators", numerators)
    if denominator < 1:
        raise EngineInputError("denominator must be positive")
    if numerators.size and int(numerators.min()) < 0:
        raise EngineInputError("numerators must not be negative")
    if denominator >= MAX_BOUND:
        return np.array([coin_exp(int(n), denominator, source) for n in numerators], dtype=np.bool_)
    return _coins_exp(numerators // denominator, numerators % denominator, denominator, source)


def bernoulli_exp_multiples(multiples: IntArray | WordArray, unit: Fraction, source: NoiseSource) -> BoolArray:
    """Draw `(n,)` coins, the i-th True with probability exp(-multiples[i] * unit).

    Args:
        multiples: `(n,)` int64 or uint64, non-negative.
        unit: a non-negative fraction of any size: what does not fit into int64 is worked out in Python integers.

    >>> from engines.core.noise import seeded
    >>> bernoulli_exp_multiples(np.array([0, 1, 10**9]), Fraction(1, 3), seeded(1))
    array([ True,  True, False])
    """
    largest = int(multiples.max()) if multiples.size else 0
    if max(1, largest) * unit.numerator <= INT64_MAX:
        return bernoulli_exp(multiples.astype(np.int64, copy=False) * unit.numerator, unit.denominator, source)
    products = multiples.astype(object) * unit.numerator
    if unit.denominator >= MAX_BOUND or largest * unit.numerator // unit.denominator > INT64_MAX:
        return np.array([coin_exp(n, unit.denominator, source) for n in products], dtype=np.bool_)
    whole: IntArray = (products // unit.denominator).astype(np.int64)
    rest: IntArray = (products % unit.denominator).astype(np.int64)
    return _coins_exp(whole, rest, unit.denominator, source)


def private_coins(multiples: IntArray | WordArray, rate: Fraction, source: NoiseSource) -> BoolArray:
    """Draw the coins of `bernoulli_exp_multiples` for private multiples: what mechanisms decide by."""
    return drawn(source, CoinsLaw(multiples, rate), partial(bernoulli_exp_multiples, multiples, rate))


def _coins_exp(whole: IntArray, rest: IntArray, denominator: int, source: NoiseSource) -> BoolArray:
    """Draw coins of probability exp(-(whole + rest / denominator)), with 0 <= rest < denominator."""
    result = np.ones(whole.size, dtype=np.bool_)
    # exp(-whole) as a product of factors of at most 32 each: every round keeps fewer than 37 % of the coins.
    pending, left = np.flatnonzero(whole), whole[whole > 0]
    while pending.size:
        factor = np.minimum(left, TOP)
        alive = below_exp(factor, source)
        result[pending[~alive]] = False
        left = left - factor
        goes_on = alive & (left > 0)
        pending, left = pending[goes_on], left[goes_on]
    # Algorithm 1: toss coins of probability x/1, x/2, x/3, ... up to the first tails; True if its number is odd.
    # x/k is tossed as 1/k and x, so that no product can overflow.
    pending = np.flatnonzero(result & (rest > 0))
    k = 1
    while pending.size:
        if k > 1:
            pending = pending[uniform_below(k, pending.size, source) == 0]
        pending = pending[uniform_below(denominator, pending.size, source) < rest[pending]]
        k += 1
        result[pending] = k % 2 == 1
    return result


def coin_exp(numerator: int, denominator: int, source: NoiseSource) -> bool:
    """Draw one coin of probability exp(-numerator / denominator), of any size, in Python integers."""
    whole, rest = divmod(numerator, denominator)
    while whole:
        factor = min(whole, TOP)
        if not below_exp(np.array([factor]), source)[0]:
            return False
        whole -= factor
    k = 1
    while _uniform_below_any(denominator * k, source) < rest:
        k += 1
    return k % 2 == 1


def _uniform_below_any(bound: int, source: NoiseSource) -> int:
    """Draw one integer below a bound of any size, by rejection of bit strings."""
    bits = (bound - 1).bit_length()
    while True:
        words = source.words(-(-bits // (8 * WORD_BYTES)))
        value = int.from_bytes(words.astype("<u8", copy=False).tobytes(), "little") & ((1 << bits) - 1)
        if value < bound:
            return value
