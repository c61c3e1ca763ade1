"""Histograms of trips, measured once with exact noise: each trip weighs at most one in each of them.

A trip that says something m times says it with weight 1/m each. Weights are integers, multiples of 2**-20 rounded
DOWN, so that a trip's weights add up to at most 2**20 units, in integers, whatever m is; the noise is an integer too.
Guarantee: `measure` costs one trip that is added or removed what its noise is made for, epsilon or mu^2, if no trip's
    weights exceed `UNIT` in total.
Proof: integers of L1 sensitivity at most `UNIT`, plus discrete Laplace noise of scale `UNIT / epsilon`, rounded up; or
    discrete Gaussian noise, since weights are not negative, and so their L2 norm is no larger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Any

import numpy as np

from engines.core.noise import NoiseSource
from engines.core.shares import CellNoise, LaplaceCells, Shares
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError
from schemas.guarantee import Mechanism

UNIT_BITS = 20
UNIT = 1 << UNIT_BITS
"""A whole trip, in the integers that are measured."""
MAX_ENTRIES = 1 << 32
"""Most entries of one histogram: as many whole trips add up exactly in a float64, which is what `bincount` adds in."""


def equal_shares(parts: IntArray) -> IntArray:
    """Return weights 2**20 / parts, rounded down, in the shape of `parts`; 0 where there are no parts.

    >>> equal_shares(np.array([1, 3, 0])).tolist()
    [1048576, 349525, 0]
    """
    return np.where(parts > 0, UNIT // np.maximum(parts, 1), 0)


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Exact sums of weights, and thus PRIVATE: `counts` is `(bins,)` int64 in units of 2**-20 trips."""

    name: str
    counts: IntArray

    @staticmethod
    def of(name: str, bins: IntArray, *, size: int, weights: IntArray | None = None) -> Histogram:
        """Add up `weights`, a whole trip each if absent, by bin.

        Raises: EngineInputError if there are too many entries to be added up exactly.
        """
        if len(bins) > MAX_ENTRIES:
            raise EngineInputError("too many points in one window: shorten the step or split the stream")
        if weights is None:
            return Histogram(name, np.bincount(bins, minlength=size).astype(np.int64) << UNIT_BITS)
        # Integers below 2**53 add up exactly in float64, in any order.
        return Histogram(name, np.bincount(bins, weights, minlength=size).astype(np.int64))

    def _sealed_parts(self, change: Callable[[Any], Any]) -> Histogram:
        return Histogram(self.name, change(self.counts))


@dataclass(frozen=True, slots=True, eq=False)
class Noisy:
    """A measured histogram. It is released: everything may look at it.

    Attributes:
        values: `(bins,)` float64, in trips.
        deviation: standard deviation of the noise of each value.
    """

    name: str
    values: FloatArray
    deviation: float

    @property
    def variance(self) -> float:
        return self.deviation * self.deviation


def counted(name: str, shares: Shares, share: Fraction) -> Mechanism:
    """Return what a guarantee says of a histogram; its scale is in trips."""
    law = shares.cells(share, UNIT)
    if isinstance(law, LaplaceCells):
        distribution, scale = "discrete Laplace", law.scale / UNIT
    else:
        distribution, scale = "discrete Gaussian", Fraction(sqrt(law.variance)).limit_denominator(UNIT)
    return Mechanism(
        name=name,
        distribution=distribution,
        l1_sensitivity=1,
        scale=scale,
        epsilon=shares.epsilon_of(share),
        account="windows",
        mu_squared=shares.mu_squared_of(share),
    )


def measure(histogram: Histogram, *, law: CellNoise, noise: NoiseSource) -> Noisy:
    """See the module. Draws from the child of `noise` that is named as the histogram."""
    noisy = law.added(histogram.counts, noise.child(histogram.name))
    return Noisy(histogram.name, noisy / UNIT, sqrt(law.variance))
