"""How much wider than a filter bank believes its predictions err: learnt from their errors, for intervals alone.

Weights of filters take a series that hides under the noise for one that hardly moves, and no filter has the trends and
jumps of a real series. So the variance of the bank's prediction counts `factor` times. The factor is one of a few, each
weighed by how likely it makes the errors of the predictions so far. Where noise is far above the movement they tell
little of it, and the prior's doubt stays.
Guarantee: post-processing of released measurements. Neither released values nor budgets depend on it.
Source: ours; after variance inflation in adaptive filters ([mehra1970]), with a Bayesian choice of the factor.
Units: any, variances in their squares.
"""

from __future__ import annotations

import numpy as np

from engines.core.contract import State
from schemas.arrays import FloatArray

_FACTORS = 2.0 ** np.arange(5)
"""Alike beforehand: log-uniform, as is usual for a scale."""


class Inflation:
    """Of the variances of one bank's predictions."""

    def __init__(self) -> None:
        self._weight: FloatArray = np.zeros(len(_FACTORS))

    @property
    def factor(self) -> float:
        """Expected factor of the predictions' variance, at least 1."""
        weights = np.exp(self._weight)
        return float(weights @ _FACTORS / weights.sum())

    def learn(self, error: float, spread: float, noise: float, forgetting: float) -> None:
        """Take in a prediction's error against a measurement.

        Args:
            spread: the variance that the bank believes its prediction to have. noise: variance of the measurement.
            forgetting: exponent of the old weights.
        """
        total = _FACTORS * spread + noise
        fresh = -0.5 * (error**2 / total + np.log(total))
        self._weight = forgetting * self._weight + fresh
        self._weight -= self._weight.max()

    def added(self, spread: float, noise: float, most: float) -> float:
        """Variance to add to that of the estimate after the measurement.

        An estimate is the prediction moved by the part K = spread / (spread + noise) of its error, so its own error has
        the variance (1 - K)**2 factor spread + K**2 noise, which is what the bank believes where the factor is 1.

        Args:
            spread, noise: as in `learn`. most: variance that no prediction is inflated beyond.
        """
        more = min(self.factor * spread, max(most, spread)) - spread
        return (noise / (spread + noise)) ** 2 * more

    def arrays(self) -> State:
        return {"inflation": self._weight.copy()}

    def restore(self, state: State) -> None:
        """Take over a state. Raises: KeyError, ValueError if it is of other factors."""
        weight = np.asarray(state["inflation"], np.float64)
        if weight.shape != _FACTORS.shape:
            raise ValueError("inflation")
        self._weight = weight.copy()
