"""The watch: one noisy count of a step's events per coarse cell, which finds bursts that held leaves would sleep over.

Guarantee: epsilon-DP for one event, inserted or deleted, over the whole stream: it is in one cell of one step's counts.
Source: ours. A cell is hot where its count leaves its moving average by more than noise and habit explain.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.noise import BoolArray, IntArray, NoiseSource, discrete_laplace, scale_for
from engines.spatial.domain import FloatArray
from engines.spatial.partition import Changes

ALARM = 8
"""Scales of noise by which a count must leave its average, at least."""
MEMORY = 0.3
"""Weight of the newest count in the average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Public constants; may be printed and logged.

    Args:
        epsilon: of one event. depth: of the cells. domain_depth: of the finest cells.
    """

    epsilon: Fraction
    depth: int
    domain_depth: int

    @property
    def scale(self) -> Fraction:
        return scale_for(1, self.epsilon)

    def noisy(self, values: IntArray, noise: NoiseSource) -> IntArray:
        """The one way in which the watch sees events: `(cells,)` int64 private in, released out."""
        return values + discrete_laplace(len(values), self.scale, noise)

    def step(self, changes: Changes, average: FloatArray, noise: NoiseSource) -> tuple[BoolArray, FloatArray]:
        """Count a step's events.

        Args:
            average: `(cells,)` float64 moving averages, or `(0,)` before the first count; released.
        Returns: `(cells,)` True where a cell is hot, and the averages now; safe to publish.
        """
        starts = np.arange((1 << self.depth) + 1) << (self.domain_depth - self.depth)
        counts = self.noisy(np.diff(changes.gains[np.searchsorted(changes.codes, starts)]), noise)
        if not len(average):
            return np.zeros(len(counts), np.bool_), counts.astype(np.float64)
        habit = np.abs(average)
        allowed = ALARM * float(self.scale) + np.maximum(habit, 4 * np.sqrt(habit))
        return np.abs(counts - average) > allowed, average + MEMORY * (counts - average)
