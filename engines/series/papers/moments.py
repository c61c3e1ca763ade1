"""Mean, variance and lag-1 correlation of a series, learnt one noisy value at a time.

Guarantee: post-processing of released values.
Source: [zhang2022], algorithm 1 (after [huitema1991]), with two corrections: the noise's own variance is taken
    out of the variance, and the correlation, which noise attenuates, is scaled back by it. The paper adds 1 / (t - 1)
    to the correlation where it is known to be positive: `positive`.
Units: those of the values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.core.contract import State

_FLOOR = 1e-3
"""The variance is at least this part of the noisy one."""
_MOST = 0.99
_FEWEST = 2


@dataclass(frozen=True, slots=True)
class Parameters:
    """Of an AR(1) process."""

    mean: float
    variance: float
    correlation: float


class Moments:
    """Running sums over the values seen; `count` of them."""

    def __init__(self) -> None:
        self.count = 0
        self._first = self._last = self._sum = self._squares = self._products = self._noise = 0.0

    def add(self, value: float, noise_variance: float) -> None:
        """Take in the next value and the variance of its noise."""
        if self.count == 0:
            self._first = value
        # Sums are of distances from the first value, so that a high level costs no digits.
        moved, before = value - self._first, self._last - self._first
        self._products += moved * before if self.count else 0.0
        self._sum += moved
        self._squares += moved**2
        self._noise += noise_variance
        self._last = value
        self.count += 1

    def parameters(self, *, positive: bool = False) -> Parameters | None:
        """What the values so far say; None before there are two."""
        n = self.count
        if n < _FEWEST:
            return None
        mean, last = self._sum / n, self._last - self._first
        spread = max(self._squares - n * mean**2, 0.0)
        noisy = spread / (n - 1)
        noise = self._noise / n
        variance = max(noisy - noise, _FLOOR * noisy)
        # Sum over pairs of (value - mean) (next - mean); the first distance is zero.
        pairs = self._products - mean * (2 * self._sum - last) + (n - 1) * mean**2
        correlation = pairs / spread if spread > 0 else 0.0
        if positive:
            correlation += 1 / (n - 1)
        corrected = correlation * (variance + noise) / variance if variance > 0 else 0.0
        return Parameters(mean + self._first, variance, min(max(corrected, 0.0), _MOST))

    def arrays(self) -> State:
        """State, as one array."""
        sums = [self.count, self._first, self._last, self._sum, self._squares, self._products, self._noise]
        return {"moments": np.array(sums, np.float64)}

    def restore(self, state: State) -> None:
        """Take over a state. Raises: KeyError, ValueError."""
        count, *sums = state["moments"].tolist()
        self.count = int(count)
        self._first, self._last, self._sum, self._squares, self._products, self._noise = sums
