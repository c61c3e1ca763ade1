"""Fits: what they converge to, that they agree with each other and with mbi's own estimator, and who imports JAX."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import engines.tabular.papers
from engines.tabular.domain import Category, Impossible, TableDomain
from engines.tabular.papers.config import fitter_of
from engines.tabular.papers.fitting import JointFit, ModelFitter, Observed, tree_for
from engines.tabular.papers.model import JunctionTree
from schemas.errors import EngineInputError

SIZES = (3, 2, 4, 2)
PAIRS = list(combinations(range(4), 2))
CELLS = 64
NAMES = ["joint", "pgm"]


def domain(*impossible: Impossible, sizes: tuple[int, ...] = SIZES) -> TableDomain:
    attributes = (Category(field=f"a{i}", values=tuple(range(size))) for i, size in enumerate(sizes))
    return TableDomain(tuple(attributes), impossible)


def table(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).gamma(0.5, 100.0, SIZES)


def exact(joint: np.ndarray, clique: tuple[int, ...]) -> Observed:
    axes = tuple(a for a in range(joint.ndim) if a not in clique)
    return Observed(clique, joint.sum(axis=axes), 1.0)


def refitted(fitter: ModelFitter, observed: list[Observed], *, total: float, times: int) -> np.ndarray:
    potentials = fitter.initial()
    for _ in range(times):
        potentials = fitter.fit(potentials, observed, total=total)
    return potentials


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_reaches_exact_marginals(name: str) -> None:
    fitter = fitter_of(name, domain(), PAIRS, CELLS)
    joint = table(1)
    observed = [exact(joint, clique) for clique in fitter.marginals]
    beliefs = fitter.beliefs(refitted(fitter, observed, total=joint.sum(), times=20), total=joint.sum())
    for each in observed:
        np.testing.assert_allclose(beliefs.marginal(each.clique), each.counts, atol=joint.sum() * 2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_not_measured_stays_as_it_was(name: str) -> None:
    fitter = fitter_of(name, domain(), PAIRS, CELLS)
    before = fitter.fit(fitter.initial(), [exact(table(2), (0, 2))], total=100.0)
    marginal = fitter.beliefs(before, total=100.0).marginal((0, 2))
    # (1, 3) is made dependent: nothing about attributes 0 and 2 was said.
    after = fitter.fit(before, [Observed((1, 3), np.array([[50.0, 0.0], [0.0, 50.0]]), 1.0)], total=100.0)
    np.testing.assert_allclose(fitter.beliefs(after, total=100.0).marginal((0, 2)), marginal, atol=1e-6)
    assert fitter.beliefs(after, total=100.0).marginal((1, 3))[0, 0] == pytest.approx(50.0, abs=0.5)
    np.testing.assert_array_equal(fitter.fit(before, [], total=100.0), before)


@pytest.mark.parametrize("name", NAMES)
def test_noisier_measurements_count_for_less(name: str) -> None:
    fitter = fitter_of(name, domain(), [(0, 1), (1, 2), (1,)], CELLS)
    sure = Observed((0, 1), np.array([[30.0, 0.0], [30.0, 0.0], [30.0, 0.0]]), 0.01)
    unsure = Observed((1, 2), np.tile([[0.0], [22.5]], 4), 100.0)
    potentials = refitted(fitter, [sure, unsure], total=90.0, times=5)
    assert fitter.beliefs(potentials, total=90.0).marginal((1,))[0] > 85.0


@pytest.mark.parametrize("name", NAMES)
def test_structural_zeros_stay_zero(name: str) -> None:
    zero = Impossible(left=0, left_codes=(1, 2), right=2, right_codes=(0,))
    fitter = fitter_of(name, domain(zero), PAIRS, CELLS)
    noise = np.random.default_rng(3).normal(0, 30, (3, 4))
    potentials = fitter.initial()
    for _ in range(5):
        potentials = fitter.fit(potentials, [Observed((0, 2), 10 + noise, 1.0)], total=100.0)
    marginal = fitter.beliefs(potentials, total=100.0).marginal((0, 2))
    assert marginal[1:, 0].tolist() == [0.0, 0.0]
    assert marginal.sum() == pytest.approx(100.0)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_fit_gives_the_same_bytes(name: str) -> None:
    observed = [exact(table(4), (0, 2)), exact(table(5), (2, 3))]
    fits = []
    for _ in range(2):
        fitter = fitter_of(name, domain(), PAIRS, CELLS)
        fits.append(fitter.fit(fitter.initial(), observed, total=200.0))
    assert fits[0].tobytes() == fits[1].tobytes()
    assert fits[0].dtype == np.float64


def test_the_joint_table_and_the_graphical_model_agree() -> None:
    # With room for everything, the model is the joint table.
    rng = np.random.default_rng(6)
    joint = table(6)
    fits = []
    noisy = [Observed(c, exact(joint, c).counts + rng.laplace(0, 5, exact(joint, c).counts.shape), 50.0) for c in PAIRS]
    for name in NAMES:
        fitter = fitter_of(name, domain(), PAIRS, CELLS)
        potentials = refitted(fitter, noisy, total=joint.sum(), times=40)
        fits.append(fitter.beliefs(potentials, total=joint.sum()).marginal((0, 1, 2, 3)))
    np.testing.assert_allclose(fits[0], fits[1], atol=joint.sum() * 1e-3)


def test_no_doctest_is_passed_over_with_what_imports_jax() -> None:
    """pytest is told to look for none there."""
    assert ">>>" not in (Path(engines.tabular.papers.__file__).parent / "pgm.py").read_text(encoding="utf-8")


def test_a_fit_is_as_good_as_the_librarys_own() -> None:
    from engines.tabular.papers import pgm

    mbi = vars(pgm)["mbi"]
    rng = np.random.default_rng(7)
    joint = table(7)
    total = float(joint.sum())
    tree = JunctionTree.over(SIZES, [(0, 1), (1, 2), (2, 3)])
    fitter = pgm.PrivatePgm(domain(), tree, tuple(clique for clique in PAIRS if tree.holds(clique)))
    noisy = [
        Observed(c, exact(joint, c).counts + rng.laplace(0, 9, exact(joint, c).counts.shape), 162.0) for c in PAIRS
    ]
    held = [each for each in noisy if tree.holds(each.clique)]

    def loss(marginal: dict[tuple[int, ...], np.ndarray]) -> float:
        return sum(float(((marginal[each.clique] - each.counts) ** 2).sum()) / each.variance / 2 for each in held)

    ours = fitter.beliefs(refitted(fitter, held, total=total, times=10), total=total)
    measurements = [mbi.LinearMeasurement(each.counts.ravel(), each.clique, 162.0**0.5) for each in held]
    theirs = mbi.estimation.MirrorDescent().estimate(
        mbi.Domain(range(4), SIZES), measurements, known_total=total, iters=2_000
    )
    losses = [
        loss({each.clique: ours.marginal(each.clique) for each in held}),
        loss({each.clique: np.asarray(theirs.project(each.clique).datavector(flatten=False)) for each in held}),
    ]
    assert losses[0] <= losses[1] * 1.001 + 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_fitted_is_refused(name: str) -> None:
    fitter = fitter_of(name, domain(), [(0, 1)], CELLS)
    fine = exact(table(8), (0, 1))
    for observed, total in (([exact(table(8), (2, 3))], 1.0), ([fine, fine], 1.0), ([fine], 0.0)):
        with pytest.raises(EngineInputError):
            fitter.fit(fitter.initial(), observed, total=total)
    with pytest.raises(EngineInputError, match="positive"):
        fitter.fit(fitter.initial(), [Observed((0, 1), fine.counts, 0.0)], total=1.0)


def test_a_joint_table_that_is_too_large_is_refused_with_the_fix() -> None:
    with pytest.raises(EngineInputError, match=r"48 combinations.*model_cells = 47.*fit = 'pgm'"):
        fitter_of("joint", domain(), PAIRS, 47)
    zero = Impossible(left=0, left_codes=(0,), right=1, right_codes=(0,))
    with pytest.raises(EngineInputError, match="structural zeros"):
        JointFit(domain(zero), JunctionTree.over(SIZES, []), ()).initial()


def test_pairs_with_structural_zeros_are_in_the_tree() -> None:
    zero = Impossible(left=0, left_codes=(1,), right=2, right_codes=(0,))
    assert tree_for(domain(zero), [(0, 1)], max_cells=20).holds((0, 2))


def test_only_a_process_that_fits_with_it_imports_jax() -> None:
    program = "import sys, engines.core.registry, engines.tabular.papers.config; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
