"""Leakage against brute force over all pairs of rows and sets of states; budgets against the curve they must hold."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from engines.markov.leakage import Adversary, Correlation, allocate, fixed_point, reversed_chain
from schemas.errors import EngineInputError

PAPER = np.array([[0.0, 0.0, 1.0], [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])


def smoothed(s: float) -> np.ndarray:
    return (PAPER + s) / (PAPER + s).sum(axis=1, keepdims=True)


def brute(matrix: np.ndarray, leakage: float) -> float:
    best = 0.0
    for q, d in itertools.permutations(matrix, 2):
        for chosen in itertools.product([False, True], repeat=len(matrix)):
            pair = [1 + row[list(chosen)].sum() * np.expm1(leakage) for row in (q, d)]
            best = max(best, float(np.log(pair[0] / pair[1])))
    return best


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("leakage", [0.01, 0.5, 4.0])
def test_one_step_is_the_worst_of_all_pairs_and_sets(seed: int, leakage: float) -> None:
    rng = np.random.default_rng(seed)
    states = int(rng.integers(2, 6))
    matrix = rng.dirichlet(np.ones(states), states)
    matrix[:, 0] += 1e-3
    matrix[rng.random(matrix.shape) < 0.3] = 0.0
    matrix[:, -1] += 1e-3
    matrix /= matrix.sum(axis=1, keepdims=True)
    assert Correlation.from_matrix(matrix).step(leakage) == pytest.approx(brute(matrix, leakage), abs=1e-9)


def test_the_two_extremes() -> None:
    still, never = Adversary.from_matrix(np.eye(3)), Adversary.from_matrix(np.full((3, 3), 1 / 3))
    assert still.curve([0.2] * 5).total == pytest.approx([1.0] * 5)
    assert never.curve([0.2] * 5).total == pytest.approx([0.2] * 5)
    assert still.supremum(0.2) is None
    assert never.supremum(0.2) == pytest.approx(0.2)


def test_large_leakage_does_not_overflow_and_many_states_take_the_bound() -> None:
    assert Correlation.from_matrix(smoothed(0.01)).step(5000.0) <= 5000.0
    assert Correlation.from_matrix(np.eye(200)).step(0.3) == 0.3
    assert Adversary.from_matrix(np.full((200, 200), 1 / 200)).curve([0.1, 0.1]).total == pytest.approx([0.2, 0.2])


def test_the_reversal_is_bayes_rule_in_the_long_run() -> None:
    matrix = smoothed(0.1)
    rng = np.random.default_rng(4)
    pi = np.linalg.matrix_power(matrix, 500)[0]
    pairs = np.zeros((3, 3))
    at = rng.choice(3, 200_000, p=pi)
    after = (rng.random(len(at))[:, None] > np.cumsum(matrix, axis=1)[at]).sum(axis=1)
    np.add.at(pairs, (after, at), 1)
    before = reversed_chain(matrix)
    assert before is not None
    assert np.abs(pairs / pairs.sum(axis=1, keepdims=True) - before).max() < 0.01  # 6 standard errors
    assert reversed_chain(np.eye(2)) is None
    assert reversed_chain(np.array([[0.5, 0.5], [0.0, 1.0]])) is None


@pytest.mark.parametrize("s", [0.005, 0.1, 1.0])
@pytest.mark.parametrize("horizon", [1, 2, 3, 10, 60])
def test_no_step_of_a_finite_horizon_leaks_more_than_alpha(s: float, horizon: int) -> None:
    adversary = Adversary.from_matrix(smoothed(s))
    made = allocate(Fraction(1), adversary, horizon=horizon)
    totals = adversary.curve([float(made.at(step)) for step in range(horizon)]).total
    assert totals.max() <= 1.0
    assert totals.max() > 0.75
    assert sum(made.at(step) for step in range(horizon)) >= Fraction(99, 100)  # an even share is always possible


@pytest.mark.parametrize("s", [0.005, 0.1, 1.0])
def test_an_endless_stream_approaches_alpha_from_below(s: float) -> None:
    adversary = Adversary.from_matrix(smoothed(s))
    made = allocate(Fraction(1), adversary, horizon=None)
    supremum = adversary.supremum(float(made.middle))
    assert supremum is not None
    assert 0.9999 < supremum <= 1.0
    assert adversary.curve([float(made.middle)] * 3000).total.max() <= supremum + 1e-9
    assert fixed_point(adversary.forward, float(made.middle) * 1.1, above=100.0) is not None
    worse = adversary.supremum(float(made.middle) * 1.01)
    assert worse is None or worse > 1.0


def test_where_users_stay_for_ever_an_endless_stream_is_refused_and_a_finite_one_shares_evenly() -> None:
    adversary = Adversary.from_matrix(np.eye(3))
    with pytest.raises(EngineInputError, match="declare a horizon"):
        allocate(Fraction(1), adversary, horizon=None)
    made = allocate(Fraction(1), adversary, horizon=10)
    assert float(made.first) == float(made.middle) == float(made.last) == pytest.approx(0.1)
    with pytest.raises(EngineInputError, match="alpha must be positive"):
        allocate(Fraction(0), adversary, horizon=10)
