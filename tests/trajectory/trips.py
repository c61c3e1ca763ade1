"""Trips that the trajectory engine is tested on."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from engines.trajectory.trips import LATTICE, Trips
from schemas.arrays import FloatArray, IntArray

COORDINATE = st.one_of(st.integers(0, LATTICE - 1), st.sampled_from([0, LATTICE // 2 - 1, LATTICE // 2, LATTICE - 1]))
TRIP = st.lists(st.tuples(COORDINATE, COORDINATE), min_size=1, max_size=40)
"""Trips that stay, jump over the whole box, and come back; one point and many."""


def trips_of(points: list[list[tuple[int, int]]]) -> Trips:
    x, y = np.array([point for trip in points for point in trip], np.int64).reshape(-1, 2).T
    return Trips(x, y, np.append(0, np.cumsum([len(trip) for trip in points])).astype(np.int64))


def without(trips: Trips, trip: int) -> Trips:
    """All trips but one: the neighbouring input."""
    keep = trips.owners != trip
    return Trips(trips.x[keep], trips.y[keep], np.append(0, np.cumsum(np.delete(trips.sizes, trip))))


def ways(start: FloatArray, end: FloatArray, sizes: IntArray) -> Trips:
    """Straight ways of so many points between places of the unit square, `(trips, 2)` each."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    part = (rank / np.maximum(np.repeat(sizes, sizes) - 1, 1))[:, None]
    points = np.clip((start[owner] * (1 - part) + end[owner] * part) * LATTICE, 0, LATTICE - 1).astype(np.int64)
    return Trips(points[:, 0], points[:, 1], np.append(0, np.cumsum(sizes)))
