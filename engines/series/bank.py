"""The default of a series: a bank of Kalman filters, the public clock that they know, and what they spend.

`Clock` says which steps of a day, or of a week, look alike: a function of the step's number alone.

`Filters` are Kalman filters side by side: one for each hypothesis of how a series moves, on the same noisy
measurements. Each state is (level, AR(1) deviation, coefficients of the clock's regressors). The level and the
coefficients stay, the deviation has a scale and a correlation by hypothesis; under some its size follows the daily
profile.
Guarantee: post-processing of measurements and public constants.
Source: [kalman1960]; predictive likelihood as weights: [west1997], chapter 12. The grid is ours.
Units: lattice steps of the field.

`Inflation` learns how much wider than the bank believes its predictions err, for intervals alone. Weights of filters
take a series that hides under the noise for one that hardly moves, and no filter has the trends and jumps of a real
series. So the variance of the bank's prediction counts `factor` times. The factor is one of a few, each weighed by how
likely it makes the errors of the predictions so far. Where noise is far above the movement they tell little of it, and
the prior's doubt stays.
Guarantee: post-processing of released measurements. Neither released values nor budgets depend on it.
Source: ours; after variance inflation in adaptive filters ([mehra1970]), with a Bayesian choice of the factor.
Units: any, variances in their squares.

`FilterBank` says what a noisy series most likely is, and how much of the budget the present step deserves.
Filters on a grid of hypotheses predict each measurement; how well they did weighs them. The
released value is their weighted mean, the standard error that of the mixture and of what its predictions were seen to
err beyond it (`Inflation`). The share of the budget follows the same
weights: a series that moves little under the noise gets more at the start, since all later steps gain by that; one
that moves much gets the same at every step; and where the daily profile says that some hours vary more, they get more.
Guarantee: post-processing of released measurements. What it wishes to spend is checked and paid elsewhere.
Source: ours; grid and constants in docs/engines/sequence.md.
Units: lattice steps; precisions in their squares' inverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from engines.core.contract import State
from schemas.arrays import FloatArray
from schemas.errors import EngineInputError

HARMONICS = 6
WEEKEND_HARMONICS = 3
_WEEK = 7
_SATURDAY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Args:

    period: steps after which a day (for daily steps: a week) repeats.
    phase: place of step 0 in its period.
    weekday: of step 0, Monday = 0; None: weekends are not known or not told apart.
    Raises: EngineInputError if the period is below 2.
    """

    written_as: ClassVar[str] = "Clock"

    period: int
    phase: int = 0
    weekday: int | None = None

    def __post_init__(self) -> None:
        if self.period < 2:
            raise EngineInputError("a period must be at least two steps")

    @property
    def scales(self) -> FloatArray:
        """Prior scale of each regressor's coefficient, `(regressors,)`, relative to the first."""
        daily = [1 / k for k, _ in self._waves(HARMONICS)]
        if self.weekday is None:
            return np.array(daily)
        return np.array([*daily, 1.0, *(1 / k for k, _ in self._waves(WEEKEND_HARMONICS))])

    def regressors(self, first: int, count: int) -> FloatArray:
        """Return waves of the day, and a level and waves of the weekend's own: `(count, regressors)`."""
        table = _table(self)
        return table[np.arange(first, first + count) % len(table)]

    def table(self) -> FloatArray:
        """Return those of one round, after which all of them repeat: `(steps, regressors)`."""
        steps = np.arange(self.period * (1 if self.weekday is None else _WEEK)) + self.phase
        turn = 2 * np.pi * (steps % self.period) / self.period
        columns = [np.cos(k * turn - lag) for k, lag in self._waves(HARMONICS)]
        if self.weekday is not None:
            days = (steps // self.period + self.weekday) % _WEEK
            weekend = (days >= _SATURDAY).astype(np.float64)
            columns.append(weekend - 2 / 7)
            columns += [weekend * np.cos(k * turn - lag) for k, lag in self._waves(WEEKEND_HARMONICS)]
        return np.stack(columns, axis=1)

    def _waves(self, most: int) -> list[tuple[int, float]]:
        """Return (multiple of the base frequency, lag) of each: cosine and sine, only the cosine at the highest one."""
        return [
            (k, lag)
            for k in range(1, min(most, self.period // 2) + 1)
            for lag in ((0.0,) if 2 * k == self.period else (0.0, np.pi / 2))
        ]


@lru_cache(maxsize=16)
def _table(clock: Clock) -> FloatArray:
    return clock.table()


@dataclass(frozen=True, slots=True, eq=False)
class Hypotheses:
    """The hypotheses of a bank, one entry of each array for each filter; all are `(filters,)`.

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
        """Begin before any data. Args: `level_scale`: of the level's prior, which is around zero."""
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
        """Move the state to the next step."""
        rho = self.hypotheses.correlation
        self.mean[:, 1] *= rho
        self.covariance[:, 1, :] *= rho[:, None]
        self.covariance[:, :, 1] *= rho[:, None]
        self.covariance[:, 1, 1] += self.hypotheses.scale**2 * (1 - rho**2)

    def predict(self, regressors: FloatArray, profile: float) -> None:
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
        """Return the state; of the symmetric covariances, the upper half."""
        rows, columns = self._half
        return {
            f"{name}/mean": self.mean.copy(),
            f"{name}/covariance": self.covariance[:, rows, columns],
            f"{name}/weight": self.weight.copy(),
        }

    def restore(self, state: State, name: str) -> None:
        """Set the state to what `arrays` returned. Raises: KeyError, ValueError if it is of other filters."""
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


_FACTORS = 2.0 ** np.arange(5)
"""Alike beforehand: log-uniform, as is usual for a scale."""


class Inflation:
    """The factor by which the variances of one bank's predictions are inflated."""

    def __init__(self) -> None:
        self._weight: FloatArray = np.zeros(len(_FACTORS))

    @property
    def factor(self) -> float:
        """The expected factor of the predictions' variance, at least 1."""
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
        """Return the variance to add to that of the estimate after the measurement.

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
        """Set the state to what `arrays` returned. Raises: KeyError, ValueError if it is of other factors."""
        weight = np.asarray(state["inflation"], np.float64)
        if weight.shape != _FACTORS.shape:
            raise ValueError("inflation")
        self._weight = weight.copy()


_EXACT = 64


def power_share(power: float, *, first: int, count: int) -> float:
    """Return first**-power over the sum of s**-power, s = first .. first + count - 1; an integral stands for its tail.

    >>> power_share(0.0, first=3, count=4), round(power_share(1.0, first=1, count=2), 4)
    (0.25, 0.6667)
    """
    exact = min(count, _EXACT)
    total = float((np.arange(first, first + exact, dtype=np.float64) ** -power).sum())
    if count > exact:
        low, high = first + exact - 0.5, first + count - 0.5
        if abs(power - 1) < 1e-9:
            total += float(np.log(high / low))
        else:
            total += (high ** (1 - power) - low ** (1 - power)) / (1 - power)
    return float(first**-power) / total


def water_level(variances: FloatArray, mean: float, *, floor: float) -> float:
    """Return the level w for which max(w - 1 / variance, floor) is `mean` on average: it leaves the least total
    variance.

    >>> water_level(np.array([1.0, 0.5]), 3.0, floor=0.0), water_level(np.array([1.0, 0.1]), 3.0, floor=1.0)
    (4.5, 6.0)
    """
    bare = np.sort(1 / variances)
    size = np.arange(1, len(bare) + 1)
    # The level if the k most uncertain steps are above the floor and the others on it.
    levels = (mean * len(bare) - floor * (len(bare) - size) + np.cumsum(bare)) / size
    above = np.flatnonzero(levels - bare >= floor)
    return float(levels[above[-1]]) if len(above) else float(mean + bare[0])


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
    """Return hypotheses without a clock, of `weight` together; scales are relative to `noise`, and at most `most`.

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
    """Return hypotheses with a daily profile."""
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
    """The estimator of one field in mode `default`.

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
        self._has_predicted = False

    @property
    def _weights(self) -> list[FloatArray]:
        logs = [group.weight for group in self._groups]
        top = max(float(log.max()) for log in logs)
        weights = [np.exp(log - top) for log in logs]
        total = sum(float(weight.sum()) for weight in weights)
        return [weight / total for weight in weights]

    def _front(self, weights: list[FloatArray] | None = None) -> float:
        """Return the power of time that the hypotheses ask for on average: 0 where the series moves by more than the
        noise.
        """
        found = zip(self._weights if weights is None else weights, self._fronts, strict=True)
        return float(sum((weight * part).sum() for weight, part in found))

    def _predict(self) -> FloatArray | None:
        """Predict the present step, once; return the profile of the coming period where it is known."""
        profile, now = self._profile()
        for index, group in enumerate(self._groups):
            if self._step:
                group.advance()
            clock = self.clock if index else None
            row = clock.regressors(self._step, 1)[0] if clock is not None else np.zeros(0)
            group.predict(row, now)
        self._has_predicted = True
        return profile

    def _profile(self) -> tuple[FloatArray | None, float]:
        """Return the expected values of the coming period relative to their root mean square, and now."""
        if len(self._groups) == 1 or self.clock is None or self._seen < self.clock.period:
            return None, 1.0
        weight, group = self._weights[1], self._groups[1]
        mean = (weight[:, None] * group.mean).sum(0) / max(float(weight.sum()), 1e-300)
        level = float(mean[0]) + self._centre
        coming = self.clock.regressors(self._step, self.clock.period)
        values = np.clip((level + coming @ mean[2:]) / max(level, 1e-9 * self.noise), _LEAST_PROFILE, _MOST_PROFILE)
        values /= np.sqrt((values**2).mean())
        return values, float(values[0])

    def wanted_precision(self, *, remaining: float, left: int) -> float:
        """Return the precision that the present step should get.

        Args:
            remaining: precision that all of the budget left in the span buys. left: steps of it, this one included.
        """
        profile = self._predict()
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
        """Move an even share between the hours of the coming period, by how uncertain they will be."""
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
        if not self._has_predicted:
            self._predict()
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
        """Pass over the present step, which has no measurement."""
        if not self._has_predicted:
            self._predict()
        self._next()

    def _mixture(self, parts: list[tuple[FloatArray, FloatArray]]) -> tuple[float, float]:
        """Return mean and variance under the present weights. Args: those of the filters, by group."""
        weights = self._weights
        mean = float(sum(float((w * estimate).sum()) for w, (estimate, _) in zip(weights, parts, strict=True)))
        variance = sum(
            (w * (own + (estimate - mean) ** 2)).sum() for w, (estimate, own) in zip(weights, parts, strict=True)
        )
        return mean, float(variance)

    def _next(self) -> None:
        self._step += 1
        self._has_predicted = False

    def arrays(self) -> State:
        """Return the state between steps."""
        arrays = {"clock": np.array([self._step, self._seen], np.int64), **self._inflation.arrays()}
        for index, group in enumerate(self._groups):
            arrays |= group.arrays(str(index))
        return arrays

    def restore(self, state: State) -> None:
        """Set the state to what `arrays` returned. Raises: KeyError, ValueError if it is of another estimator."""
        self._step, self._seen = (int(number) for number in state["clock"])
        self._inflation.restore(state)
        for index, group in enumerate(self._groups):
            group.restore(state, str(index))
        self._has_predicted = False
