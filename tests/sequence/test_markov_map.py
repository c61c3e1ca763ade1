"""MAP counts are the global optimum: no solver does better, and what must hold at an optimum holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from scipy.special import digamma

from benchmarks.papers.markov import objective
from engines.markov.chain import likeliest, project
from engines.markov.paper import map_counts
from schemas.errors import EngineInputError
from tests.examples import examples

EASY = settings(max_examples=examples(1.2))


def slsqp(noisy: np.ndarray, prior: np.ndarray, total: float, rate: float) -> np.ndarray:
    """The same problem by SciPy, with the analytic gradient, from the prior mean."""

    def value(r: np.ndarray) -> float:
        return objective(np.maximum(r, 0.0), noisy, prior, rate)

    def gradient(r: np.ndarray) -> np.ndarray:
        return rate * np.sign(r - noisy) - np.log(prior) + digamma(np.maximum(r, 0.0) + 1)

    whole: Any = {"type": "eq", "fun": lambda r: r.sum() - total, "jac": lambda r: np.ones(len(r))}
    found = minimize(
        value,
        total * prior,
        jac=gradient,
        bounds=[(0, total)] * len(noisy),
        constraints=whole,
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 30},
    )
    return project(found.x, total)


def problem(seed: int, states: int) -> tuple[np.ndarray, np.ndarray, float, float]:
    rng = np.random.default_rng(seed)
    prior = np.maximum(rng.dirichlet(np.full(states, rng.choice([0.2, 1.0, 5.0]))), 1e-9)
    prior /= prior.sum()
    total = float(rng.integers(1, 60) * states)
    scale = float(rng.choice([0.3, 4.0, 60.0]))
    noisy = np.round(rng.multinomial(int(total), prior) + rng.laplace(0, scale, states))
    return noisy, prior, total, 1 / scale


@EASY
@given(seed=st.integers(0, 10**6), states=st.integers(1, 12))
def test_slsqp_never_finds_a_better_objective(seed: int, states: int) -> None:
    noisy, prior, total, rate = problem(seed, states)
    ours = map_counts(noisy, prior, total, rate)
    assert abs(ours.sum() - total) <= 1e-9 * total
    assert ours.min() >= 0
    theirs = slsqp(noisy, prior, total, rate)
    # The entropy-like term has slope up to ln(total / prior): a rounding error in the sum may be worth that much.
    slack = 1e-9 * total * (rate + 40)
    assert objective(ours, noisy, prior, rate) <= objective(theirs, noisy, prior, rate) + slack


@pytest.mark.parametrize("seed", [1])
def test_slsqp_never_does_better_at_60_states(seed: int) -> None:
    noisy, prior, total, rate = problem(seed, 60)
    ours, theirs = map_counts(noisy, prior, total, rate), slsqp(noisy, prior, total, rate)
    assert objective(ours, noisy, prior, rate) <= objective(theirs, noisy, prior, rate) + 1e-6


@EASY
@given(seed=st.integers(0, 10**6), states=st.integers(2, 300))
def test_moving_a_little_between_two_states_never_helps(seed: int, states: int) -> None:
    noisy, prior, total, rate = problem(seed, states)
    ours = map_counts(noisy, prior, total, rate)
    best = objective(ours, noisy, prior, rate)
    rng = np.random.default_rng(seed + 1)
    for step in (1e-3, 0.1, 1.0):
        for _ in range(10):
            giver, taker = rng.choice(states, 2, replace=False)
            moved = ours.copy()
            amount = min(step, moved[giver])
            moved[giver] -= amount
            moved[taker] += amount
            assert objective(moved, noisy, prior, rate) >= best - 1e-7


def test_a_structural_zero_stays_empty_and_an_unmeasured_state_follows_the_prior() -> None:
    noisy = np.array([40.0, 30.0, 0.0])
    counts = map_counts(noisy, np.array([0.0, 0.5, 0.5]), 50.0, np.array([0.5, 0.5, 0.0]))
    assert counts[0] == 0
    assert counts.sum() == pytest.approx(50)
    assert counts[1] == pytest.approx(25.0, abs=5.1)
    assert counts[1] > 25
    assert objective(noisy, noisy, np.array([0.0, 0.5, 0.5]), 0.5) == float("inf")
    with pytest.raises(EngineInputError, match="positive probability"):
        map_counts(noisy, np.zeros(3), 50.0, 0.5)


@EASY
@given(noisy=st.lists(st.integers(-30, 60), min_size=1, max_size=6), total=st.integers(1, 80))
def test_the_projection_is_a_maximum_likelihood_solution(noisy: list[int], total: int) -> None:
    y = np.array(noisy, np.float64)
    ours = likeliest(y, total, unseen=False)
    size = len(y)
    # min sum d with d >= |y - r|: the L1 problem as a linear program.
    bounds = np.block([[-np.eye(size), -np.eye(size)], [np.eye(size), -np.eye(size)]])
    best = linprog(
        np.r_[np.zeros(size), np.ones(size)],
        A_ub=bounds,
        b_ub=np.r_[-y, y],
        A_eq=np.r_[np.ones(size), np.zeros(size)][None],
        b_eq=[total],
    )
    assert ours.min() >= 0
    assert ours.sum() == pytest.approx(total)
    assert np.abs(ours - y).sum() == pytest.approx(best.fun, abs=1e-6)


def test_those_who_are_unseen_take_what_is_missing() -> None:
    assert likeliest(np.array([3.0, -2.0]), 10, unseen=True).tolist() == [3.0, 0.0, 7.0]
    assert likeliest(np.array([9.0, 5.0]), 10, unseen=True).tolist() == [7.0, 3.0, 0.0]
