"""Mechanisms that add noise: the doors through which private integers leave an engine.

Each takes private values and gives what may be published; `exponential_mechanism` and `laplace_exceeds`, in modules of
their own, and the counters are the others. They alone open `Private` values.
Guarantee: that of their noise, see `laplace`, `gaussian` and `binomial`; exact.
Units: integers.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import overload

import numpy as np

from engines.noise.arguments import int64_vector
from engines.noise.binomial import centred_binomial
from engines.noise.gaussian import discrete_gaussian
from engines.noise.laplace import discrete_laplace
from engines.noise.private import revealed
from engines.noise.source import NoiseSource
from engines.noise.witness import BinomialLaw, GaussianLaw, LaplaceLaw, Law, released
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

    >>> from engines.noise import seeded
    >>> laplace_mechanism(np.array([100, 0]), Fraction(5, 2), seeded(1))
    array([103,   1])
    """
    return _noisy(values, LaplaceLaw(scale), lambda count: discrete_laplace(count, scale, source), source)


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
    return _noisy(
        values, GaussianLaw(sigma_squared), lambda count: discrete_gaussian(count, sigma_squared, source), source
    )


def binomial_mechanism(value: int, half: int, source: NoiseSource) -> int:
    """Add centred binomial noise of `2 half` fair coins to a private integer.

    Guarantee: what `engines.series.papers.binomial` works out.
    Raises: EngineInputError if `half` is out of range.
    """
    value = revealed(value)
    return released(source, BinomialLaw(half), value, lambda: value + centred_binomial(half, source))


def _noisy(values: int | IntArray, law: Law, draw: Callable[[int], IntArray], source: NoiseSource) -> int | IntArray:
    values = revealed(values)
    if isinstance(values, int):
        number = values
        return released(source, law, number, lambda: number + int(draw(1)[0]))
    array = _whole(values)
    return released(source, law, array, lambda: array + draw(array.size))


def _whole(values: IntArray) -> IntArray:
    """int64, or Python's integers: sums with noise are such, too, so that none is too large."""
    if np.asarray(values).dtype != object:
        return int64_vector("values", values)
    if values.ndim != 1 or not all(isinstance(value, int) for value in values):
        raise EngineInputError("values must be integers, in one dimension")
    return values


def check_zero(values: IntArray, what: str) -> None:
    """Stop where private values are not all zero that are so by construction, whatever the data. Says no value.

    Raises: AssertionError naming `what`.
    """
    if np.any(revealed(values)):
        raise AssertionError(what)
