"""FAST without sampling: a random walk's Kalman filter on Laplace measurements.

Guarantee: post-processing of released measurements.
Source: [fan2014], as
    used in [zhang2022], section 8. The random walk's variance must be known beforehand: `process_variance`.
Units: lattice steps.
"""

from __future__ import annotations

import numpy as np

from engines.contract import State


class RandomWalk:
    """An estimator, see `modes`. Args: variance of the walk's steps."""

    def __init__(self, process_variance: float) -> None:
        self._walk = process_variance
        self._estimate, self._variance = 0.0, np.inf

    def update(self, value: float, variance: float) -> tuple[float, float]:
        """Take in a measurement; the Gaussian that stands for the Laplace noise has its variance."""
        if np.isinf(self._variance):
            self._estimate, self._variance = value, variance
            return value, variance
        spread = self._variance + self._walk
        gain = spread / (spread + variance)
        self._estimate += gain * (value - self._estimate)
        self._variance = gain * variance
        return self._estimate, self._variance

    def skip(self) -> None:
        """The present step has no measurement."""
        self._variance += self._walk

    def arrays(self) -> State:
        return {"estimate": np.array([self._estimate, self._variance])}

    def restore(self, state: State) -> None:
        """Take over a state. Raises: KeyError, ValueError."""
        self._estimate, self._variance = state["estimate"].tolist()
