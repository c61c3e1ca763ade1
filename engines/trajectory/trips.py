"""Trips as an engine sees them: points on a public lattice over the box, one trip after the other, in order of time.

Privacy: knows no data but what it is handed. A trip's points depend on that trip's records and public bounds only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.core.noise import aggregate
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError

LATTICE_BITS = 20
"""The box has 2**20 x 2**20 lattice points; finer differences of position are not kept."""
LATTICE = 1 << LATTICE_BITS


@dataclass(frozen=True, slots=True, eq=False)
class Trips:
    """Trips of at least one point each. Private, or synthetic: the type does not say.

    Attributes:
        x, y: `(points,)` int64 lattice coordinates, 0 to 2**20 - 1.
        offsets: `(trips + 1,)` int64; the points of trip i are those from offsets[i] to offsets[i + 1].
    Raises: EngineInputError if the arrays do not fit together.

    >>> trips = Trips(np.array([1, 2, 3]), np.array([0, 0, 9]), np.array([0, 2, 3]))
    >>> len(trips), trips.sizes.tolist()
    (2, [2, 1])
    """

    x: IntArray
    y: IntArray
    offsets: IntArray

    def __post_init__(self) -> None:
        if self.offsets.ndim != 1 or self.x.shape != self.y.shape or self.x.ndim != 1:
            raise EngineInputError("x, y and offsets must be vectors, x and y of one length")
        if not len(self.offsets) or self.offsets[0] != 0 or self.offsets[-1] != len(self.x):
            raise EngineInputError("offsets must start at 0 and end at the number of points")
        if len(self.offsets) > 1 and int(self.sizes.min()) < 1:
            raise EngineInputError("a trip must have at least one point")
        for values in (self.x, self.y):
            if len(values) and (int(values.min()) < 0 or int(values.max()) >= LATTICE):
                raise EngineInputError("points must lie on the lattice")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> IntArray:
        """Points of each trip, `(trips,)`."""
        return np.diff(self.offsets)

    def middles(self, bounds: tuple[float, float, float, float]) -> tuple[FloatArray, FloatArray]:
        """Return x and y of the middles of the points' lattice steps, in a box of these bounds and in their unit."""
        xmin, ymin, xmax, ymax = bounds
        x, y = self.x + np.float64(0.5), self.y + np.float64(0.5)
        return xmin + x * ((xmax - xmin) / LATTICE), ymin + y * ((ymax - ymin) / LATTICE)

    @property
    def owners(self) -> IntArray:
        """The trip of each point, `(points,)`."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @staticmethod
    def none() -> Trips:
        return Trips(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(1, np.int64))

    @aggregate
    def first(self, points: int) -> Trips:
        """Cut each trip to its first `points` points."""
        sizes = np.minimum(self.sizes, points)
        if np.array_equal(sizes, self.sizes):
            return self
        rank = np.arange(len(self.x)) - np.repeat(self.offsets[:-1], self.sizes)
        keep = rank < points
        return Trips(self.x[keep], self.y[keep], np.append(0, np.cumsum(sizes)))
