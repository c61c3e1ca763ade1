"""Areas and lengths on the Earth's ellipsoid (WGS 84), from longitudes and latitudes in degrees.

Sums and products of floats in a fixed order, no library sine: shares of cells decide where synthetic points lie, so
every machine must come to the same bits.
Source: the authalic latitude, as a power series of the squared eccentricity.
"""

from __future__ import annotations

from math import factorial

import numpy as np

from schemas.arrays import FloatArray

MAJOR_M = 6378137.0
FLATTENING = 1 / 298.257223563
_E2 = FLATTENING * (2 - FLATTENING)
_MINOR2 = (MAJOR_M * (1 - FLATTENING)) ** 2
_DEGREE = 0.017453292519943295
_SINE = tuple(float((-1) ** k) / float(factorial(2 * k + 1)) for k in range(11))
_BAND = tuple((k + 1) * _E2**k / (2 * k + 1) for k in range(7))
# Gauss-Legendre, four points, on [0, 1].
_POINTS = (0.06943184420297371, 0.33000947820757187, 0.6699905217924281, 0.9305681557970262)
_WEIGHTS = (0.17392742256872692, 0.32607257743127307, 0.32607257743127307, 0.17392742256872692)


def _series(coefficients: tuple[float, ...], squares: FloatArray) -> FloatArray:
    result = np.full_like(squares, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * squares + coefficient
    return result


def sine(degrees: FloatArray) -> FloatArray:
    """Return the sine of angles up to 90 degrees.

    >>> sine(np.array([0.0, 30.0, -90.0])).round(12).tolist()
    [0.0, 0.5, -1.0]
    """
    radians = degrees * _DEGREE
    return radians * _series(_SINE, radians * radians)


def band(latitude: FloatArray) -> FloatArray:
    """Return the square metres between the equator and a latitude, per degree of longitude; negative in the south.

    >>> whole = 360 * (band(np.array([90.0])) - band(np.array([-90.0])))
    >>> (whole / 1e12).round(3).tolist()
    [510.066]
    """
    s = sine(latitude)
    return _MINOR2 * _DEGREE * (s * _series(_BAND, s * s))


def mean_band(south: FloatArray, north: FloatArray) -> FloatArray:
    """Return the average of `band` along a straight edge between two latitudes."""
    result = np.zeros_like(south)
    for point, weight in zip(_POINTS, _WEIGHTS, strict=True):
        result = result + weight * band(south + point * (north - south))
    return result


def metres_per_degree(latitude: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the metres in a degree of longitude and in one of latitude, at a latitude."""
    s = sine(latitude)
    bend = 1 - _E2 * (s * s)
    across = MAJOR_M / np.sqrt(bend)
    # The cosine, of which no angle up to 90 degrees has a negative one.
    return across * np.sqrt(np.maximum(1 - s * s, 0.0)) * _DEGREE, across * (1 - _E2) / bend * _DEGREE
