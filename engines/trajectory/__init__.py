"""Trajectories: differentially private synthetic trips, one release for each window of trips that closed."""

from engines.trajectory.default.mode import Default
from engines.trajectory.synthesis import Limits, Synthesis, TripMode
from engines.trajectory.trips import LATTICE, Trips

__all__ = ["LATTICE", "Default", "Limits", "Synthesis", "TripMode", "Trips"]
