"""Discrete Gaussian noise: what is added to integers for approximate differential privacy.

Guarantee: adding `discrete_gaussian(d, sigma_squared)` to an integer vector whose L2 sensitivity is at most s is
    s**2 / (2 * sigma_squared)-zCDP. Its exact (epsilon, delta) is NOT the one of continuous noise (at sigma 1 its delta
    is 2.14 times as large): `engines.core.accounting` works it out. Exact: integers only, no probability is rounded.
Source: [canonne2020], algorithm 3, with a
    proposal that keeps the integers small, see `_attempt`.
Units: `sigma_squared` is in squares of the integers that are protected.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from engines.core.noise.arguments import check_count, check_fraction, shortened
from engines.core.noise.bernoulli import bernoulli_exp_multiples, coin_exp
from engines.core.noise.laplace import MAX_TERM, laplace_values
from engines.core.noise.source import NoiseSource
from engines.core.noise.uniform import MAX_BOUND
from engines.core.noise.witness import GaussianLaw, drawn
from schemas.arrays import BoolArray, IntArray, WordArray
from schemas.errors import EngineInputError

MAX_SIGMA_SQUARED = Fraction((MAX_TERM - 1) ** 2)
"""Above it the Laplace draws that are thinned out could leave int64."""

_CHUNK = 2**16
_HALF_WORD = 2**31
_MAX_CENTRE_TERM = 2**40
SHORT_BITS = 24
"""Of a sigma squared that is drawn with: one part in 2**23 is lost at most."""
_SUMMED = 2**12
_CERTAIN = 10_000


def discrete_gaussian(count: int, sigma_squared: Fraction, source: NoiseSource) -> IntArray:
    """Draw `(count,)` int64 values with P(k) proportional to exp(-k**2 / (2 * sigma_squared)).

    Args:
        sigma_squared: positive, at most (2**42 - 1)**2. Fractions of short terms are fast, as `sigma_squared_for`
            returns them; others are as exact, and some fifteen times slower.
    Raises: EngineInputError if `count` is negative, `sigma_squared` is out of range, or the source is not uniform.

    >>> from engines.core.noise import seeded
    >>> discrete_gaussian(6, Fraction(25), seeded(1))
    array([ 2, -2, -5,  5,  9, -3])
    """
    check_count(count)
    check_sigma_squared(sigma_squared)
    return drawn(source, GaussianLaw(sigma_squared), partial(_values, count, sigma_squared))


def _values(count: int, sigma_squared: Fraction, source: NoiseSource) -> IntArray:
    scale = _proposal_scale(sigma_squared)
    kept: list[IntArray] = []
    missing = count
    while missing > 0:
        # As for Laplace noise: independent attempts, of which the first that succeed are kept.
        values = _attempt(min(_CHUNK, missing + missing // 2 + 8), sigma_squared, scale, source)[:missing]
        missing -= values.size
        kept.append(values)
    return np.concatenate(kept) if kept else np.zeros(0, dtype=np.int64)


def _attempt(count: int, sigma_squared: Fraction, scale: Fraction, source: NoiseSource) -> IntArray:
    """Make `count` independent attempts of algorithm 3 and return those that succeed, in order."""
    # exp(-|y| / scale) * exp(-(|y| - centre)**2 / (2 sigma**2)) is the law asked for, times a constant, wherever
    # scale * centre is sigma**2. The paper has a whole scale; a whole centre keeps the gaps, and all that follows
    # from them, in machine integers.
    centre = sigma_squared / scale
    values = laplace_values(count, scale, source)
    magnitude = np.abs(values)
    unit = 1 / (2 * sigma_squared * centre.denominator**2)
    if max(centre.numerator, centre.denominator) <= _MAX_CENTRE_TERM:
        # Magnitudes are at most 2**20 scales, and a scale is at most 4 centres or 1: no product leaves int64.
        gap = np.abs(magnitude * centre.denominator - centre.numerator)
        return values[_coins(gap, unit, source)]
    coins = [_coin(m * centre.denominator - centre.numerator, unit, source) for m in magnitude.tolist()]
    return values[np.array(coins, dtype=np.bool_)]


def _coins(gap: IntArray, unit: Fraction, source: NoiseSource) -> BoolArray:
    """Draw coins of probability exp(-gap**2 * unit)."""
    if not gap.size or int(gap.max()) <= _HALF_WORD:
        return bernoulli_exp_multiples(gap * gap, unit, source)
    # (2**31 high + low)**2 in three parts that fit into a word each: all three coins must show heads.
    high, low = np.divmod(gap.astype(np.uint64), np.uint64(_HALF_WORD))
    parts: list[tuple[WordArray, int]] = [(high * high, _HALF_WORD**2), (high * low, 2 * _HALF_WORD), (low * low, 1)]
    heads = np.ones(gap.size, dtype=np.bool_)
    for multiples, factor in parts:
        heads &= bernoulli_exp_multiples(multiples, unit * factor, source)
    return heads


def _coin(gap: int, unit: Fraction, source: NoiseSource) -> bool:
    """Draw a coin of probability exp(-gap**2 * unit)."""
    # In lowest terms, since how many words a coin takes follows from them.
    shared = math.gcd(square := gap * gap, unit.denominator)
    numerator, denominator = square // shared * unit.numerator, unit.denominator // shared
    if denominator < MAX_BOUND:
        return bool(bernoulli_exp_multiples(np.array([1]), Fraction(numerator, denominator), source)[0])
    return coin_exp(numerator, denominator, source)


def _proposal_scale(sigma_squared: Fraction) -> Fraction:
    """Return a scale near sigma for the Laplace draws; any positive one is right, near sigma most attempts succeed."""
    below = math.isqrt(math.floor(sigma_squared))
    centre = Fraction(below) if below else Fraction(1, math.isqrt(math.floor(1 / sigma_squared)))
    scale = sigma_squared / centre
    # Else the scale of the paper, which is whole.
    return scale if max(scale.numerator, scale.denominator) <= MAX_TERM else Fraction(below + 1)


def check_sigma_squared(sigma_squared: Fraction) -> None:
    """Refuse what is not a positive fraction of at most (2**42 - 1)**2.

    Raises: EngineInputError.
    """
    check_fraction("sigma_squared", sigma_squared)
    if sigma_squared > MAX_SIGMA_SQUARED:
        raise EngineInputError("sigma_squared must be at most (2**42 - 1)**2")


def sigma_squared_for(sigma: float) -> Fraction:
    """Return a fraction of short terms, at least `sigma**2` and at most one part in 2**23 above it.

    Noise becomes larger by this, never smaller; draws with it are fast.
    Raises: EngineInputError if sigma is not a positive finite number, or out of range.

    >>> sigma_squared_for(5.0), float(sigma_squared_for(37.3))
    (Fraction(25, 1), 1391.2900390625)
    """
    if not (math.isfinite(sigma) and sigma > 0):
        raise EngineInputError("sigma must be a positive finite number")
    rounded = shortened(Fraction(sigma) ** 2, SHORT_BITS, up=True)
    check_sigma_squared(rounded)
    return rounded


@dataclass(frozen=True, slots=True)
class DiscreteGaussian:
    """The law of `discrete_gaussian`, for error bars and tests; its floats never touch an output.

    >>> round(DiscreteGaussian(Fraction(1, 4)).variance, 4), DiscreteGaussian(Fraction(9)).variance
    (0.215, 9.0)
    """

    sigma_squared: Fraction

    def __post_init__(self) -> None:
        check_sigma_squared(self.sigma_squared)

    @property
    def variance(self) -> float:
        """At most `sigma_squared`, and less than one part in 10**6 below it from sigma_squared = 1 on."""
        if self.sigma_squared < 1:
            return _series(2, self._rate) / _series(0, self._rate)
        # Poisson's summation: the same sums by their Fourier series, whose first term nearly is all.
        s2 = float(self.sigma_squared)
        rate = 2 * math.pi**2 * s2
        return s2 * (1 - 2 * rate * _series(2, rate) / _series(0, rate))

    def pmf(self, k: int) -> float:
        """Return P(X = k).

        >>> round(DiscreteGaussian(Fraction(1)).pmf(0), 6)
        0.398942
        """
        return self._weight(k) / self._total

    def tail(self, k: int) -> float:
        """Return P(X >= k).

        >>> law = DiscreteGaussian(Fraction(7, 3))
        >>> math.isclose(law.tail(-2) - law.tail(-1), law.pmf(-2))
        True
        """
        if k <= 0:
            return 1 - self.tail(1 - k)
        sigma = math.sqrt(self.sigma_squared)
        if sigma <= _SUMMED:
            # 9 sigma further, a term is less than exp(-40) of the first.
            j = np.arange(math.ceil(9 * sigma) + 2)
            return self.pmf(k) * math.fsum(np.exp(-self._rate * j * (2.0 * k + j)))
        # Euler and Maclaurin: the integral from k - 1/2 and its first correction.
        x = (k - 0.5) / sigma
        slope = -x * math.exp(-x * x / 2) / (math.sqrt(2 * math.pi) * sigma**2)
        return math.erfc(x / math.sqrt(2)) / 2 + slope / 24

    def _weight(self, k: int) -> float:
        return math.exp(-float(min(k * k / (2 * self.sigma_squared), Fraction(_CERTAIN))))

    @property
    def _rate(self) -> float:
        """1 / (2 sigma**2); where that is above 10**4 the law is a certain 0 in floats."""
        return float(min(1 / (2 * self.sigma_squared), Fraction(_CERTAIN)))

    @property
    def _total(self) -> float:
        if self.sigma_squared < 1:
            return _series(0, self._rate)
        s2 = float(self.sigma_squared)
        return math.sqrt(2 * math.pi * s2) * _series(0, 2 * math.pi**2 * s2)


def _series(power: int, rate: float) -> float:
    """Sum of k**power * exp(-rate * k**2) over all integers k, for a rate of at least 1/2."""
    return float(power == 0) + 2 * math.fsum(k**power * math.exp(-rate * k * k) for k in range(1, 40))
