"""The filter bank: what a noisy series most likely is, and how much of the budget the present step deserves.

Filters on a grid of hypotheses (`bank.filters`) predict each measurement; how well they did weighs them. The
released value is their weighted mean, the standard error that of the mixture and of what its predictions were seen to
err beyond it (`bank.inflation`). The share of the budget follows the same
weights: a series that moves little under the noise gets more at the start, since all later steps gain by that; one
that moves much gets the same at every step; and where the daily profile says that some hours vary more, they get more.
Guarantee: post-processing of released measurements. What it wishes to spend is checked and paid elsewhere.
Source: ours; grid and constants in docs/engines/sequence.md.
Units: lattice steps; precisions in their squares' inverse.
"""

from __future__ import annotations

import numpy as np

from engines.core.contract import State
from engines.series.bank.filters import Filters, Hypotheses
from engines.series.bank.inflation import Inflation
from engines.series.bank.spending import power_share, water_level
from engines.series.clock import Clock
from schemas.arrays import FloatArray

_LEVEL_SCALE = 1000.0
"""Prior scale of the level, in units of the noise."""
_FORGETTING, _SLOWER = 0.99, 0.0085
"""Exponent of old weights at each step, and what it gains where the series hides under the noise. A clear series may
change, so that what was true two hundred steps ago counts little; a hidden one tells so little in a step that a
thousand steps have to be put together."""
_PLAIN_SCALES = 10.0 ** np.arange(-2.5, 3.01, 0.25)
_PLAIN_CORRELATIONS = (0.0, 0.5, 0.8, 0.93, 0.98, 0.995)
_SEASONAL_SCALES = 10.0 ** np.arange(-1.5, 3.01, 0.5)
_SEASONAL_CORRELATIONS = (0.0, 0.5, 0.8, 0.95)
_DEVIATIONS = (1.0, 0.3, 0.1)
_EXPONENTS = (0.0, 0.5)
_SEASONAL_WEIGHT = 0.7

_LEAST_PROFILE, _MOST_PROFILE = 0.2, 3.0
_LEAST_SHARE, _MOST_SHARE = 0.15, 4.0
"""Of what the power schedule gives, after hours are weighed against each other."""
_FRONT, _FRONT_SLOPE = -0.3, 0.4
"""Power of time that a hypothesis asks for: 0 where it moves by more than the noise, 1 where by a fortieth of it."""
_FIRST_STEPS, _FIRST_FRONT = 2, 0.5
"""The very first steps have at least this power: whoever moves little needs them most, and they cost others little."""


def plain(noise: float, weight: float, most: float) -> Hypotheses:
    """Hypotheses without a clock, of `weight` together; scales are relative to `noise`, and at most `most`.

    That a series moves by k times the noise, k > 1, gets a k-th of the prior weight: it soon shows if it is true, and
    believing it for a while because of one large draw of noise costs more than all that filtering gains.
    """
    scales = _PLAIN_SCALES[_PLAIN_SCALES * noise <= max(most, _PLAIN_SCALES[0] * noise)]
    grid = [(scale * noise, rho) for scale in scales for rho in _PLAIN_CORRELATIONS]
    scale, rho = np.array(grid).T
    plausible = np.minimum(1.0, noise / scale)
    prior = np.log(weight * plausible / plausible.sum())
    return Hypotheses(scale, rho, np.zeros(len(grid)), np.zeros(len(grid)), prior)


def seasonal(noise: float, weight: float) -> Hypotheses:
    """Hypotheses with a daily profile."""
    grid = [
        (season * part * noise, rho, season * noise, exponent)
        for season in _SEASONAL_SCALES
        for part in _DEVIATIONS
        for rho in _SEASONAL_CORRELATIONS
        for exponent in _EXPONENTS
    ]
    scale, rho, season, exponent = np.array(grid).T
    return Hypotheses(scale, rho, season, exponent, np.full(len(grid), np.log(weight / len(grid))))


