"""One Kalman filter for one AR(1) process, whose parameters are learnt from the measurements as they come.

Guarantee: post-processing of released measurements.
Source: the paper's releaser (004, algorithm 2) is post-processing of y_t = z_t + noise / w_t; this is the best linear
    one if its model holds. Parameters: `papers.moments`, as in the paper.
Units: lattice steps.
"""

from __future__ import annotations

import numpy as np

from engines.contract import State
from engines.series.papers.moments import Moments


class Kalman:
    """An estimator, see `modes`."""

    def __init__(self) -> None:
        self._moments = Moments()
        self._estimate, self._variance = 0.0, np.inf

    def _advance(self) -> tuple[float, float]:
        known = self._moments.parameters()
        if known is None:
            return self._estimate, np.inf
        rho = known.correlation
        still = known.variance * (1 - rho**2)
        variance = min(self._variance, known.variance) * rho**2 + still
        return known.mean + rho * (self._estimate - known.mean), variance

    def update(self, value: float, variance: float) -> tuple[float, float]:
        """Take in a measurement; return the estimate and its variance."""
        self._moments.add(value, variance)
        before, spread = self._advance()
        if np.isinf(spread):
            self._estimate, self._variance = value, variance
        else:
            gain = spread / (spread + variance)
            self._estimate = before + gain * (value - before)
            self._variance = gain * variance
        return self._estimate, self._variance

    def skip(self) -> None:
        """The present step has no measurement."""
        self._estimate, self._variance = self._advance()

    def arrays(self) -> State:
        return {"estimate": np.array([self._estimate, self._variance]), **self._moments.arrays()}

    def restore(self, state: State) -> None:
        """Take over a state. Raises: KeyError, ValueError."""
        self._estimate, self._variance = state["estimate"].tolist()
        self._moments.restore(state)
