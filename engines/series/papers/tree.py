"""Differences of a binary tree's running sums: mode `tree`, a baseline.

Guarantee: epsilon-DP for a unit over a span: the counter costs one unit of weight its epsilon, an event of weight
    `shift` that often (`counters.contract`), and a unit has `most` events.
Source: [chan2011] by [zhang2022], section 8: b_t = B_t - B_{t-1}.
Units: lattice steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from engines.accounting import Accountant, PureEvent
from engines.contract import State
from engines.counters import TreeConfig
from engines.counters.contract import CounterState
from engines.noise import NoiseSource
from engines.series.modes import NORMAL_90, SeriesOutcome, Value
from engines.series.presence import Presence
from schemas.errors import EngineInputError


class TreeDifferences:
    """A mode, see `modes`."""

    def __init__(
        self, *, epsilon: Fraction, presence: Presence, shifts: Sequence[int], shares: Sequence[Fraction]
    ) -> None:
        if presence.steps is None or presence.most is None:
            raise EngineInputError("a binary tree needs a horizon")
        self._epsilon, self._presence = epsilon, presence
        event = epsilon / presence.most
        config = TreeConfig(horizon=presence.steps)
        self.counters = [config.calibrate(event * share / shift) for shift, share in zip(shifts, shares, strict=True)]
        self._span = -1
        self._accountant = Accountant(epsilon=epsilon)
        self._states: list[CounterState] = self._fresh()

    def _fresh(self) -> list[CounterState]:
        return [counter.initial(1) for counter in self.counters]

    def step(self, step: int, totals: Sequence[int], present: bool, noise: NoiseSource) -> SeriesOutcome:
        if not present:
            return SeriesOutcome(silent=True)
        span, _ = self._presence.where(step)
        if span != self._span:
            self._accountant = Accountant(epsilon=self._epsilon).charged(PureEvent(self._epsilon))
            self._states, self._span = self._fresh(), span
        values, measurements = [], []
        for index, (counter, total) in enumerate(zip(self.counters, totals, strict=True)):
            increment, self._states[index] = counter.step([total], self._states[index], noise.child("series", index))
            activation = int(counter.activations(self._states[index])[0])
            # One node is drawn, and those of the lowest ones among the digits of t - 1 are left behind.
            nodes = 1 + (activation & -activation).bit_length() - 1
            variance = nodes * counter.node_variance
            deviation = variance**0.5
            values.append(Value(float(increment[0]), deviation, NORMAL_90 * deviation))
            measurements.append({"field": index, "of_step": step, "value": int(increment[0]), "variance": variance})
        return SeriesOutcome(((step, tuple(values)),), measurements)

    def arrays(self) -> State:
        arrays: State = {"span": np.array([self._span], np.int64), **self._accountant.state()}
        for index, state in enumerate(self._states):
            arrays |= {f"counter/{index}/{name}": array.copy() for name, array in state.items()}
        return arrays

    def restore(self, state: State) -> None:
        (self._span,) = state["span"].tolist()
        self._accountant = self._accountant.restore(state)
        self._states = [
            {name: np.array(state[f"counter/{index}/{name}"], np.int64) for name in fresh}
            for index, fresh in enumerate(self._fresh())
        ]
