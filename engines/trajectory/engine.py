"""The trajectory engine: in each step, synthetic trips for the trips that closed in it.

Points of a trip are gathered, privately, until it closes (`domain.Assembly`); then it is measured, in that one step, by
the histograms of the mode, and forgotten. Each step's synthetic trips stay for ever.
Guarantee: epsilon-DP for one trip: one contribution, with all its records, added or removed, over the whole stream. It
    is handed out in one step at most; which step depends on its own records and public rules only; and a window costs a
    trip of it epsilon (`TripMode`). Windows do not add up for a trip: parallel composition. With a delta it is
    (epsilon, delta)-DP for a user of so many trips, so many of them in one window: docs/guarantee.md, section 4c.
Source: [kumar2024], chapter 5, for one set of trips; windows and closing are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from engines.core.accounting.budgets import Budgets
from engines.core.contract import Batch, Release, State
from engines.core.many_records import ManyRecords, RecordColumns
from engines.core.noise import NoiseSource
from engines.core.shares import PureShares, Shares
from engines.core.state import check_step, head, identity_of, numbers_of, stored, written
from engines.trajectory.domain import Assembly, Closing, TripDomain
from engines.trajectory.histograms import Noisy
from engines.trajectory.trips import Trips
from schemas.arrays import FloatArray, IntArray
from schemas.guarantee import Guarantee, Mechanism


@dataclass(frozen=True, slots=True)
class Limits:
    """Public caps on trips. Longer ones are cut: after `points` points, and after `moves` moves between cells."""

    written_as: ClassVar[str] = "Limits"

    points: int = 1024
    moves: int = 250


@dataclass(frozen=True, slots=True, eq=False)
class Synthesis:
    """The result of one window. All of it is released.

    Attributes:
        trips: synthetic.
        places: longitudes and latitudes of their points, `(points,)` each, where a map decides on them; else None.
        measured: every histogram that private trips were counted in.
        notes: public facts for the ledger.
    """

    trips: Trips
    measured: tuple[Noisy, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)
    places: tuple[FloatArray, FloatArray] | None = None


class TripMode(Protocol):
    """A way to make synthetic trips. Pure: all randomness comes from `noise`."""

    note: ClassVar[str]
    """What else the guarantee must say, as sentences that begin with a space; empty for nothing."""

    def mechanisms(self, shares: Shares) -> tuple[Mechanism, ...]:
        """Return what is charged for each mechanism; it adds up to the whole of `shares`."""
        ...

    def synthesise(
        self, trips: Trips, *, shares: Shares, limits: Limits, noise: NoiseSource, records: bool = True
    ) -> Synthesis:
        """Make synthetic trips for private `trips`, none longer than `limits`; without `records` only measurements.

        Privacy: one trip, added or removed, costs `shares.whole` at most.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TripRecords(ManyRecords):
    """The points of a step's synthetic trips, trip by trip, in order.

    A record holds the raw fields' names: the trip (step and number, so it never comes again), the place of the point in
    it (from 0), and the coordinates, under `names`. Its key is the trip's name and that place.
    """

    step: int
    names: tuple[str, str, str, str]
    owners: IntArray
    offsets: IntArray
    x: FloatArray
    y: FloatArray

    def __len__(self) -> int:
        return len(self.x)

    def part(self, rows: range) -> RecordColumns:
        at = np.arange(rows.start, rows.stop, rows.step)
        owners = self.owners[at]
        places = (at - self.offsets[owners]).tolist()
        trips = [f"{self.step}-{owner}" for owner in owners.tolist()]
        columns = (trips, places, self.x[at].tolist(), self.y[at].tolist())
        ids = [f"{trip}-{place}" for trip, place in zip(trips, places, strict=True)]
        return RecordColumns(ids, dict(zip(self.names, columns, strict=True)), [self.step] * len(at))


STATE_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryConfig:
    """The configuration of the trajectory engine. All of it is public.

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
    mode: TripMode
    limits: Limits = field(default_factory=Limits)
    trip_field: str = "trip"
    order_field: str = "point"
    records: bool = True

    @property
    def identity(self) -> np.ndarray:
        named = ("trajectory", self.name, self.domain, self.closing, self.limits, self.mode)
        ground, shares = self.domain.ground, self.shares
        # Absent without a map, and without a delta, so that streams of old go on.
        there = () if ground is None else (ground.identity,)
        noise = () if isinstance(shares, PureShares) else (shares,)
        return identity_of(written((*named, *there, *noise)))


class Trajectories:
    """See the module; implements `engines.core.contract.Engine`."""

    def __init__(self, config: TrajectoryConfig) -> None:
        self.config = config
        self._next = 0
        self._total = 0
        self._assembly = Assembly.nothing()
        # A trip is in one window, whose histograms cost it epsilon together.
        self._budgets = Budgets.from_guarantee(self.guarantee())

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        """See `engines.core.contract.Engine.step`. Empty windows are released like any other."""
        config = self.config
        check_step(batch, self._next)
        assembly, trips = self._assembly.with_step(batch.events, step=batch.step, rules=config.closing)
        budgets = self._budgets.charged(self.guarantee(), "windows", step=batch.step)
        made = config.mode.synthesise(
            trips.first(config.limits.points),
            shares=config.shares,
            limits=config.limits,
            noise=noise,
            records=config.records,
        )
        trips = made.trips
        x, y = config.domain.coordinates(trips) if made.places is None else made.places
        names = (config.trip_field, config.order_field, config.domain.x_field, config.domain.y_field)
        added = TripRecords(batch.step, names, trips.owners, trips.offsets, x, y)
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
            **stored("trips", self._assembly),
            **self._budgets.arrays(),
        }

    def restore(self, state: State) -> None:
        step, total = numbers_of(state, STATE_FORMAT, self.config.identity, count=2)
        assembly, budgets = Assembly.of(state), self._budgets.restored(state)
        self._next, self._total, self._assembly, self._budgets = step, total, assembly, budgets

    def guarantee(self) -> Guarantee:
        """See `engines.core.contract.Engine.guarantee`. Of one trip; with a delta, of all trips of a user."""
        config, shares, together = self.config, self.config.shares, ""
        if not isinstance(shares, PureShares):
            most = f", of which at most {shares.together} close in one step" if shares.together else ""
            together = (
                f" Gaussian noise: what adds up is mu^2, over all trips of a user, {shares.changes} at most{most}."
            )
        return Guarantee(
            epsilon=config.shares.epsilon,
            delta=config.shares.delta,
            mechanisms=config.mode.mechanisms(config.shares),
            note="One contribution is one trip with all its records. It is measured in the one step in which it "
            "closes; points are spread over its records so that the trip weighs one at most in each histogram."
            + config.mode.note
            + together,
        )


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
