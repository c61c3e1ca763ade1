"""Budget distribution and budget absorption: modes `bd` and `ba`, private for windows of steps.

At each step a noisy dissimilarity says whether the total has moved away from the last release; only then a new one is
made, with what the window has left (bd) or with what steps since the last one did not use (ba). Else the last release
stands.
Guarantee: NOT over the whole stream. w-event privacy: for any window of w successive steps, what joins them costs a
    unit epsilon; half of it for the dissimilarities, epsilon / (2 w) each, half for the releases of the window.
Source: [kellaris2014], mechanisms 1 and 2, for one series; fields share the budget.
    Departures: budgets are whole multiples of epsilon / (2 w 2**20), rounded down.
Units: lattice steps; budgets in those multiples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from engines.accounting import Accountant, PureEvent
from engines.contract import State
from engines.noise import DiscreteLaplace, NoiseSource, laplace_mechanism, scale_for
from engines.noise.private import clipped
from engines.series.modes import NORMAL_90, SeriesOutcome, Value
from engines.series.presence import Presence
from schemas.errors import BudgetError, EngineInputError

GRAINS = 2**20
"""Parts of a step's even share of the release budget."""
_LARGEST = 2**61


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowBudget:
    """Public constants. Args: `presence.steps` is the window; a unit may be in all of its steps."""

    epsilon: Fraction
    presence: Presence
    shifts: tuple[int, ...]
    shares: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if self.presence.steps is None:
            raise EngineInputError("window privacy needs a window")

    @property
    def window(self) -> int:
        assert self.presence.steps is not None
        return self.presence.steps

    def even(self, field: int) -> Fraction:
        """epsilon / (2 w): of one dissimilarity, and the even share of a release."""
        return self.epsilon * self.shares[field] / (2 * self.window)

    def moved(self, field: int) -> int:
        """How far a unit moves the total of a step; a distance from a released number moves no further."""
        return self.shifts[field] * self.presence.per_step

    def scale(self, field: int, grains: int) -> Fraction:
        """Of the noise that so much of a release budget buys."""
        return scale_for(self.moved(field), self.even(field) * grains / GRAINS)

    def dissimilarity_scale(self, field: int) -> Fraction:
        return scale_for(self.moved(field), self.even(field))


class _Series:
    """One field: its last release, what was spent in the window, and what must stay unused."""

    def __init__(self, window: int) -> None:
        self.last, self.variance = 0, 0.0
        self.spent = np.zeros(window, np.int64)
        """Grains by step modulo the window."""
        self.since, self.nullified = 1, 0
        """Steps since the last release (ba: including this one); of them, those that it has used up."""


class WindowEvents:
    """A mode, see `modes`."""

    def __init__(self, budget: WindowBudget, kind: Literal["bd", "ba"]) -> None:
        self._budget, self._kind = budget, kind
        self._series = [_Series(budget.window) for _ in budget.shifts]
        self._unspent = Accountant(epsilon=budget.epsilon)
        self._accountant = self._unspent

    def step(self, step: int, totals: Sequence[int], present: bool, noise: NoiseSource) -> SeriesOutcome:
        at = step % self._budget.window
        for series in self._series:
            series.spent[at] = 0
        if not present:
            for series in self._series:
                series.since += 1
            return SeriesOutcome(silent=True)
        # Of any window, as a whole: which steps of it a unit's events are in, and what those cost, releases decide.
        self._accountant = self._unspent.charged(PureEvent(self._budget.epsilon))
        values, measurements = [], []
        for field, (series, total) in enumerate(zip(self._series, totals, strict=True)):
            bounded = clipped(total, -_LARGEST, _LARGEST)
            measurements += self._measured(field, series, step, bounded, noise.child("series", field))
            deviation = series.variance**0.5
            values.append(Value(float(series.last), deviation, NORMAL_90 * deviation))
        return SeriesOutcome(((step, tuple(values)),), measurements)

    def _measured(self, field: int, series: _Series, step: int, total: int, noise: NoiseSource) -> list[dict[str, Any]]:
        budget = self._budget
        scale = budget.dissimilarity_scale(field)
        distance = laplace_mechanism(abs(total - series.last), scale, noise.child("distance"))
        told: list[dict[str, Any]] = [
            {"field": field, "of_step": step, "distance": distance, "variance": DiscreteLaplace(scale).variance}
        ]
        grains = self._offer(series)
        if grains < 1 or distance <= budget.scale(field, grains):
            series.since += 1
            return told
        series.spent[step % budget.window] = grains
        if int(series.spent.sum()) > budget.window * GRAINS:
            raise BudgetError("the releases of a window would cost more than half of its budget")
        release = budget.scale(field, grains)
        series.last = laplace_mechanism(total, release, noise.child("release"))
        series.variance = DiscreteLaplace(release).variance
        series.nullified, series.since = max(0, -(-grains // GRAINS) - 1), 1
        return [*told, {"field": field, "of_step": step, "value": series.last, "variance": series.variance}]

    def _offer(self, series: _Series) -> int:
        """Grains that a release at this step may use."""
        window = self._budget.window
        if self._kind == "bd":
            return (window * GRAINS - int(series.spent.sum())) // 2
        # What the last release took from the steps after it stays unused; the unused ones since then add up.
        return min(max(series.since - series.nullified, 0), window) * GRAINS

    def arrays(self) -> State:
        arrays = self._accountant.state()
        for index, series in enumerate(self._series):
            numbers = [series.last, series.since, series.nullified]
            arrays[f"series/{index}"] = np.array(numbers, np.int64)
            arrays[f"spent/{index}"] = series.spent.copy()
            arrays[f"variance/{index}"] = np.array([series.variance])
        return arrays

    def restore(self, state: State) -> None:
        self._accountant = self._accountant.restore(state)
        for index, series in enumerate(self._series):
            series.last, series.since, series.nullified = state[f"series/{index}"].tolist()
            spent = np.array(state[f"spent/{index}"], np.int64)
            if spent.shape != series.spent.shape:
                raise ValueError("spent")
            series.spent = spent
            (series.variance,) = state[f"variance/{index}"].tolist()
