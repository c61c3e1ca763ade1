"""What noisy counts of bins say of the values in them: how many there are, their mean and their percentiles.

Noise of empty bins would count as values, most of all in a long tail. So shares of bins are those of the non-negative
counts nearest to the noisy ones that add up to the same total (a projection onto a simplex); within a bin values are
taken to be spread evenly. Values outside of the edges are taken for the nearest edge.
Guarantee: post-processing of measurements and public constants.
Intervals do without that: they hold what the noisy counts themselves leave possible, so that they hold in small groups.
The standard error of a percentile is that of the longer side of its interval.
Source: [wang2020] (Norm-Sub); intervals of percentiles after [woodruff1952], of means after [fieller1954].
Units: values and edges in those of the raw field, counts in events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from schemas.arrays import FloatArray, IntArray
from schemas.config.engines.series import OF_HISTOGRAM, PERCENTILES


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
    HistogramNumber(value=18.0, error=0.2..., low=17.6..., high=18.3...)
    """

    edges: tuple[float, ...]
    counts: FloatArray | IntArray
    variance: float

    def numbers(self, deviations: float) -> dict[str, HistogramNumber]:
        """Return the numbers of `schemas.config.engines.series.OF_HISTOGRAM`.

        Args: deviations: half of an interval's width.
        """
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
        """Share of each bin, `(n + 1,)`. The total must be positive."""
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
        error = sqrt(self.variance * float(((middles - mean) ** 2).sum())) / self.total
        # Means m for which the sum of (value - m) may be 0, its noise being what it is: between two roots, since the
        # total is surely positive.
        noise = deviations**2 * self.variance
        square = self.total**2 - noise * len(middles)
        linear = float(middles @ self.counts) * self.total - noise * float(middles.sum())
        constant = float(middles @ self.counts) ** 2 - noise * float((middles**2).sum())
        wide = sqrt(max(linear**2 - square * constant, 0.0))
        ends = [(linear - wide) / square, (linear + wide) / square]
        return self._number(mean, error, *ends)

    def _percentile(self, part: float, deviations: float) -> HistogramNumber:
        (value,) = np.interp([part], np.cumsum(self.shares)[:-1], self.edges).tolist()
        # At each edge, how many more values are below than `part` of all, and how far noise can move that: where it may
        # be 0, the percentile may be. Noise is not monotone, so the first and the last such place are the ends.
        under = np.arange(1, len(self.edges) + 1)
        more = np.cumsum(self.counts, dtype=np.float64)[:-1] - part * self.total
        noise: FloatArray = sqrt(self.variance) * np.sqrt(
            (1 - part) ** 2 * under + part**2 * (len(self.counts) - under)
        )
        low = _first_at_zero(more + deviations * noise, self.edges)
        high = -_first_at_zero(deviations * noise[::-1] - more[::-1], [-edge for edge in self.edges[::-1]])
        return self._number(value, max(high - value, value - low, 0.0) / deviations, low, high)

    def _number(self, value: float, error: float, low: float, high: float) -> HistogramNumber:
        least, most = self.edges[0], self.edges[-1]
        return HistogramNumber(value, error, max(min(low, value), least), min(max(high, value), most))


def _first_at_zero(values: FloatArray, places: Sequence[float]) -> float:
    """Return the first place where values, straight between places, are not below 0; the last if there is none."""
    reached = np.flatnonzero(values >= 0)
    if not len(reached):
        return places[-1]
    at = int(reached[0])
    if at == 0:
        return places[0]
    part = values[at - 1] / (values[at - 1] - values[at])
    return float(places[at - 1] + part * (places[at] - places[at - 1]))


def _around(value: float, error: float, deviations: float, least: float, most: float) -> HistogramNumber:
    low, middle, high = (min(max(value + way * deviations * error, least), most) for way in (-1, 0, 1))
    return HistogramNumber(middle, error, low, high)
