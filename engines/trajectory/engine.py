"""The trajectory engine: in each step, synthetic trips for the trips that closed in it.

Points of a trip are gathered, privately, until it closes (`assembly`); then it is measured, in that one step, by the
histograms of the mode, and forgotten. Each step's synthetic trips stay for ever.
Guarantee: epsilon-DP for one trip: one contribution, with all its records, added or removed, over the whole stream. It
    is handed out in one step at most; which step depends on its own records and public rules only; and a window costs a
    trip of it epsilon (`synthesis.TripMode`). Windows do not add up for a trip: parallel composition. With a delta it
    is (epsilon, delta)-DP for a user of so many trips, so many of them in one window: docs/guarantee.md, section 4c.
Source: [kumar2024], chapter 5, for one set of trips; windows and closing are ours.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engines.core.accounting.budgets import Budgets
from engines.core.contract import Batch, Release, State
from engines.core.identity import written
from engines.core.noise import NoiseSource
from engines.core.shares import PureShares, Shares
from engines.core.state import head, numbers_of
from engines.trajectory.assembly import Assembly, Closing
from engines.trajectory.default.mode import Default
from engines.trajectory.domain import TripDomain
from engines.trajectory.histograms import Noisy
from engines.trajectory.records import TripRecords
from engines.trajectory.synthesis import Limits, TripMode
from schemas.errors import EngineInputError
from schemas.guarantee import Guarantee

STATE_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryConfig:
    """The recipe. All of it is public.

    Args:
        name: of the stream.
        domain: what points are; `trip_field` and `order_field` name two more fields of synthetic records.
        shares: what ONE trip may spend, over the whole stream.
        records: False where only measurements are released.
    """

    name: str
    domain: TripDomain
    shares: Shares
    closing: Closing
    mode: TripMode = field(default_factory=Default)
    limits: Limits = field(default_factory=Limits)
    trip_field: str = "trip"
    order_field: str = "point"
    records: bool = True

    def __post_init__(self) -> None:
        if self.closing.idle < 1 or self.closing.life < 1:
            raise EngineInputError("idle and life must be at least one step")

    @property
    def identity(self) -> np.ndarray:
        """`(32,)` uint8: states of configurations with another one mean something else."""
        named = ("trajectory", self.name, self.domain, self.closing, self.limits, self.mode)
        ground, shares = self.domain.ground, self.shares
        # Absent without a map, and without a delta, so that streams of old go on.
        there = () if ground is None else (ground.identity,)
        noise = () if isinstance(shares, PureShares) else (shares,)
        text = written((*named, *there, *noise))
        return np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)


class Trajectories:
    """See the module; implements `engines.core.contract.Engine`."""

    def __init__(self, config: TrajectoryConfig) -> None:
        self.config = config
        self._next = 0
        self._total = 0
        self._assembly = Assembly.nothing()
        # A trip is in one window, whose histograms cost it epsilon together.
        self._budgets = Budgets.of(self.guarantee())

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        """See `engines.core.contract.Engine.step`. Empty windows are released like any other."""
        config = self.config
        if batch.step != self._next:
            raise EngineInputError(f"step {self._next} comes next, not step {batch.step}")
        assembly, trips = self._assembly.with_events(batch.events, step=batch.step, rules=config.closing)
        budgets = self._budgets.charged(self.guarantee(), "windows", step=batch.step)
        made = config.mode.synthesise(
            trips.first(config.limits.points),
            shares=config.shares,
            limits=config.limits,
            noise=noise,
            records=config.records,
        )
        added = TripRecords.of(
            batch.step,
            made,
            config.domain,
            trip_field=config.trip_field,
            order_field=config.order_field,
        )
        self._assembly, self._budgets = assembly, budgets
        self._next, self._total = batch.step + 1, self._total + len(added)
        return Release(
            step=batch.step,
            added=added,
            removed=(),
            measurements=[_measurement(noisy) for noisy in made.measured],
            total=self._total,
            notes=made.notes,
        )

    def state(self) -> State:
        """See `engines.core.contract.Engine.state`. O(points of trips under way)."""
        return {
            **head(STATE_FORMAT, self.config.identity, self._next, self._total),
            **self._assembly.arrays(),
            **self._budgets.arrays(),
        }

    def restore(self, state: State) -> None:
        """See `engines.core.contract.Engine.restore`."""
        step, total = numbers_of(state, STATE_FORMAT, self.config.identity, count=2)
        assembly, budgets = Assembly.of(state), self._budgets.restored(state)
        self._next, self._total, self._assembly, self._budgets = step, total, assembly, budgets

    def guarantee(self) -> Guarantee:
        """See `engines.core.contract.Engine.guarantee`. Of one trip; with a delta, of all trips of a user."""
        config = self.config
        return Guarantee(
            epsilon=config.shares.epsilon,
            delta=config.shares.delta,
            mechanisms=config.mode.mechanisms(config.shares),
            note="One contribution is one trip with all its records. It is measured in the one step in which it "
            "closes; points are spread over its records so that the trip weighs one at most in each histogram."
            + config.mode.note
            + _together(config.shares),
        )


def _together(shares: Shares) -> str:
    if isinstance(shares, PureShares):
        return ""
    most = f", of which at most {shares.together} close in one step" if shares.together else ""
    return f" Gaussian noise: what adds up is mu^2, over all trips of a user, {shares.changes} at most{most}."


def _measurement(noisy: Noisy) -> dict[str, Any]:
    """See `Release.measurements`: all values in trips, with the variance of the noise in each."""
    return {
        "histogram": noisy.name,
        "bins": len(noisy.values),
        "sum": float(noisy.values.sum()),
        "variance": noisy.variance,
        "unit": "trips",
        "values": {"noisy": np.round(noisy.values, 4).tolist()},
    }
