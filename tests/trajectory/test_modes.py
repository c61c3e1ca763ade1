"""Every mode on ordinary and extraordinary trips: what comes out is made of trips, repeatable, and near the truth."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from engines.core.noise import NoiseSource, seeded
from engines.core.shares import PureShares
from engines.trajectory.default import mode as default_mode
from engines.trajectory.default.mode import Default
from engines.trajectory.default.points import positioned
from engines.trajectory.engine import Limits, Synthesis, TripMode
from engines.trajectory.grid import Grid, passed, paths_of
from engines.trajectory.metrics import Truth
from engines.trajectory.papers.paper_trees import Paper
from engines.trajectory.trips import LATTICE, Trips
from engines.trajectory.walks import Errands, EvenGraph, walk
from schemas.arrays import IntArray
from tests.trajectory.trips import ways

MODES: list[TripMode] = [Default(), Paper(), Paper(spread="exponential")]


def commuters(count: int, *, seed: int = 3) -> Trips:
    """Walks from one town to another, in steps of about a hundredth of the box."""
    rng = np.random.default_rng(seed)
    towns = np.array([[0.2, 0.3], [0.7, 0.6], [0.3, 0.8]])
    start, end = (towns[rng.integers(0, 3, count)] + rng.normal(0, 0.03, (count, 2)) for _ in range(2))
    sizes = rng.integers(5, 40, count)
    return ways(start, end, sizes)


def released(mode: TripMode, trips: Trips, *, seed: int = 1, limits: Limits | None = None) -> Synthesis:
    return mode.synthesise(trips, shares=PureShares(Fraction(1)), limits=limits or Limits(), noise=seeded(seed))


ODD = {
    "no trips": Trips.none(),
    "one trip": commuters(1),
    "one point": Trips(np.array([5]), np.array([LATTICE - 1]), np.array([0, 1])),
    "standing still": Trips(np.zeros(900, np.int64), np.zeros(900, np.int64), np.arange(0, 901, 3)),
    "teleports": Trips(np.tile([0, LATTICE - 1], 500), np.tile([LATTICE - 1, 0], 500), np.arange(0, 1001, 10)),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("mode", MODES, ids=repr)
def test_odd_trips_give_a_release_within_the_limits(mode: TripMode, name: str) -> None:
    for seed in range(3):
        trips = released(mode, ODD[name], seed=seed, limits=Limits(points=50, moves=20)).trips
        assert int(trips.sizes.max(initial=0)) <= 50
        assert len(trips) < 5000


def test_default_is_close_to_the_truth_and_closer_than_the_paper() -> None:
    """Not statistical: fixed seeds. At 8,000 trips the order of both is not in doubt (factors of 1.9 and more), and the
    number of ours has a deviation below 100 at epsilon 1: ten of them.
    """
    trips = commuters(8000)
    truth, made = Truth.of(trips), [released(mode, trips).trips for mode in (Default(), Paper())]
    assert abs(len(made[0]) - 8000) < 1000
    ours, theirs = map(truth.errors, made)
    assert ours["FP_ARE"] < 0.6 * theirs["FP_ARE"]
    assert ours["QE"] < 0.5 * theirs["QE"]
    assert max(truth.errors(trips).values()) == 0


@pytest.mark.parametrize(("trips", "some", "every"), [(40, 2, True), (20_000, 4, False)])
def test_weights_of_moves_follow_what_was_measured_and_no_noise(
    monkeypatch: pytest.MonkeyPatch, trips: int, some: int, every: bool
) -> None:
    """Of few trips the noise has more moves than they: walks drawn once more come no closer to it."""
    corrections: list[int] = []

    def counted(errands: Errands, graph: EvenGraph, noise: NoiseSource) -> IntArray:
        corrections.append(len(errands.moves))
        return walk(errands, graph, noise)

    monkeypatch.setattr(default_mode, "walk", counted)
    released(Default(side=20), commuters(trips))
    drawn = len(corrections) - 1  # the last ones are the trips' own
    assert (drawn <= some) if every else (drawn >= some)


def test_a_walk_without_a_point_in_a_passed_cell_is_the_same_path_and_without_another_one_is_not() -> None:
    grid, width = Grid(12), LATTICE // 12
    rng = np.random.default_rng(5)
    steps = np.array([[1, 1], [1, 0], [0, 1], [1, -1], [0, -1]])
    for _ in range(200):
        way = np.clip(np.cumsum(np.concatenate([[[3, 5]], steps[rng.integers(0, 5, 7)]]), axis=0), 0, 11)
        cells = way[:, 0] * 12 + way[:, 1]
        if (np.diff(cells) == 0).any():
            continue
        there = passed(cells, np.array([0, len(cells)]), grid)
        for left_out in range(1, len(cells) - 1):
            x, y = np.delete(way, left_out, axis=0).T * width + width // 2
            filled = paths_of(Trips(x, y, np.array([0, len(x)])), grid, max_moves=99).cells
            assert np.array_equal(filled, cells) == there[left_out]


def test_walks_start_and_end_where_they_are_told_and_only_step_to_neighbours() -> None:
    grid = Grid(12)
    rng = np.random.default_rng(1)
    starts, ends = rng.integers(0, grid.size, (2, 500))
    moves = grid.hops(starts, ends) + rng.integers(2, 9, 500)
    targets = grid.neighbours()
    weights = rng.random(targets.shape) * (targets >= 0)
    errands = Errands(starts, ends, moves)
    cells = walk(errands, EvenGraph(targets, weights, rng.random((8, 8)) + 0.1), seeded(4))
    assert np.array_equal(cells[errands.offsets[:-1]], starts)
    assert np.array_equal(cells[errands.offsets[1:] - 1], ends)
    owner = np.repeat(np.arange(500), moves + 1)
    inside = owner[1:] == owner[:-1]
    assert np.all(grid.hops(cells[:-1], cells[1:])[inside] == 1)


def test_paths_are_walks_through_the_cells_of_their_trips() -> None:
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 9, 400)
    x, y = rng.integers(0, LATTICE, (2, int(sizes.sum())))
    trips, grid = Trips(x, y, np.append(0, np.cumsum(sizes))), Grid(20)
    paths = paths_of(trips, grid, max_moves=10**6)
    inside = paths.owners[1:] == paths.owners[:-1]
    assert np.all(grid.hops(paths.cells[:-1], paths.cells[1:])[inside] == 1)
    assert np.array_equal(np.bincount(paths.owners, paths.points), sizes)
    visited = np.repeat(paths.cells, paths.points)
    assert np.array_equal(visited, grid.cells(x, y))
    short = paths_of(trips, grid, max_moves=7)
    assert np.array_equal(short.moves, np.minimum(paths.moves, 7))


def test_trips_that_come_back_end_in_their_first_fine_cell_or_in_another_one_as_they_are_told() -> None:
    """With and without moves; whichever fine cells are likely, even where one holds nearly all."""
    grid, fine, count = Grid(4), Grid(16), 400
    rng = np.random.default_rng(3)
    home = rng.integers(0, grid.size, count)
    sizes = np.where(np.arange(count) % 2, 1, 3)
    offsets = np.append(0, np.cumsum(sizes))
    paths = np.repeat(home, sizes)
    away = np.flatnonzero(sizes == 3)
    paths[offsets[away] + 1] = np.where(home[away] % 4 == 3, home[away] - 1, home[away] + 1)
    together = rng.random(count) < 0.5
    shares = rng.random((grid.size, 16)) ** 8
    trips = positioned(paths, offsets, np.full(len(paths), 5), together, shares=shares, grid=grid, noise=seeded(2))
    ends = fine.cells(trips.x, trips.y)
    first, last = ends[trips.offsets[:-1]], ends[trips.offsets[1:] - 1]
    assert np.array_equal(grid.cells(trips.x, trips.y), np.repeat(paths, 5))
    assert np.array_equal(first == last, together)
