"""What a mode of the trajectory engine is: trips of one window in, synthetic trips and what was measured out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from engines.core.noise import NoiseSource
from engines.core.shares import Shares
from engines.trajectory.histograms import Noisy
from engines.trajectory.trips import Trips
from schemas.arrays import FloatArray
from schemas.errors import EngineInputError
from schemas.guarantee import Mechanism


@dataclass(frozen=True, slots=True)
class Limits:
    """Public caps. Longer trips are cut: after `points` points, and after `moves` moves between cells."""

    written_as: ClassVar[str] = "Limits"

    points: int = 1024
    moves: int = 250

    def __post_init__(self) -> None:
        if self.points < 2 or self.moves < 1:
            raise EngineInputError("a trip must be allowed 2 points and 1 move at least")


@dataclass(frozen=True, slots=True, eq=False)
class Synthesis:
    """One window's result. All of it is released.

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

    @property
    def note(self) -> str:
        """What else the guarantee must say, as sentences that begin with a space; empty for nothing."""
        ...

    def mechanisms(self, shares: Shares) -> tuple[Mechanism, ...]:
        """What is charged for each mechanism; adds up to all that `shares` are of."""
        ...

    def synthesise(
        self, trips: Trips, *, shares: Shares, limits: Limits, noise: NoiseSource, records: bool = True
    ) -> Synthesis:
        """Synthetic trips for private `trips`, none longer than `limits`; without `records` only measurements.

        Privacy: one trip, added or removed, costs `shares.whole` at most.
        """
        ...
