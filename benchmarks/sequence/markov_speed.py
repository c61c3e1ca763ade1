"""Time of a MAP step beside SciPy's SLSQP with the analytic gradient, and of a filter step."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import digamma

from benchmarks.size import sized
from engines.markov.chain import Transition, project
from engines.markov.filters import Collective, DiagonalFilter
from engines.markov.paper import map_counts, objective

RATE = 0.25
FEW, MANY = sized((100, 10_000), smallest=(10, 100))


def milliseconds(work: Callable[[], object], repeats: int) -> float:
    """Median over repeats."""
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(taken))


def problem(seed: int, states: int) -> tuple[np.ndarray, np.ndarray, float]:
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.ones(states))
    total = 100 * states
    return np.round(rng.multinomial(total, prior) + rng.laplace(0, 1 / RATE, states)), prior, float(total)


def map_speed(*, quick: bool) -> dict[str, float]:
    """Speed-up at 100 states, how much SLSQP's objective lies above ours at least, and a step of 10,000 states."""
    ours, theirs, gaps = [], [], []
    for seed in range(3 if quick else 10):
        noisy, prior, total = problem(seed, FEW)
        ours.append(milliseconds(lambda p=(noisy, prior, total): map_counts(*p, RATE), 5))
        begin = time.perf_counter()
        found = minimize(
            lambda r, y=noisy, p=prior: objective(np.maximum(r, 0.0), y, p, RATE),
            np.full(FEW, total / FEW),
            jac=lambda r, y=noisy, p=prior: RATE * np.sign(r - y) - np.log(p) + digamma(np.maximum(r, 0.0) + 1),
            bounds=[(0, total)] * FEW,
            constraints={"type": "eq", "fun": lambda r, n=total: r.sum() - n, "jac": lambda r: np.ones(len(r))},
            method="SLSQP",
            options={"ftol": 1e-10, "maxiter": 500},
        )
        theirs.append(1e3 * (time.perf_counter() - begin))
        best = objective(map_counts(noisy, prior, total, RATE), noisy, prior, RATE)
        gaps.append(objective(project(found.x, total), noisy, prior, RATE) - best)
    noisy, prior, total = problem(1, MANY)
    return {
        "map_speedup": round(float(np.median(theirs) / np.median(ours)), 1),
        "map_slsqp_least_gap": float(f"{min(gaps):.3g}"),
        "map_ms_10000": round(milliseconds(lambda: map_counts(noisy, prior, total, RATE), 5), 2),
    }


def step_times(*, quick: bool) -> dict[str, float]:
    """A step of the filter at 10,000 states with some 59,000 moves: its update alone, and with a revision."""
    rng = np.random.default_rng(1)
    begin = np.repeat(np.arange(MANY), 8)
    end = (begin + rng.integers(-5, 6, len(begin))) % MANY
    moves = sparse.csr_array((np.ones(len(begin)), (begin, end)), shape=(MANY, MANY))
    chain = Transition.of(sparse.diags_array(1 / np.asarray(moves.sum(axis=1)).ravel()) @ moves)
    engine = DiagonalFilter(chain, 50.0 * MANY, np.ones(MANY, np.bool_))
    noisy = np.full(MANY, 50.0) + np.round(rng.laplace(0, 4, MANY))
    belief, _ = engine.update(engine.start(float(MANY)), noisy, 4.0)
    repeats = 5 if quick else 25
    alone = milliseconds(lambda: engine.update(engine.predict(belief), noisy, 4.0), repeats)
    estimator = Collective(engine, chain, 5)
    state = estimator.begin()
    for step in range(8):
        state, _ = estimator.observe(state, step, noisy, Fraction(4), last=False)
    whole = milliseconds(lambda: estimator.observe(state, 8, noisy, Fraction(4), last=False), repeats)
    return {"filter_ms_10000": round(alone, 2), "filter_and_smoother_ms_10000": round(whole, 2)}
