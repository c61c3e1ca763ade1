"""Kalman filters side by side: one for each hypothesis of how a series moves, on the same noisy measurements.

Each state is (level, AR(1) deviation, coefficients of the clock's regressors). The level and the coefficients stay,
the deviation has a scale and a correlation by hypothesis; under some its size follows the daily profile.
Guarantee: post-processing of measurements and public constants.
Source: [kalman1960]; predictive likelihood as weights: [west1997], chapter 12. The grid is ours.
Units: lattice steps of the field.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.core.contract import State
from schemas.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Hypotheses:
    """`(filters,)` each.

    Attributes:
        scale: of the deviation. correlation: of the deviation, from step to step.
        seasonal: scale of the first regressor's coefficient; 0 where there are none.
        exponent: the deviation is in proportion to profile**exponent.
        prior: logarithm of the prior weight.
    """

    scale: FloatArray
    correlation: FloatArray
    seasonal: FloatArray
    exponent: FloatArray
    prior: FloatArray

    def __len__(self) -> int:
        return len(self.scale)


class Filters:
    """Filters of the same size of state; `mean`, `covariance` and `weight` are what they know."""

    def __init__(self, hypotheses: Hypotheses, regressor_scales: FloatArray, level_scale: float) -> None:
        """Before any data. Args: `level_scale`: of the level's prior, which is around zero."""
        size = 2 + len(regressor_scales)
        self.hypotheses = hypotheses
        self.mean = np.zeros((len(hypotheses), size))
        self.covariance = np.zeros((len(hypotheses), size, size))
        self.covariance[:, 0, 0] = level_scale**2
        self.covariance[:, 1, 1] = hypotheses.scale**2
        at = np.arange(2, size)
        coefficients = (hypotheses.seasonal[:, None] * regressor_scales) ** 2
        self.covariance[:, at, at] = coefficients
        self.spread = hypotheses.scale**2 + coefficients.sum(1) / 2
        """`(filters,)` variance of the series around its level."""
        self.weight = hypotheses.prior.copy()
        self._row = np.zeros_like(self.mean)
        self._gain = self._row
        self.predicted, self.variance = np.zeros(len(hypotheses)), np.zeros(len(hypotheses))

    def advance(self) -> None:
        """One step on."""
        rho = self.hypotheses.correlation
        self.mean[:, 1] *= rho
        self.covariance[:, 1, :] *= rho[:, None]
        self.covariance[:, :, 1] *= rho[:, None]
        self.covariance[:, 1, 1] += self.hypotheses.scale**2 * (1 - rho**2)

    def look(self, regressors: FloatArray, profile: float) -> None:
        """Predict the present value: `predicted` and `variance`, `(filters,)`.

        Args:
            regressors: `(size - 2,)`. profile: size of the deviation now, relative to its root mean square.
        """
        row = self._row
        row[:, 0] = 1.0
        row[:, 1] = profile**self.hypotheses.exponent
        row[:, 2:] = regressors
        self._gain = np.matmul(self.covariance, row[:, :, None])[:, :, 0]
        self.variance = (self._gain * row).sum(1)
        self.predicted = (self.mean * row).sum(1)

    def update(self, value: float, variance: float, *, forgetting: float | None) -> tuple[FloatArray, FloatArray]:
        """Take in a measurement of what was predicted last.

        Args:
            forgetting: exponent of the old weights, the rest goes to the prior; None: weights stay.
        Returns: `(filters,)` estimates of the present value, and their variances.
        """
        error, total = value - self.predicted, self.variance + variance
        if forgetting is not None:
            fresh = -0.5 * (error**2 / total + np.log(total))
            self.weight = forgetting * self.weight + (1 - forgetting) * self.hypotheses.prior + fresh
        self.mean += (error / total)[:, None] * self._gain
        # A product with itself is symmetric to the last bit, so half of a covariance is all of it.
        root = self._gain / np.sqrt(total)[:, None]
        self.covariance -= root[:, :, None] * root[:, None, :]
        return self.predicted + error * self.variance / total, self.variance * variance / total

    def arrays(self, name: str) -> State:
        """State; of the symmetric covariances the upper half."""
        rows, columns = self._half
        return {
            f"{name}/mean": self.mean.copy(),
            f"{name}/covariance": self.covariance[:, rows, columns],
            f"{name}/weight": self.weight.copy(),
        }

    def restore(self, state: State, name: str) -> None:
        """Take over a state. Raises: KeyError, ValueError if it is of other filters."""
        mean, half, weight = (
            np.asarray(state[f"{name}/{key}"], np.float64) for key in ("mean", "covariance", "weight")
        )
        rows, columns = self._half
        if (mean.shape, weight.shape) != (self.mean.shape, self.weight.shape) or half.shape != (len(mean), len(rows)):
            raise ValueError(name)
        self.mean, self.weight = mean.copy(), weight.copy()
        self.covariance[:, rows, columns] = half
        self.covariance[:, columns, rows] = half

    @property
    def _half(self) -> tuple[np.ndarray, np.ndarray]:
        return np.triu_indices(self.mean.shape[1])
