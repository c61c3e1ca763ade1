"""How many rows there are: inserts and deletes counted at every step, and followed by their trends.

Guarantee: what the counter costs one event over an endless stream, also adaptively: it adds 1 to one of the two
    coordinates of a continual counter, at one step. Everything after the counter is post-processing.
    Levels and rates are a local linear trend by a Kalman filter ([kalman1960]); the rate wanders by a twentieth of
    itself a step, arrivals scatter like a Poisson variable, and surprises beyond three standard deviations, or several
    in a row, open the filter again. Floats see +, -, *, / and comparisons only: the same on every machine.
With a ttl the rows alive are the inserts of the last `ttl_steps` steps: a difference of two released levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from math import sqrt

import numpy as np

from engines.core.contract import State
from engines.core.counters.linear import Counter, CounterState
from engines.core.noise import NoiseSource
from engines.core.state import reading
from schemas.arrays import FloatArray, IntArray, below, under

WANDER = 0.05
"""Standard deviation of a step's change of the rate, as a share of the rate."""
_SURPRISE, _LASTING, _MEMORY = 9.0, 3.0, 0.7
KEPT = 1024
"""Levels that are remembered for a ttl; between them the line is straight."""


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
        """Return the trend after one more step, of which `observed` is the running sum with noise of this variance."""
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
        """Return `(7,)` for the state."""
        return np.array(astuple(self), np.float64)

    @staticmethod
    def of(array: FloatArray) -> Trend:
        """Return the trend whose `array` this was."""
        level, rate, a, b, c, surprise, steps = array.tolist()
        return Trend(level, rate, a, b, c, surprise, int(steps))


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """A value: `after` returns the next one.

    Args:
        counter: without a horizon. ttl_steps: None where inserts stay.
    Attributes:
        released: `(2,)` int64, noisy inserts and deletes since the start, in whole multiples of 1/resolution events of
            the counter.
    """

    counter: Counter
    ttl_steps: int | None = None
    counter_state: CounterState | None = None
    released: IntArray = field(default_factory=lambda: np.zeros(2, np.int64))
    inserts: Trend = field(default_factory=Trend)
    deletes: Trend = field(default_factory=Trend)
    levels: FloatArray = field(default_factory=lambda: np.zeros(1))
    """Every `stride`-th level of the inserts, the oldest first; the first is that before any step."""

    @property
    def stride(self) -> int:
        return 1 if self.ttl_steps is None else -(-self.ttl_steps // KEPT)

    @property
    def steps(self) -> int:
        return self.inserts.steps

    def after(self, changes: IntArray, noise: NoiseSource) -> Totals:
        """Return the totals after one more step. Args: changes: `(2,)` int64, its PRIVATE inserts and deletes."""
        counter = self.counter
        state = counter.initial(2) if self.counter_state is None else self.counter_state
        increments, state = counter.step(changes, state, noise)
        released: IntArray = self.released + increments
        variance = counter.variance(self.steps + 1)
        inserts, deletes = (released / counter.resolution).tolist()
        trend = self.inserts.after(inserts, variance)
        levels = self.levels
        if self.ttl_steps is not None and trend.steps % self.stride == 0:
            levels = np.append(levels, trend.level)[-(-(-self.ttl_steps // self.stride) + 2) :]
        return replace(
            self,
            counter_state=state,
            released=released,
            inserts=trend,
            deletes=self.deletes.after(deletes, variance),
            levels=levels,
        )

    def published(self) -> tuple[list[int], float]:
        """Return noisy inserts and deletes in whole events, and the variance of each."""
        counter = self.counter
        rounding = 0.0 if counter.resolution == 1 else 1 / 12
        whole = np.rint(self.released / counter.resolution).astype(np.int64)
        return whole.tolist(), counter.variance(self.steps) + rounding

    @property
    def events(self) -> float:
        """Inserts and deletes since the start."""
        return self.inserts.level + self.deletes.level

    @property
    def grown(self) -> float:
        """Inserts less deletes since the start; expiry by a ttl does not count."""
        return self.inserts.level - self.deletes.level

    @property
    def alive(self) -> float:
        """Rows alive, not negative."""
        if self.ttl_steps is not None:
            return max(self.inserts.level - self._level(self.steps - self.ttl_steps), 0.0)
        return max(self.inserts.level - self.deletes.level, 0.0)

    @property
    def rate(self) -> float:
        """Events of a step."""
        return self.inserts.rate + self.deletes.rate

    @property
    def most_changes(self) -> float:
        """Twice the events of a step, expiries included, as far as is sure: less a standard error, but at least
        once.
        """
        doubt = sqrt(max(self.inserts.rate_variance + self.deletes.rate_variance, 0.0))
        expired = 0.0
        if self.ttl_steps is not None:
            past = self.steps - self.ttl_steps
            expired = max(self._level(past) - self._level(past - 1), 0.0)
        return max(self.rate, 2 * (self.rate - doubt)) + 2 * expired

    def _level(self, steps: int) -> float:
        """Return the level of the inserts after so many steps."""
        if steps <= 0:
            return 0.0
        # The newest kept level is that after `newest` steps.
        newest = self.steps // self.stride * self.stride
        place = len(self.levels) - 1 - (newest - steps) / self.stride
        low = min(max(int(place), 0), len(self.levels) - 1)
        high = min(low + 1, len(self.levels) - 1)
        share = place - low
        return float(self.levels[low] + share * (self.levels[high] - self.levels[low]))

    def arrays(self) -> State:
        """Return what `restored` takes. `counter/...` holds noise, which is PRIVATE."""
        counter = {} if self.counter_state is None else self.counter_state
        return {
            "totals/released": self.released.copy(),
            "totals/trends": np.stack([self.inserts.array(), self.deletes.array()]),
            "totals/levels": self.levels.copy(),
            **under("counter/", {name: array.copy() for name, array in counter.items()}),
        }

    def restored(self, state: Mapping[str, np.ndarray]) -> Totals:
        """Return what `arrays` were of. Raises: EngineInputError if some are missing, or of another counter."""
        with reading():
            released = np.array(state["totals/released"], np.int64)
            inserts, deletes = map(Trend.of, np.array(state["totals/trends"], np.float64))
            levels = np.array(state["totals/levels"], np.float64)
        counter = {name: array.copy() for name, array in below("counter/", state).items()} or None
        if counter is not None:
            self.counter.running_sum(counter)  # refuses the state of another counter
        return replace(self, counter_state=counter, released=released, inserts=inserts, deletes=deletes, levels=levels)
