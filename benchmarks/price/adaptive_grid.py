"""AG, the adaptive grid of [qardaji2013], on all points at once: a batch rival of spatial streams.

m1 x m1 cells are counted with half of epsilon, each is cut into m2 x m2 by its noisy count, those are counted with the
other half, and both counts are reconciled by their variances (section IV-C). As in the paper the number of points sets
m1 and is not paid for, which favours it, and answers take points as even inside a cell. Guarantee: epsilon-DP for one
point but for that number.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, sqrt

import numpy as np

from engines.core.noise import NoiseSource, laplace_mechanism, scale_for

LEAST = 10
FIRST, SECOND = 10, 5
"""The paper's constants c and c2 = c/2."""


@dataclass(frozen=True, slots=True)
class AdaptiveGrid:
    """Args: epsilon: of one point."""

    epsilon: Fraction

    @property
    def shares(self) -> tuple[Fraction, Fraction]:
        """Of both levels; alpha is 1/2."""
        return self.epsilon / 2, self.epsilon / 2

    def densities(self, x: np.ndarray, y: np.ndarray, *, lines: int, noise: NoiseSource) -> np.ndarray:
        """`(lines, lines)` noisy points of each cell of an even grid, real numbers.

        Args: x, y: `(points,)` in the unit square.
        """
        first, second = self.shares
        side = max(LEAST, ceil(sqrt(len(x) * float(self.epsilon) / FIRST) / 4))
        column, row = np.minimum((x * side).astype(int), side - 1), np.minimum((y * side).astype(int), side - 1)
        cell = column * side + row
        counts = noisy(np.bincount(cell, minlength=side * side), first, noise.child("first"))
        parts = np.maximum(1, np.ceil(np.sqrt(np.maximum(counts, 0) * float(second) / SECOND)).astype(int))
        # All finer cells in one vector, one after another: parts x parts of each coarse one.
        offsets = np.append(0, np.cumsum(parts**2))
        fine_x, fine_y = (
            np.minimum(((value * side - place) * parts[cell]).astype(int), parts[cell] - 1)
            for value, place in ((x, column), (y, row))
        )
        at = offsets[cell] + fine_x * parts[cell] + fine_y
        fine = noisy(np.bincount(at, minlength=int(offsets[-1])), second, noise.child("second"))
        found = np.zeros((lines, lines))
        for index, count in enumerate(counts.tolist()):
            m = int(parts[index])
            cells = reconciled(count, fine[offsets[index] : offsets[index + 1]].reshape(m, m), first, second)
            left, low = divmod(index, side)
            (x0, across), (y0, up) = (overlaps(left, side, m, lines), overlaps(low, side, m, lines))
            found[x0 : x0 + across.shape[1], y0 : y0 + up.shape[1]] += across.T @ cells @ up
        return found


def noisy(counts: np.ndarray, epsilon: Fraction, noise: NoiseSource) -> np.ndarray:
    """Counts of cells that a point is in one of."""
    return np.asarray(laplace_mechanism(counts.astype(np.int64), scale_for(1, epsilon), noise), np.float64)


def reconciled(count: float, cells: np.ndarray, first: Fraction, second: Fraction) -> np.ndarray:
    """Cells that add up to the mean of both estimates of their sum, weighted by variances 1/first^2, m^2/second^2."""
    trust = float(first) ** 2, float(second) ** 2 / cells.size
    total = (trust[0] * count + trust[1] * cells.sum()) / sum(trust)
    return np.asarray(cells + (total - cells.sum()) / cells.size)


def overlaps(place: int, side: int, parts: int, lines: int) -> tuple[int, np.ndarray]:
    """The first line's cell that a coarse cell meets, and `(parts, cells)` shares of each part that lie in each."""
    edges = (place + np.arange(parts + 1) / parts) / side * lines
    start, end = int(edges[0]), min(lines, ceil(edges[-1] - 1e-9))
    cells = np.arange(start, end)
    low, high = np.maximum(edges[:-1, None], cells), np.minimum(edges[1:, None], cells + 1)
    return start, np.maximum(high - low, 0) * side * parts / lines
