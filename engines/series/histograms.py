"""What noisy counts of bins say of the values in them: how many there are, their mean and their percentiles.

Noise of empty bins would count as values, most of all in a long tail. So shares of bins are those of the non-negative
counts nearest to the noisy ones that add up to the same total (a projection onto a simplex); within a bin values are
taken to be spread evenly. Values outside of the edges are taken for the nearest edge.
Guarantee: post-processing of measurements and public constants.
Source: [wang2020] (Norm-Sub); intervals of percentiles after [woodruff1952]: ends are percentiles, too.
Units: values and edges in those of the raw field, counts in events.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from schemas.arrays import FloatArray, IntArray
from schemas.config.series import OF_HISTOGRAM, PERCENTILES


@dataclass(frozen=True, slots=True)
class HistogramNumber:
    """A number with its standard error and the ends of its interval, all of the noise alone; None for a mean or a
    percentile where there may be no values at all: where the interval of their number holds 0.
    """

    value: float | None = None
    error: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class NoisyHistogram:
    """Noisy counts of the bins below, between and above edges, of one step or summed over several.

    Args:
        edges: `(n,)`. counts: `(n + 1,)`.
        variance: of each count's noise.

    >>> even = NoisyHistogram((0.0, 10.0, 20.0), np.array([0, 50, 50, 0]), 1.0)
    >>> even.numbers(1.645)["p90"]
    HistogramNumber(value=18.0, error=0.22..., low=17.63..., high=18.36...)
    """

    edges: tuple[float, ...]
    counts: FloatArray | IntArray
    variance: float

    def numbers(self, deviations: float) -> dict[str, HistogramNumber]:
        """Return the numbers of `schemas.config.series.OF_HISTOGRAM`. Args: deviations: half of an interval's width."""
        return {name: self.number(name, deviations) for name in OF_HISTOGRAM}

    def number(self, name: str, deviations: float) -> HistogramNumber:
        """Return one of them. See `HistogramNumber` for what is None."""
        count = _around(self.total, sqrt(self.variance * len(self.counts)), deviations, 0.0, np.inf)
        if name == "count":
            return count
        if not count.low:
            return HistogramNumber()
        return self._mean(deviations) if name == "mean" else self._percentile(PERCENTILES[name], deviations)

    @cached_property
    def shares(self) -> FloatArray:
        """`(n + 1,)` share of each bin. The total must be positive."""
        # The level to take away from each count, so that those left above it add up to the total.
        ordered = np.sort(self.counts)[::-1]
        levels = (np.cumsum(ordered) - self.total) / np.arange(1, len(ordered) + 1)
        level = levels[np.flatnonzero(ordered > levels)[-1]]
        shares: FloatArray = np.maximum(self.counts - level, 0.0) / self.total
        return shares

    @property
    def total(self) -> float:
        """The noisy number of values."""
        return float(np.sum(self.counts))

    def _mean(self, deviations: float) -> HistogramNumber:
        middles = np.array([self.edges[0], *np.add(self.edges[:-1], self.edges[1:]) / 2, self.edges[-1]])
        mean = float(middles @ self.shares)
        # Of a ratio of two noisy sums.
        error = sqrt(self.variance * float(((middles - mean) ** 2).sum())) / self.total
        return _around(mean, error, deviations, self.edges[0], self.edges[-1])

    def _percentile(self, part: float, deviations: float) -> HistogramNumber:
        below = np.cumsum(self.shares)[:-1]
        under = int(np.searchsorted(below, part)) + 0.5
        # What is below less `part` of all: its noise decides where the percentile is.
        spread = (1 - part) ** 2 * under + part**2 * (len(self.counts) - under)
        wide = deviations * sqrt(self.variance * spread) / self.total
        value, low, high = np.interp([part, max(part - wide, 0.0), min(part + wide, 1.0)], below, self.edges).tolist()
        return HistogramNumber(value, (high - low) / (2 * deviations), low, high)


def _around(value: float, error: float, deviations: float, least: float, most: float) -> HistogramNumber:
    low, middle, high = (min(max(value + way * deviations * error, least), most) for way in (-1, 0, 1))
    return HistogramNumber(middle, error, low, high)
