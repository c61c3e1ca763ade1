"""The watch: one noisy count of a step's events per coarse cell, which finds bursts where leaves are held.

Guarantee: epsilon-DP for one event, inserted or deleted, over the whole stream: it is in one cell of one step's counts.
Source: ours. A cell is hot where its count leaves its moving average by more than noise and habit explain.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.noise import NoiseSource, laplace_mechanism, scale_for
from engines.spatial.partition import Changes
from schemas.arrays import BoolArray, FloatArray, IntArray

ALARM = 8
"""Scales of noise by which a count must leave its average, at least."""
MEMORY = 0.3
"""Weight of the newest count in the average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Public constants; may be printed and logged.

    Args:
        epsilon: of one event. depth: of the cells. domain_depth: of the finest cells.
        missing: numbers of cells of `depth` that the domain has not, since a finest cell lies above; never counted.
    """

    epsilon: Fraction
    depth: int
    domain_depth: int
    missing: tuple[int, ...] = ()

    @property
    def scale(self) -> Fraction:
        return scale_for(1, self.epsilon)

    def noisy(self, values: IntArray, noise: NoiseSource) -> IntArray:
        """The one way in which the watch sees events: `(cells,)` int64 private in, released out."""
        return laplace_mechanism(values, self.scale, noise)

    def step(self, changes: Changes, average: FloatArray, noise: NoiseSource) -> tuple[BoolArray, FloatArray]:
        """Count a step's events.

        Args:
            average: float64 moving averages of the cells that are there, or `(0,)` before the first count; released.
        Returns: `(2**depth,)` True where a cell is hot, and the averages now; safe to publish.
        """
        starts = np.arange((1 << self.depth) + 1) << (self.domain_depth - self.depth)
        events = changes.net_between(starts)
        there = np.ones(len(events), np.bool_)
        there[list(self.missing)] = False
        counts = self.noisy(events[there], noise)
        hot = np.zeros(len(events), np.bool_)
        if not len(average):
            return hot, counts.astype(np.float64)
        habit = np.abs(average)
        allowed = ALARM * float(self.scale) + np.maximum(habit, 4 * np.sqrt(habit))
        hot[there] = np.abs(counts - average) > allowed
        return hot, average + MEMORY * (counts - average)
