"""Trajectories: differentially private synthetic trips, one release for each window of trips that closed."""

from engines.trajectory.default import Default
from engines.trajectory.paper import Paper
from engines.trajectory.synthesis import Limits, Mode, Synthesis
from engines.trajectory.trips import LATTICE, Trips
from engines.trajectory.uniform import Uniform

__all__ = ["LATTICE", "Default", "Limits", "Mode", "Paper", "Synthesis", "Trips", "Uniform"]
