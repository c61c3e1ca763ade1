"""Discrete Gaussian noise as the post-processing of continuous noise that is slightly smaller.

Gaussian DP adds up in squares under any adaptivity, but it is a theorem about continuous noise. On a fine lattice
nothing is lost: discrete noise of parameter sigma**2 is, up to a factor of 1 +- 1e-75 in every probability, what one
gets from continuous noise of variance sigma**2 - 9 by randomised rounding. Whatever holds for the latter, holds.
Guarantee: see `dominating`; proof in docs/engines/sequence.md, "Lemma D" and "Lemma B".
Source: ours, from the smoothing of Gaussian sums ([micciancio2007]; [peikert2010]); adaptive Gaussian DP with a
    fixed total: [smith2022]; [koskela2023].
Units: `sigma_squared` in squares of the lattice's step.
"""

from fractions import Fraction
from math import sqrt

from engines.core.accounting.arguments import check_positive
from engines.core.noise import sigma_squared_for
from schemas.errors import EngineInputError

ROUNDING = 9
"""Variance of the randomised rounding, in squared lattice steps: 2 exp(-2 pi**2 * 9) is below 2e-77."""

LEAST_SIGMA_SQUARED = 1024
"""Below it the loss of `ROUNDING` would be felt: take a finer lattice."""

_MARGIN = Fraction(1, 2**20)
"""Beyond it floats of sigma might round a fraction's square down."""


def dominating(sigma_squared: Fraction) -> Fraction:
    """Return the variance of continuous noise whose release costs at least what discrete noise of `sigma_squared` does.

    For up to 2**64 draws together, each chosen after the others' results, everything that is (epsilon, delta)-DP with
    continuous noise of the returned variances is (epsilon + 1e-55, delta * (1 + 1e-55))-DP with discrete noise; the
    margin of `gaussian.mu_for`, 1e-10 of delta, is far above both for any delta of at least `gaussian.LEAST_DELTA`.
    Raises: EngineInputError if the lattice is too coarse.

    >>> dominating(Fraction(4096))
    Fraction(4087, 1)
    """
    check_positive(sigma_squared=sigma_squared)
    if sigma_squared < LEAST_SIGMA_SQUARED:
        raise EngineInputError(f"sigma_squared must be at least {LEAST_SIGMA_SQUARED}: take a finer lattice")
    return sigma_squared - ROUNDING


def sigma_squared_of(l2_squared: Fraction, mu_squared: Fraction) -> Fraction:
    """Return discrete noise for which integers moved by sqrt(`l2_squared`) in L2 cost `mu_squared` at most.

    Raises: EngineInputError if an argument is not positive, the lattice too coarse, or the noise out of range.

    >>> sigma = sigma_squared_of(Fraction(2**22), Fraction(1))
    >>> 2**22 + 9 <= sigma <= (2**22 + 9) * 1.00001, Fraction(2**22) / dominating(sigma) <= 1
    (True, True)
    """
    check_positive(l2_squared=l2_squared, mu_squared=mu_squared)
    exact = l2_squared / mu_squared + ROUNDING
    sigma_squared = sigma_squared_for(sqrt(exact * (1 + _MARGIN)))
    if l2_squared / dominating(sigma_squared) > mu_squared:
        raise EngineInputError("noise was rounded down")  # the margin makes this impossible
    return sigma_squared
