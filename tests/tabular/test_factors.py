"""Factors of all pairs: their algebra beside slow twins, and what they see that no pair shows by itself."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from engines.tabular.growing import factors
from engines.tabular.growing.factors import blended, inverses, low_rank
from engines.tabular.marginals import Marginals

ATTRIBUTES, SIZE = 12, 4
ONES = Marginals((SIZE,) * ATTRIBUTES, tuple((a,) for a in range(ATTRIBUTES)))
PAIRS = Marginals((SIZE,) * ATTRIBUTES, tuple(combinations(range(ATTRIBUTES), 2)))
MARGINS = np.full(ONES.cells, 250.0)


def hidden(sign: float = 1.0) -> np.ndarray:
    """Residuals of one factor that is in every attribute."""
    loadings = np.tile([8.0, 3.0, -3.0, -8.0], ATTRIBUTES)
    true = np.zeros(PAIRS.cells)
    for index, (left, right) in enumerate(PAIRS.cliques):
        parts = (loadings[ONES.offsets[a] : ONES.offsets[a + 1]] for a in (left, right))
        PAIRS.table(true, index)[:] = sign * np.outer(*parts)
    return true


def explained(true: np.ndarray, deviation: float, seed: int = 1) -> np.ndarray:
    noisy = true + np.random.default_rng(seed).normal(0, deviation, PAIRS.cells)
    return low_rank(noisy, np.full(len(PAIRS), deviation**2), MARGINS, pairs=PAIRS, ones=ONES)


def test_inverses_are_those_of_the_library() -> None:
    roots = np.random.default_rng(0).normal(size=(5, 6, 9))
    matrices = np.einsum("nik,njk->nij", roots, roots)
    assert np.allclose(inverses(matrices), np.linalg.inv(matrices))


def test_the_product_with_the_evidence_is_that_of_the_whole_matrix() -> None:
    # A workload that lacks pairs, and an attribute in none of them.
    sizes, cliques = (2, 3, 4, 2), ((0, 1), (1, 2))
    pairs, ones = Marginals(sizes, cliques), Marginals(sizes, ((0,), (1,), (2,), (3,)))
    tables = np.random.default_rng(2).normal(size=pairs.cells)
    whole = np.zeros((ones.cells, ones.cells))
    for index, (left, right) in enumerate(cliques):
        rows, columns = (slice(ones.offsets[a], ones.offsets[a + 1]) for a in (left, right))
        whole[rows, columns] = pairs.table(tables, index)
        whole[columns, rows] = pairs.table(tables, index).T
    vectors = np.random.default_rng(3).normal(size=(ones.cells, 2))
    assert np.allclose(factors._Evidence(tables, pairs, ones).times(vectors), whole @ vectors)


def test_a_factor_is_found_that_noise_hides_in_every_pair() -> None:
    """Noise has two thirds of the energy of every pair; a few per cent of it are in one direction of them all."""
    true = hidden()
    found = explained(true, 45.0)
    energy = (true * true).sum()
    assert ((found - true) ** 2).sum() < 0.15 * energy
    # What shrinking cell by cell could reach at best, knowing the true energy: by far less.
    assert 45.0**2 / (45.0**2 + energy / PAIRS.cells) > 0.5


def test_noise_alone_has_no_factors() -> None:
    # The noise's own energy is 45^2 a cell; by one seed, and with the reach of factors never learnt.
    found = explained(np.zeros(PAIRS.cells), 45.0)
    assert (found * found).mean() < 0.02 * 45.0**2


def test_ties_that_no_factor_gives_are_none() -> None:
    """All pairs opposed: a factor would have to oppose itself."""
    found = explained(hidden(-1.0), 10.0)
    assert abs((found * hidden()).sum()) < 0.2 * (hidden() ** 2).sum()


def test_each_pair_shows_which_explanation_is_its_own() -> None:
    random = np.random.default_rng(4)
    one, other = random.normal(0, 50, PAIRS.cells), random.normal(0, 50, PAIRS.cells)
    first = PAIRS.spread(np.arange(len(PAIRS)) % 2.0)
    residual = one * first + other * (1 - first)
    sure = blended(residual, np.full(len(PAIRS), 1e-6), one, other, pairs=PAIRS)
    assert np.allclose(sure, residual, atol=1e-3)
    unsure = blended(residual, np.full(len(PAIRS), 1e12), one, other, pairs=PAIRS)
    assert np.allclose(unsure, (one + other) / 2, atol=1e-3)
