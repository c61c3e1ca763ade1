"""Mechanisms that add noise: what leaves an engine, leaves through them.

Each takes private values and gives what may be published: a law, and a function that draws from it, for the door
(`engines.core.noise.door`). `exponential_mechanism` and `laplace_exceeds`, in modules of their own, and the counters
are the others. Guarantee: that of their noise, see `laplace`, `gaussian` and `binomial`; exact. Units: integers.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any, overload

import numpy as np

from engines.core.noise.arguments import int64_vector
from engines.core.noise.binomial import centred_binomials
from engines.core.noise.door import released
from engines.core.noise.gaussian import discrete_gaussian
from engines.core.noise.laplace import discrete_laplace
from engines.core.noise.source import NoiseSource
from engines.core.noise.witness import BinomialLaw, GaussianLaw, LaplaceLaw
from schemas.arrays import IntArray
from schemas.errors import EngineInputError


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
    >>> laplace_mechanism(np.array([100, 0]), Fraction(5, 2), seeded(1))
    array([103,   1])
    """
    draw = partial(discrete_laplace, scale=scale, source=source)
    noisy: int | IntArray = released(values, LaplaceLaw(scale), draw, source, checked=_whole)
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
    noisy: int | IntArray = released(values, GaussianLaw(sigma_squared), draw, source, checked=_whole)
    return noisy


def binomial_mechanism(value: int, half: int, source: NoiseSource) -> int:
    """Add centred binomial noise of `2 half` fair coins to a private integer.

    Guarantee: what `engines.series.papers.ar1` works out.
    Raises: EngineInputError if `half` is out of range.
    """
    draw = partial(centred_binomials, half=half, source=source)
    noisy: int = released(value, BinomialLaw(half), draw, source, checked=_whole)
    return noisy


def _whole(values: Any) -> Any:
    """An integer, int64, or Python's integers: sums with noise are such, too, so that none is too large."""
    if isinstance(values, int):
        return values
    if np.asarray(values).dtype != object:
        return int64_vector("values", values)
    if values.ndim != 1 or not all(isinstance(value, int) for value in values):
        raise EngineInputError("values must be integers, in one dimension")
    return values
