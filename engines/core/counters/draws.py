"""How counters draw their noise, and how their public parameters are checked.

Units: Laplace noise is in events, Gaussian noise in the units of a counter's lattice, 1/resolution events.
"""

from fractions import Fraction
from math import isqrt

import numpy as np

from engines.core.counters.contract import Measure
from engines.core.noise import NoiseSource, discrete_gaussian, discrete_laplace
from schemas.arrays import IntArray
from schemas.errors import EngineInputError

_CERTAIN = 64
"""No uniform source gives Gaussian noise of this many sigma: its probability is below exp(-2000)."""

_DIGITS = 24


def laplace_nodes(rows: int, nodes: int, scale: Fraction, source: NoiseSource) -> IntArray:
    """Draw `(rows, nodes)` discrete Laplace noise, `nodes` for each of `rows` coordinates."""
    return discrete_laplace(rows * nodes, scale, source).reshape(rows, nodes)


def gaussian_node(rows: int, sigma_squared: Fraction, source: NoiseSource) -> IntArray:
    """Draw `(rows,)` discrete Gaussian noise, one for each coordinate, of at most 64 sigma.

    Raises: EngineInputError if one is larger: then the source is not uniform.
    """
    drawn = discrete_gaussian(rows, sigma_squared, source)
    if rows and int(np.abs(drawn).max()) > largest_gaussian(sigma_squared):
        raise EngineInputError("source is not uniform: its noise is too large")
    return drawn


def largest_gaussian(sigma_squared: Fraction) -> int:
    """64 sigma, rounded up: what noise is checked against, so that no later product can leave int64."""
    return _CERTAIN * (isqrt(int(sigma_squared)) + 1)


def rounded_up(value: Fraction) -> Fraction:
    """Return a fraction of short terms at most 2**-23 above: draws with it are fast, noise is never smaller."""
    shift = _DIGITS - (value.numerator.bit_length() - value.denominator.bit_length())
    scaled = value * (1 << shift) if shift >= 0 else value / (1 << -shift)
    whole = -(-scaled.numerator // scaled.denominator)
    return Fraction(whole, 1 << shift) if shift >= 0 else Fraction(whole << -shift)


def check_cost(name: Measure, cost: object) -> None:
    """Refuse a cost that is not a positive Fraction.

    Raises: EngineInputError.
    """
    if not isinstance(cost, Fraction) or cost <= 0:
        raise EngineInputError(f"{name} must be a positive Fraction")


def check_whole(name: str, value: object, least: int = 1) -> None:
    """Refuse a public parameter that is not a whole number, or below `least`, or from 2**48 on.

    Raises: EngineInputError.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**48:
        raise EngineInputError(f"{name} must be a whole number from {least} to 2**48 - 1")
