"""The coarse grid that trips are compared with: what a trip weighs in it, and that its trips are near the truth."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.trajectory import FARTHEST, SHARES, coarse_histograms, fine_histogram, grid_trips
from engines.core.noise import seeded
from engines.trajectory.engine import Limits
from engines.trajectory.grid import Grid
from engines.trajectory.histograms import UNIT
from engines.trajectory.trips import LATTICE, Trips
from tests.examples import examples
from tests.trajectory.trips import TRIP, trips_of, without


def moved(trips: Trips, *, out: int, grid: Grid) -> list[int]:
    """What a trip weighs in each histogram, in units of 2**-20 trips."""
    parts = np.full(grid.size, 3)
    with_it, other = (
        [*coarse_histograms(some, grid), fine_histogram(some, grid, parts)] for some in (trips, without(trips, out))
    )
    return [int(np.abs(a.counts - b.counts).sum()) for a, b in zip(with_it, other, strict=True)]


@settings(max_examples=examples(1.2))
@given(points=st.lists(TRIP, min_size=1, max_size=4), out=st.integers(0, 3))
def test_one_trip_moves_each_histogram_by_one_trip_at_most(points: list[list[tuple[int, int]]], out: int) -> None:
    assert max(moved(trips_of(points), out=out % len(points), grid=Grid(6))) <= UNIT


@pytest.mark.parametrize("size", [2, 255, 256, 2000])
@pytest.mark.parametrize("end", [0, LATTICE * FARTHEST // 25, LATTICE - 1])
def test_so_does_a_trip_of_any_length(size: int, end: int) -> None:
    way = [(int(x), 0) for x in np.linspace(0, end, size)]
    assert max(moved(trips_of([way, way]), out=0, grid=Grid(20))) <= UNIT


def test_shares_add_up_to_one() -> None:
    assert sum(SHARES.values()) == 1


def test_trips_are_within_the_limits_repeatable_and_about_as_many() -> None:
    """The deviation of the number is below 30 at epsilon 1."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 40, 3000)
    x, y = rng.integers(0, LATTICE // 3, (2, int(sizes.sum())))
    trips = Trips(x, y, np.append(0, np.cumsum(sizes)))
    made, again = (
        grid_trips(trips, epsilon=Fraction(1), limits=Limits(points=50, moves=20), noise=seeded(1)) for _ in range(2)
    )
    assert np.array_equal(made.x, again.x)
    assert abs(len(made) - 3000) < 300
    assert int(made.sizes.max()) <= 21
    assert (made.x < LATTICE // 2).mean() > 0.8
    assert len(grid_trips(Trips.none(), epsilon=Fraction(1), limits=Limits(), noise=seeded(2))) < 300
