"""What `make bench-price` makes of its runs, and what it runs that is no engine of ours."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.price import adaptive_grid, trips
from benchmarks.price.adaptive_grid import AdaptiveGrid, overlaps, reconciled
from benchmarks.price.report import price
from benchmarks.price.tree_fit import Measured, TreeModel, fitted
from benchmarks.results import Results, Run
from benchmarks.trajectory.data import joined
from engines.core.noise import seeded
from engines.trajectory.trips import LATTICE, Trips

EPSILON = Fraction(1)
X, Y = (np.random.default_rng(seed).beta(2, 5, 4_000) for seed in (1, 2))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[np.ndarray, Fraction]]:
    """What the adaptive grid has counted, and for what epsilon; no noise is added."""
    every: list[tuple[np.ndarray, Fraction]] = []

    def exact(counts: np.ndarray, epsilon: Fraction, noise: object) -> np.ndarray:
        every.append((counts, epsilon))
        return counts.astype(float)

    monkeypatch.setattr(adaptive_grid, "noisy", exact)
    return every


def test_the_adaptive_grid_spends_epsilon_on_a_point(asked: list[tuple[np.ndarray, Fraction]]) -> None:
    AdaptiveGrid(EPSILON).densities(X, Y, lines=64, noise=seeded(1))
    # A point is in one cell of each vector, so that an epsilon is what its vector costs it.
    assert [int(counts.sum()) for counts, _ in asked] == [len(X)] * len(asked)
    assert sum(epsilon for _, epsilon in asked) == EPSILON


def test_the_noise_of_the_adaptive_grid_is_that_of_its_epsilon() -> None:
    """The variance of 40,000 draws is within 5 % but for one run in far more than a million."""
    found = adaptive_grid.noisy(np.zeros(40_000, np.int64), Fraction(1, 2), seeded(3)).var()
    assert found == pytest.approx(2 * np.exp(0.5) / np.expm1(0.5) ** 2, rel=0.05)


def test_the_adaptive_grid_answers_by_points(asked: list[tuple[np.ndarray, Fraction]]) -> None:
    lines = 60
    found = AdaptiveGrid(EPSILON).densities(X, Y, lines=lines, noise=seeded(1))
    assert found.sum() == pytest.approx(len(X))
    # Ten coarse cells a side: six lines are one of them.
    true = np.histogram2d(X, Y, bins=10, range=[[0, 1], [0, 1]])[0]
    assert found.reshape(10, 6, 10, 6).sum(axis=(1, 3)) == pytest.approx(true)
    # The second level is finer where points are.
    assert len(asked[1][0]) > len(asked[0][0])
    finer = np.histogram2d(X, Y, bins=20, range=[[0, 1], [0, 1]])[0]
    even = np.kron(true / 4, np.ones((2, 2)))
    assert np.abs(found.reshape(20, 3, 20, 3).sum(axis=(1, 3)) - finer).sum() < 0.7 * np.abs(even - finer).sum()


def test_counts_are_reconciled_by_their_variances() -> None:
    assert reconciled(10.0, np.array([[4.0]]), Fraction(1, 2), Fraction(1, 2)) == pytest.approx(7.0)
    # Four cells' sum has four times the variance.
    cells = reconciled(10.0, np.zeros((2, 2)), Fraction(1, 2), Fraction(1, 2))
    assert cells.sum() == pytest.approx(8.0)
    assert reconciled(10.0, np.zeros((2, 2)), Fraction(1, 4), Fraction(3, 4)).sum() == pytest.approx(40 / 13)


def test_parts_of_a_cell_share_out_over_lines() -> None:
    total = np.zeros(64)
    for place in range(7):
        start, shares = overlaps(place, 7, 3, 64)
        assert shares.sum(axis=1) == pytest.approx(1.0)
        total[start : start + shares.shape[1]] += shares.sum(axis=0)
    # 21 parts over 64 lines.
    assert total == pytest.approx(21 / 64)


# --- The model that AIM fits ------------------------------------------------------------------------------------------

SIZES = (3, 2, 4, 2, 3)
EDGES = ((0, 1), (1, 2), (2, 3), (1, 3))


@pytest.fixture(scope="module")
def chain() -> np.ndarray:
    """1,000 rows of a distribution that is a product over `EDGES`; the last attribute is alone."""
    random = np.random.default_rng(5)
    joint = np.ones(SIZES)
    for edge in EDGES:
        shape = [SIZES[a] if a in edge else 1 for a in range(5)]
        joint = joint * random.uniform(0.2, 1, int(np.prod(shape))).reshape(shape)
    joint = joint * np.array([0.5, 0.3, 0.2])
    return joint * 1000 / joint.sum()


def of_joint(joint: np.ndarray, clique: tuple[int, ...]) -> np.ndarray:
    return np.asarray(joint.sum(axis=tuple(a for a in range(5) if a not in clique)))


def test_a_trees_marginals_are_those_of_the_joint_distribution() -> None:
    random = np.random.default_rng(6)
    cliques = ((0, 1), (1, 2), (2, 3), (3,), (1, 3))
    potentials: dict[tuple[int, ...], np.ndarray] = {
        clique: random.normal(0, 2, [SIZES[a] for a in clique]) for clique in cliques
    }
    joint = np.zeros(SIZES)
    for clique, potential in potentials.items():
        joint = joint + potential.reshape([SIZES[a] if a in clique else 1 for a in range(5)])
    joint = np.exp(joint)
    model = TreeModel(SIZES, potentials, 50.0, 1.0)
    assert len(model.tree) == 3
    for pair in combinations(range(5), 2):
        assert model.marginal(pair) == pytest.approx(of_joint(joint, pair) * 50 / joint.sum())


def test_a_fit_finds_the_distribution_it_was_shown(chain: np.ndarray) -> None:
    shown = [Measured((4,), of_joint(chain, (4,)).ravel(), 2.0)]
    model = None
    for edge in EDGES:
        shown.append(Measured(edge, of_joint(chain, edge).ravel(), 1.0))
        model = fitted(SIZES, shown, model)
    for _ in range(3):
        model = fitted(SIZES, shown, model)
    assert model is not None
    assert model.total == pytest.approx(1000)
    for pair in combinations(range(5), 2):
        assert model.marginal(pair) == pytest.approx(of_joint(chain, pair), abs=3.0)
        assert model.marginal(pair[::-1]) == pytest.approx(model.marginal(pair).T)
    drawn = model.rows(20_000, np.random.default_rng(1))
    found = np.histogramdd(drawn, bins=SIZES, range=[(-0.5, size - 0.5) for size in SIZES])[0] / 20
    for pair in combinations(range(5), 2):
        assert np.abs(of_joint(found, pair) - of_joint(chain, pair)).max() < 15


def test_the_better_measurement_weighs_more() -> None:
    shown = [Measured((0,), np.array([10.0, 90.0]), 1.0), Measured((0,), np.array([90.0, 10.0]), 3.0)]
    found = fitted((2,), shown, None).marginal((0,))
    assert found == pytest.approx([18.0, 82.0], abs=0.5)


# --- Prices and trips -------------------------------------------------------------------------------------------------


def test_a_price_is_over_the_best_rival_of_each_figure(tmp_path: Path) -> None:
    results = Results(tmp_path / "price.csv")
    values = {
        ("ours", 0): (2.0, 3.0),
        ("ours", 1): (4.0, 6.0),
        ("good at a", 0): (1.0, 9.0),
        ("good at a", 1): (2.0, 9.0),
        ("good at b", 0): (7.0, 6.0),
        ("good at b", 1): (7.0, 6.0),
    }
    for (method, seed), (a, b) in values.items():
        results.add(Run("map", "somewhere", method, seed), {"a": a, "b": b})
    again = Results(tmp_path / "price.csv")
    found = price(again, "map", "ours", ("good at a", "good at b", "not run"), ("a", "b"))
    assert found is not None
    # 3 / 1.5 and 4.5 / 6; of the seeds alone 2 and 1/2, 2 and 1.
    assert found.mean == pytest.approx(1.5**0.5)
    assert found.by_data == {"somewhere": pytest.approx(1.5**0.5)}
    assert found.by_figure == {"a": pytest.approx(2.0), "b": pytest.approx(0.75)}
    assert found.spread == pytest.approx((2**0.5 - 1) / 2**0.5)
    only = price(results, "map", "ours", ("good at a",), ("a", "b"))
    assert only is not None
    assert only.mean == pytest.approx((2 * 4.5 / 9) ** 0.5)
    assert price(results, "trips", "ours", ("good at a",), ("a",)) is None


def test_trips_are_dealt_once_and_survive_the_rivals_file() -> None:
    random = np.random.default_rng(2)
    sizes = random.integers(1, 6, 50)
    x, y = random.integers(0, LATTICE, (2, int(sizes.sum())))
    every = Trips(x, y, np.append(0, np.cumsum(sizes)))
    dealt = trips.windows_of(every, 4, seed=0)
    assert [len(window) for window in dealt] == [13, 13, 12, 12]

    def places(of: Trips) -> list[tuple[int, ...]]:
        return sorted(tuple(of.x[a:b].tolist() + of.y[a:b].tolist()) for a, b in pairwise(of.offsets.tolist()))

    assert places(joined(dealt)) == places(every)
    again = trips.read(trips.written(every))
    assert again.sizes.tolist() == every.sizes.tolist()
    assert np.abs(again.x - every.x).max() <= 1
