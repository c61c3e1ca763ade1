"""Discrete Laplace noise: what is added to integers for pure differential privacy.

Guarantee: adding `discrete_laplace(d, scale)` to an integer vector whose L1 sensitivity is at most `scale * epsilon`
    is epsilon-DP. Exact: integers only, no probability is rounded.
Source: [canonne2020], algorithm 2; the law
    is the two-sided geometric one of [ghosh2009].
Units: `scale` is in those of the integers that are protected.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from engines.core.noise.arguments import check_count, check_fraction
from engines.core.noise.bernoulli import bernoulli_exp
from engines.core.noise.digits import geometric
from engines.core.noise.source import NoiseSource
from engines.core.noise.uniform import random_bits, uniform_below
from engines.core.noise.witness import LaplaceLaw, drawn
from schemas.arrays import BoolArray, IntArray
from schemas.errors import EngineInputError

MAX_TERM = 2**42
"""Bound on numerator and denominator of a scale: times `digits.MAX_GEOMETRIC` it stays inside int64."""

LEAST_VARIANCE = 0.005
"""What estimators take a measurement's variance for, at least. At large epsilons nearly every noisy count is the count,
and what is divided by its variance would grow without end, up to a variance of 0 in floating point.
"""

# Arrays of this many words stay in the processor's cache.
_CHUNK = 2**16


def discrete_laplace(count: int, scale: Fraction, source: NoiseSource) -> IntArray:
    """Draw `(count,)` int64 values with P(k) proportional to exp(-|k| / scale).

    Args:
        scale: positive, numerator and denominator at most 2**42; `scale_for` returns such a one.
    Raises: EngineInputError if `count` is negative, the scale is out of range, or the source is not uniform.

    >>> from engines.core.noise import seeded
    >>> discrete_laplace(6, Fraction(5, 2), seeded(1))
    array([ 3,  1, -1,  2, -4,  1])
    """
    check_count(count)
    check_scale(scale)
    return drawn(source, LaplaceLaw(scale), partial(laplace_values, count, scale))


def laplace_values(count: int, scale: Fraction, source: NoiseSource) -> IntArray:
    """Draw as `discrete_laplace` does, as a part of other noise: what it is a part of is reported instead."""
    kept: list[IntArray] = []
    missing = count
    while missing > 0:
        # Between a third and all of the attempts succeed. Their number has no influence on the law: attempts are
        # independent, and the first ones that succeed are kept.
        values = _attempt(min(_CHUNK, 2 * missing + 8), scale, source)[:missing]
        missing -= values.size
        kept.append(values)
    return np.concatenate(kept) if kept else np.zeros(0, dtype=np.int64)


def _attempt(count: int, scale: Fraction, source: NoiseSource) -> IntArray:
    """Make `count` independent attempts of algorithm 2 and return those that succeed, in order."""
    # With t/s = scale, rest + t * whole has P(x) proportional to exp(-x/t); cut into pieces of s that is exp(-s/t).
    rest = uniform_below(scale.numerator, count, source)
    rest = rest[bernoulli_exp(rest, scale.numerator, source)]
    magnitude = rest + scale.numerator * geometric(rest.size, source)
    if scale.denominator > 1:
        magnitude //= scale.denominator
    negative = random_bits(magnitude.size, source)
    signed: IntArray = np.where(negative, -magnitude, magnitude)
    # Zero has two signs and would come twice as often.
    kept: BoolArray = ~negative | (magnitude != 0)
    return signed[kept]


def check_scale(scale: Fraction) -> None:
    """Refuse a scale that is not a positive fraction with terms of at most 2**42.

    Raises: EngineInputError.
    """
    check_fraction("scale", scale)
    if max(scale.numerator, scale.denominator) > MAX_TERM:
        raise EngineInputError("scale must have numerator and denominator at most 2**42: use scale_for()")


def scale_for(sensitivity: int, epsilon: Fraction) -> Fraction:
    """Return the scale that makes noise on integers of this L1 sensitivity epsilon-DP.

    It is `sensitivity / epsilon` exactly where neither term of that exceeds 2**41. Otherwise it is rounded up, by a
    factor of at most 1 + 2**-39 where it is above 1, and by at most 2**-41 where it is below.

    Raises: EngineInputError if an argument is not positive, epsilon is not a Fraction, or the scale exceeds 2**41.

    >>> scale_for(3, Fraction(1, 10))
    Fraction(30, 1)
    """
    if sensitivity < 1:
        raise EngineInputError("sensitivity must be at least 1")
    check_fraction("epsilon", epsilon)
    exact = sensitivity / epsilon
    largest = MAX_TERM // 2
    if max(exact.numerator, exact.denominator) <= largest:
        return exact
    if exact > largest:
        raise EngineInputError("epsilon is too small: the scale exceeds 2**41")
    # The finest power of two whose multiple still fits. Noise may become larger by this, never smaller.
    step = 1 << ((largest // math.ceil(exact)).bit_length() - 1)
    return Fraction(math.ceil(exact * step), step)


@dataclass(frozen=True, slots=True)
class DiscreteLaplace:
    """The law of `discrete_laplace`, for error bars and tests; its floats never touch an output.

    >>> round(DiscreteLaplace(Fraction(1)).variance, 4)
    1.8413
    """

    scale: Fraction

    def __post_init__(self) -> None:
        check_scale(self.scale)

    @property
    def variance(self) -> float:
        """2q / (1 - q)**2 with q = exp(-1/scale); a little below the 2 * scale**2 of the continuous law."""
        rate = float(1 / self.scale)
        return 2 * math.exp(-rate) / math.expm1(-rate) ** 2

    def pmf(self, k: int) -> float:
        """Return P(X = k)."""
        rate = float(1 / self.scale)
        return math.tanh(rate / 2) * math.exp(-rate * abs(k))

    def tail(self, k: int) -> float:
        """Return P(X >= k).

        >>> law = DiscreteLaplace(Fraction(7, 3))
        >>> math.isclose(law.tail(-2) - law.tail(-1), law.pmf(-2))
        True
        """
        if k <= 0:
            return 1 - self.tail(1 - k)
        rate = float(1 / self.scale)
        return math.exp(-rate * k) / (1 + math.exp(-rate))
