"""Modes, grids and figures that benchmarks of trips compare."""

from __future__ import annotations

from engines.trajectory import Default, TripMode
from engines.trajectory.papers.paper_trees import Paper
from engines.trajectory.papers.uniform import Uniform

GRIDS = (40, 33)
FIVE = ("SE_ARE", "SE_JSD", "FP_ARE", "FP_JSD", "QE")
MODES: dict[str, TripMode] = {
    "default": Default(),
    "paper": Paper(),
    "paper, exponential": Paper(spread="exponential"),
    "grid": Uniform(),
}
