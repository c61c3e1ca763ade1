"""Laplace measurement of a step's totals: pure DP, the budget of an event cut by the events of a unit.

Guarantee: epsilon-DP for a unit over a span: one event moves the totals of one step by its shifts, which costs
    sum(shift / scale) = epsilon / most; a unit has `most` events in a span at most.
Source: [dwork2014]; [zhang2022], section 8 ("Baseline-Laplace", scale T Delta / epsilon: most = T there).
Units: lattice steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from engines.accounting import Accountant, PureEvent
from engines.contract import State
from engines.noise import DiscreteLaplace, NoiseSource, laplace_mechanism, scale_for
from engines.noise.private import clipped
from engines.series.gaussian import NoisyTotal
from engines.series.presence import Presence
from schemas.errors import EngineInputError

_LARGEST = 2**61


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceBudget:
    """Public constants. Args: as `gaussian.GaussianBudget`, without a delta."""

    epsilon: Fraction
    presence: Presence
    shifts: tuple[int, ...]
    shares: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if self.presence.most is None:
            raise EngineInputError("Laplace noise needs a horizon, or a bound on the events of a unit")
        for field in range(len(self.shifts)):
            self.scale(field)

    @property
    def event_epsilon(self) -> Fraction:
        """Of one event."""
        assert self.presence.most is not None
        return self.epsilon / self.presence.most

    def accountant(self) -> Accountant:
        """An unspent budget of one span."""
        assert self.presence.most is not None
        return Accountant(epsilon=self.epsilon, contributions=self.presence.most)

    @property
    def event(self) -> PureEvent:
        """What a step costs one of its events."""
        return PureEvent(self.event_epsilon)

    def scale(self, field: int) -> Fraction:
        """Of the noise of a field."""
        return scale_for(self.shifts[field], self.event_epsilon * self.shares[field])

    def measure(self, field: int, total: int, noise: NoiseSource) -> NoisyTotal:
        """Draw noise for one total; one that would leave int64 is moved to its end first."""
        scale = self.scale(field)
        noisy = laplace_mechanism(clipped(total, -_LARGEST, _LARGEST), scale, noise)
        return NoisyTotal(float(noisy), DiscreteLaplace(scale).variance)


class LaplaceChannel:
    """Laplace noise of one scale. Steps are disjoint parts of the data."""

    interval = 2.302585092994046 / 2**0.5  # ln 10 scales, in standard deviations of the continuous law

    def __init__(self, budget: LaplaceBudget) -> None:
        self._budget, self._accountant = budget, budget.accountant()

    def measure(self, step: int, totals: Sequence[int], noise: NoiseSource) -> list[NoisyTotal] | None:
        self._accountant = self._accountant.charged(self._budget.event, step=step)
        return [self._budget.measure(index, total, noise.child("series", index)) for index, total in enumerate(totals)]

    def arrays(self) -> State:
        return self._accountant.state()

    def restore(self, state: State) -> None:
        self._accountant = self._accountant.restore(state)
