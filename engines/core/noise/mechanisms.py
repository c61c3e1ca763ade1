"""Mechanisms that add noise: what leaves an engine, leaves through them.

Each takes private values and gives what may be published: a law, and a function that draws from it, for the door
(`engines.core.noise.door`). The others are the counters, and in modules of their own, which modes of the papers load,
`binomial_mechanism`, `exponential_mechanism` and `laplace_exceeds`. Guarantee: that of their noise, see `laplace` and
`gaussian`; exact. Units: integers.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import overload

from engines.core.noise.arguments import whole
from engines.core.noise.door import released
from engines.core.noise.gaussian import discrete_gaussian
from engines.core.noise.laplace import discrete_laplace
from engines.core.noise.source import NoiseSource
from engines.core.noise.witness import GaussianLaw, LaplaceLaw
from schemas.arrays import IntArray


@overload
def laplace_mechanism(values: int, scale: Fraction, source: NoiseSource) -> int: ...
@overload
def laplace_mechanism(values: IntArray, scale: Fraction, source: NoiseSource) -> IntArray: ...
def laplace_mechanism(values: int | IntArray, scale: Fraction, source: NoiseSource) -> int | IntArray:
    """Add discrete Laplace noise to private integers.

    Args:
        values: `(n,)` int64, or Python's integers of any size, one of them or `(n,)` objects. scale: as of
            `discrete_laplace`.
    Returns: the same shape; safe to publish.
    Guarantee: epsilon-DP where one unit moves the values by `scale * epsilon` at most in L1 norm.
    Raises: EngineInputError if the scale is out of range or the values are not integers.

    >>> from engines.core.noise import seeded
    >>> import numpy as np
    >>> laplace_mechanism(np.array([100, 0]), Fraction(5, 2), seeded(1))
    array([103,   1])
    """
    draw = partial(discrete_laplace, scale=scale, source=source)
    noisy: int | IntArray = released(values, LaplaceLaw(scale), draw, source, checked=whole)
    return noisy


@overload
def gaussian_mechanism(values: int, sigma_squared: Fraction, source: NoiseSource) -> int: ...
@overload
def gaussian_mechanism(values: IntArray, sigma_squared: Fraction, source: NoiseSource) -> IntArray: ...
def gaussian_mechanism(values: int | IntArray, sigma_squared: Fraction, source: NoiseSource) -> int | IntArray:
    """Add discrete Gaussian noise to private integers.

    Args:
        values: `(n,)` int64, or one integer of any size. sigma_squared: as of `discrete_gaussian`.
    Returns: the same shape; safe to publish.
    Guarantee: rho-zCDP where one unit moves the values by at most `sqrt(2 rho sigma_squared)` in L2 norm.
    Raises: EngineInputError if sigma_squared is out of range or the values are not integers.
    """
    draw = partial(discrete_gaussian, sigma_squared=sigma_squared, source=source)
    noisy: int | IntArray = released(values, GaussianLaw(sigma_squared), draw, source, checked=whole)
    return noisy
