"""Methods, grids and figures that benchmarks of trips compare."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Protocol

from benchmarks.papers.trajectory import grid_trips
from engines.core.noise import NoiseSource
from engines.core.shares import PureShares
from engines.trajectory.default.mode import Default
from engines.trajectory.engine import Limits, TripMode
from engines.trajectory.papers.paper_trees import Paper
from engines.trajectory.trips import Trips

GRIDS = (40, 33)
FIVE = ("SE_ARE", "SE_JSD", "FP_ARE", "FP_JSD", "QE")


class Method(Protocol):
    """Synthetic trips for private `trips`, at this epsilon for one of them."""

    def __call__(self, trips: Trips, *, epsilon: Fraction, limits: Limits, noise: NoiseSource) -> Trips: ...


def of_mode(mode: TripMode, trips: Trips, *, epsilon: Fraction, limits: Limits, noise: NoiseSource) -> Trips:
    """A `Method`: what a mode of the engine makes."""
    within = trips.first(limits.points)
    return mode.synthesise(within, shares=PureShares(epsilon), limits=limits, noise=noise).trips


MODES: dict[str, Method] = {
    "default": partial(of_mode, Default()),
    "paper": partial(of_mode, Paper()),
    "paper, exponential": partial(of_mode, Paper(spread="exponential")),
    "grid": grid_trips,
}
