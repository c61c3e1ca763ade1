"""The AR(1) releaser: x_t = (1 - w_t) Zhat_t(x_{t-1}) + w_t y_t, with y_t = z_t + n_t / w_t.

Written so, it is post-processing of y_t: the noise that the paper adds to a real-valued combination (where w z leaks
modulo 1 beside integer noise) goes on an integer instead, and is scaled afterwards.
Guarantee: post-processing; w_t is public (a secret w_t would add nothing to the guarantee) and 1 at t <= 2, which the
    schedule's total contains.
Source: [zhang2022], algorithms 1 and 2, theorem 6.1 for the standard error. Parameters come from released x alone.
Units: lattice steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engines.core.contract import State
from engines.series.papers.moments import Moments, Parameters


class Releaser:
    """An estimator, see `modes`."""

    def __init__(self, squared_weight: Callable[[int], float], *, positive: bool) -> None:
        """Args: `squared_weight` of a step; `positive`: the correlation is known to be above zero."""
        self._squared_weight, self._positive = squared_weight, positive
        self._moments = Moments()
        self._step, self._last = 0, 0.0

    def update(self, value: float, variance: float) -> tuple[float, float]:
        """Take in a measurement; return x_t and the variance of its error."""
        square = self._squared_weight(self._step)
        noise = variance * square
        known = self._moments.parameters(positive=self._positive)
        if known is None or square >= 1:
            released, error = value, variance
        else:
            guess, doubt = self._guess(known, noise)
            weight = square**0.5
            released = (1 - weight) * guess + weight * value
            error = (1 - weight) ** 2 * doubt + noise
        self._moments.add(released, noise)
        self._last = released
        self._step += 1
        return released, error

    def _guess(self, known: Parameters, noise: float) -> tuple[float, float]:
        kept = known.variance / (known.variance + noise)
        pull = known.correlation * kept
        guess = known.mean * (1 - pull) + pull * self._last
        return guess, known.variance * (1 - known.correlation**2 * kept)

    def skip(self) -> None:
        """The present step has no measurement: the next one is guessed from what would have been guessed here."""
        known = self._moments.parameters(positive=self._positive)
        if known is not None:
            self._last = self._guess(known, 0.0)[0]
        self._step += 1

    def arrays(self) -> State:
        return {"step": np.array([self._step], np.int64), "last": np.array([self._last]), **self._moments.arrays()}

    def restore(self, state: State) -> None:
        """Take over a state. Raises: KeyError, ValueError."""
        (self._step,), (self._last,) = state["step"].tolist(), state["last"].tolist()
        self._moments.restore(state)
