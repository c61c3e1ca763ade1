"""The Markov comparators against their definitions, and against each other as [cao2023] has them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.papers.markov import likeliest_counts, prior_mean
from benchmarks.sequence.markov_chains import METHODS, WORLDS, errors

CHAIN = np.array([[0.8, 0.2, 0.0], [0.0, 0.7, 0.3], [0.3, 0.0, 0.7]])
NOISY = np.array([[30.0, 24.0, -4.0], [20.0, 20.0, 25.0], [61.0, -9.0, 3.0]])


def test_likeliest_counts_are_those_that_no_other_ones_are_nearer_to() -> None:
    found = likeliest_counts(NOISY, 50.0)
    assert found.sum(axis=1) == pytest.approx([50, 50, 50])
    assert found.min() >= 0
    others = 50 * np.random.default_rng(1).dirichlet(np.ones(3), 20_000)
    for noisy, counts in zip(NOISY, found, strict=True):
        assert np.abs(counts - noisy).sum() <= np.abs(others - noisy).sum(axis=1).min() + 1e-9


def test_the_prior_mean_follows_the_chain_from_the_first_step_alone() -> None:
    first = np.array([28.0, 22.0, 0.0])
    moved = [first @ np.linalg.matrix_power(CHAIN, step) for step in range(3)]
    assert prior_mean(NOISY, 50.0, CHAIN) == pytest.approx(np.array(moved))
    assert prior_mean(NOISY, 50.0, CHAIN, even=True)[0] == pytest.approx(np.full(3, 50 / 3))
    assert np.array_equal(prior_mean(NOISY[[0, 2, 1]], 50.0, CHAIN), prior_mean(NOISY, 50.0, CHAIN))


def test_methods_stand_as_in_the_committed_table() -> None:
    """Sticky chain, epsilon .5; ratios to MAP are about 1.3 (MLE), 2.9 (prior mean), .47 (Kalman) and .41 (default)."""
    found = [errors(WORLDS[3], seed, (Fraction(1, 2),) * WORLDS[3].steps, list(METHODS.values())) for seed in range(4)]
    mean = {name: np.mean([each[name] for each in found]) for name in METHODS}
    assert mean["default"] < mean["kalman"] < 0.7 * mean["MAP"]
    assert mean["MAP"] < mean["MLE"] < mean["raw"]
    assert mean["MAP"] < mean["prior mean"]
