"""A running sum seen through noise: a filter for its level and its rate, with a jump where the rate has changed.

Post-processing of released sums. Local linear trend by a Kalman filter ([kalman1960]); the rate wanders by a twentieth
of itself a step, arrivals scatter like a Poisson variable, and surprises beyond three standard deviations, or several
in a row, open the filter again. FloatArray see +, -, *, / and comparisons only: the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schemas.arrays import FloatArray

WANDER = 0.05
"""Standard deviation of a step's change of the rate, as a share of the rate."""
_SURPRISE, _LASTING, _MEMORY = 9.0, 3.0, 0.7


@dataclass(frozen=True, slots=True)
class Trend:
    """Level in events, rate in events a step, and their covariance. A value: `after` returns the next one."""

    level: float = 0.0
    rate: float = 0.0
    level_variance: float = 0.0
    covariance: float = 0.0
    rate_variance: float = 0.0
    surprise: float = 0.0
    steps: int = 0

    def after(self, observed: float, variance: float) -> Trend:
        """The trend after one more step, of which `observed` is the running sum with noise of this variance."""
        if self.steps == 0:
            start = max(observed, 0.0)
            return Trend(start, start, variance, variance, variance, 0.0, 1)
        level = self.level + self.rate
        wander = (WANDER * self.rate) * (WANDER * self.rate)
        a = self.level_variance + 2 * self.covariance + self.rate_variance + self.rate + wander
        b = self.covariance + self.rate_variance
        c = self.rate_variance + wander
        news = observed - level
        ratio = news * news / (a + variance)
        surprise = _MEMORY * self.surprise + (1 - _MEMORY) * ratio
        if ratio > _SURPRISE or surprise > _LASTING:
            jump = 0.5 * news * news
            a, b, c, surprise = a + jump, b + jump, c + jump, 1.0
        gain, rate_gain = a / (a + variance), b / (a + variance)
        return Trend(
            max(level + gain * news, 0.0),
            max(self.rate + rate_gain * news, 0.0),
            a - gain * a,
            b - gain * b,
            c - rate_gain * b,
            surprise,
            self.steps + 1,
        )

    def array(self) -> FloatArray:
        """`(7,)` for the state."""
        return np.array(
            [
                self.level,
                self.rate,
                self.level_variance,
                self.covariance,
                self.rate_variance,
                self.surprise,
                float(self.steps),
            ]
        )

    @staticmethod
    def of(array: FloatArray) -> Trend:
        """The trend whose `array` this was."""
        level, rate, a, b, c, surprise, steps = array.tolist()
        return Trend(level, rate, a, b, c, surprise, int(steps))