class FilterBank:
    """An estimator, see `modes`, for one field.

    Args:
        noise: standard deviation of a measurement if the budget is spent evenly.
        clock: of days and weeks. span: steps that the series has; None: no end.
        limits: between which values are known to lie; infinite where that is not known.
    """

    def __init__(
        self,
        noise: float,
        clock: Clock | None,
        span: int | None,
        limits: tuple[float, float] = (-np.inf, np.inf),
    ) -> None:
        self.noise, self.clock = noise, clock
        width = limits[1] - limits[0]
        # Where the range is known, the level is somewhere in it, and nothing moves by more than half of it.
        self._centre = (limits[0] + limits[1]) / 2 if np.isfinite(width) else 0.0
        level = min(_LEVEL_SCALE * noise, width / 12**0.5)
        # A profile needs two periods to be of use.
        if clock is not None and (span is None or span >= 2 * clock.period):
            scales = clock.scales
            self._groups = [
                Filters(plain(noise, 1 - _SEASONAL_WEIGHT, width / 2), np.zeros(0), level),
                Filters(seasonal(noise, _SEASONAL_WEIGHT), scales, level),
            ]
        else:
            self._groups = [Filters(plain(noise, 1.0, width / 2), np.zeros(0), level)]
        # The variance of a value of which no more is known than the range.
        self._widest = width**2 / 12
        self._inflation = Inflation()
        self._seen = self._step = 0
        self._fronts = [
            np.clip(_FRONT - _FRONT_SLOPE * np.log10(group.spread / noise**2), 0, 1) for group in self._groups
        ]
        self._looked = False

    @property
    def _weights(self) -> list[FloatArray]:
        logs = [group.weight for group in self._groups]
        top = max(float(log.max()) for log in logs)
        weights = [np.exp(log - top) for log in logs]
        total = sum(float(weight.sum()) for weight in weights)
        return [weight / total for weight in weights]

    def _front(self, weights: list[FloatArray] | None = None) -> float:
        """Power of time that the hypotheses ask for on average: 0 where the series moves by more than the noise."""
        found = zip(self._weights if weights is None else weights, self._fronts, strict=True)
        return float(sum((weight * part).sum() for weight, part in found))

    def _look(self) -> FloatArray | None:
        """Predict the present step, once; return the profile of the coming period where it is known."""
        profile, now = self._profile()
        for index, group in enumerate(self._groups):
            if self._step:
                group.advance()
            clock = self.clock if index else None
            row = clock.regressors(self._step, 1)[0] if clock is not None else np.zeros(0)
            group.look(row, now)
        self._looked = True
        return profile

    def _profile(self) -> tuple[FloatArray | None, float]:
        """Expected values of the coming period relative to their root mean square, and now."""
        if len(self._groups) == 1 or self.clock is None or self._seen < self.clock.period:
            return None, 1.0
        weight, group = self._weights[1], self._groups[1]
        mean = (weight[:, None] * group.mean).sum(0) / max(float(weight.sum()), 1e-300)
        level = float(mean[0]) + self._centre
        coming = self.clock.regressors(self._step, self.clock.period)
        values = np.clip((level + coming @ mean[2:]) / max(level, 1e-9 * self.noise), _LEAST_PROFILE, _MOST_PROFILE)
        values /= np.sqrt((values**2).mean())
        return values, float(values[0])

    def wish(self, *, remaining: float, left: int) -> float:
        """The precision that the present step should get.

        Args:
            remaining: precision that all of the budget left in the span buys. left: steps of it, this one included.
        """
        profile = self._look()
        weights = self._weights
        front = self._front(weights)
        if self._step < _FIRST_STEPS:
            front = max(front, _FIRST_FRONT)
        even = remaining * power_share(front, first=self._step + 1, count=left)
        if left == 1:
            return remaining
        wished = even
        if profile is not None:
            wished = self._weighed(even, profile, weights)
        return min(wished, remaining / 2)

    def _weighed(self, even: float, profile: FloatArray, weights: list[FloatArray]) -> float:
        """An even share moved between the hours of the coming period, by how uncertain they will be."""
        variance = float(sum((w * g.variance).sum() for w, g in zip(weights, self._groups, strict=True)))
        deviation = weights[1] * self._groups[1].covariance[:, 1, 1]
        exponents = self._groups[1].hypotheses.exponent
        moving, now = np.zeros(len(profile)), 0.0
        for exponent in _EXPONENTS:
            part = float(deviation[exponents == exponent].sum())
            moving += part * profile ** (2 * exponent)
            now += part * float(profile[0]) ** (2 * exponent)
        expected = max(variance - now, 0.02 * variance) + moving
        level = water_level(expected, even, floor=_LEAST_SHARE * even)
        return min(max(level - 1 / variance, _LEAST_SHARE * even), _MOST_SHARE * even)

    def update(self, value: float, variance: float) -> tuple[float, float]:
        """Take in the present step's measurement; return the estimate and its variance."""
        if not self._looked:
            self._look()
        predicted, spread = self._mixture([(group.predicted, group.variance) for group in self._groups])
        # The first value says where the level is; how well it was predicted says nothing of the hypotheses.
        forgetting = _FORGETTING + _SLOWER * min(1.0, 2 * self._front()) if self._seen else None
        if forgetting is not None:
            self._inflation.learn(value - self._centre - predicted, spread, variance, forgetting)
        parts = [group.update(value - self._centre, variance, forgetting=forgetting) for group in self._groups]
        top = max(float(group.weight.max()) for group in self._groups)
        for group in self._groups:
            group.weight -= top
        self._seen += 1
        estimate, own = self._mixture(parts)
        self._next()
        return estimate + self._centre, own + self._inflation.added(spread, variance, self._widest)

    def skip(self) -> None:
        """The present step has no measurement."""
        if not self._looked:
            self._look()
        self._next()

    def _mixture(self, parts: list[tuple[FloatArray, FloatArray]]) -> tuple[float, float]:
        """Mean and variance under the present weights. Args: those of the filters, by group."""
        weights = self._weights
        mean = float(sum(float((w * estimate).sum()) for w, (estimate, _) in zip(weights, parts, strict=True)))
        variance = sum(
            (w * (own + (estimate - mean) ** 2)).sum() for w, (estimate, own) in zip(weights, parts, strict=True)
        )
        return mean, float(variance)

    def _next(self) -> None:
        self._step += 1
        self._looked = False

    def arrays(self) -> State:
        """State between steps."""
        arrays = {"clock": np.array([self._step, self._seen], np.int64), **self._inflation.arrays()}
        for index, group in enumerate(self._groups):
            arrays |= group.arrays(str(index))
        return arrays

    def restore(self, state: State) -> None:
        """Take over a state. Raises: KeyError, ValueError if it is of another estimator."""
        self._step, self._seen = (int(number) for number in state["clock"])
        self._inflation.restore(state)
        for index, group in enumerate(self._groups):
            group.restore(state, str(index))
        self._looked = False
