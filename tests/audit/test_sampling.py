"""The statistics of `tests.sampling`: what it states about its errors holds.

Null hypothesis of the Monte Carlo tests: the mechanism is exactly as private as it claims. Fixed seeds: they fail
always or never.
"""

from __future__ import annotations

import doctest
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import tests.sampling
from engines.core.noise import NoiseSource, discrete_laplace, seeded
from schemas.arrays import BoolArray
from schemas.errors import EngineInputError
from tests.sampling import FEWEST, ceiling, coins, epsilon_shown, lower, sampled


def response(there: BoolArray, epsilon: float, source: NoiseSource) -> BoolArray:
    """Randomised response: the coin, right with probability e^epsilon / (1 + e^epsilon)."""
    uniform = source.words(there.size).astype(np.float64) / 2.0**64
    return np.where(uniform < 1 / (1 + np.exp(-epsilon)), there, ~there)


@pytest.mark.parametrize("runs", [1, 7, 60])
@pytest.mark.parametrize("alpha", [1e-6, 0.05])
def test_the_one_sided_bound_covers_exactly(runs: int, alpha: float) -> None:
    """For every probability the bound fails on counts of total probability at most alpha: summed, not sampled."""
    hits = np.arange(runs + 1)
    low = lower(hits, runs, alpha=alpha)
    for p in np.concatenate([np.linspace(0.001, 0.999, 57), low[1:]]):
        mass = stats.binom.pmf(hits, runs, p)
        assert mass[low > p * (1 + 1e-9)].sum() <= alpha * (1 + 1e-6)
    assert low[0] == 0.0


def test_epsilon_of_guesses_is_rarely_too_high() -> None:
    """Randomised response at its claim, alpha 0.1: summed over all outcomes."""
    epsilon, runs, alpha = 1.0, 60, 0.1
    right = np.arange(runs + 1)
    bounds = epsilon_shown(right, runs, watched=runs, alpha=alpha)
    mass = stats.binom.pmf(right, runs, 1 / (1 + np.exp(-epsilon)))
    assert mass[bounds > epsilon].sum() <= alpha
    assert mass[bounds > 0.2].sum() > 0.5  # and it has power


@pytest.mark.parametrize("abstain", [0.0, 0.7])
def test_coins_that_a_delta_gives_away_are_allowed_for(abstain: float) -> None:
    """The worst (epsilon, delta) mechanism on one coin, alpha 0.1: the coin with probability delta, else randomised
    response, on some of which the adversary passes. Summed over leaks, guesses and right ones.
    """
    epsilon, delta, runs, alpha = 1.0, 0.05, 60, 0.1
    p = 1 / (1 + np.exp(-epsilon))
    wrong = 0.0
    for leaked in range(runs + 1):
        for made in range(runs - leaked + 1):
            chance = stats.binom.pmf(leaked, runs, delta) * stats.binom.pmf(made, runs - leaked, 1 - abstain)
            if chance < 1e-12:
                continue
            right = np.arange(made + 1)
            bounds = epsilon_shown(right + leaked, made + leaked, watched=runs, alpha=alpha, delta=delta)
            wrong += chance * stats.binom.pmf(right, made, p)[bounds > epsilon].sum()
    assert wrong <= alpha


def test_many_coins_in_one_answer_need_no_independence() -> None:
    """Exact, for a mechanism whose answers mix its coins: the parity of two and the first of them, each by randomised
    response. The best guess of both is right no more often than of two independent ones.
    """
    epsilon = 1.0
    p = 1 / (1 + np.exp(-epsilon / 2))  # each coin is in two answers, at half of epsilon each
    answers = [(parity, first) for parity in (0, 1) for first in (0, 1)]
    law = {}
    for one in (0, 1):
        for two in (0, 1):
            for parity, first in answers:
                kept = (p if parity == one ^ two else 1 - p) * (p if first == one else 1 - p)
                law[one, two, parity, first] = kept / 4
    both = sum(max(law[(*bits, *answer)] for bits in answers) for answer in answers)
    assert both <= (1 / (1 + np.exp(-epsilon))) ** 2 + 1e-12


def test_choosing_a_rule_costs_no_confidence() -> None:
    """Alpha 0.2: of 100 audits of an honest mechanism at most 0.2 may exceed in expectation; 42 or more have
    probability 2.3e-7 under the null. A rule chosen on the runs that it is tried on would exceed far more often.
    """
    exceeded, chosen_there = 0, 0
    for trial in range(100):
        there = coins(400, seeded(trial).child("coins"))
        scores = there + discrete_laplace(400, Fraction(1), seeded(trial))
        exceeded += sampled(scores, there, alpha=0.2).epsilon > 1
        chosen_there += sampled(np.tile(scores[:200], 2), np.tile(there[:200], 2), alpha=0.2).epsilon > 1
    assert exceeded < 42
    assert chosen_there > exceeded


@pytest.mark.parametrize("upwards", [True, False])
def test_a_total_leak_reaches_the_ceiling(upwards: bool) -> None:
    """So the stated ceiling is attained, whichever way the score tells."""
    there = coins(400, seeded(4))
    found = sampled(there == upwards, there)
    assert found.made == found.right == found.guesses == 200
    assert found.epsilon == pytest.approx(ceiling(200))
    assert found.ceiling == ceiling(200)


def test_a_rare_score_that_tells_all_is_guessed_alone() -> None:
    """One run in ten says that the unit is there; the others are noise, on which it passes."""
    there = coins(4000, seeded(4))
    scores = np.where(there & (np.arange(4000) % 5 == 0), 9.0, coins(4000, seeded(5)))
    found = sampled(scores, there)
    assert found.made == found.right < 300
    assert found.epsilon > 2.5


def test_scores_without_any_coin_show_nothing() -> None:
    there = coins(4000, seeded(4))
    assert sampled(discrete_laplace(4000, Fraction(1), seeded(5)), there).epsilon == 0.0
    assert sampled(np.zeros(4000), there).epsilon == 0.0


def test_a_fault_is_seen_and_the_claim_is_not() -> None:
    """Randomised response at 1.74, 60 times: seen in 95 %; fewer than 40 have probability below 1e-9. At its claim:
    more than one has probability 2e-9.
    """
    claim, runs = 1.0, 1000
    seen = dict.fromkeys((1.74, claim), 0)
    for epsilon in seen:
        for trial in range(60):
            there = coins(runs, seeded(trial).child("coins"))
            seen[epsilon] += sampled(response(there, epsilon, seeded(trial)), there).epsilon > claim
    assert seen[claim] <= 1
    assert max(seen.values()) >= 40


def test_delta_is_taken_off_what_is_right() -> None:
    """A mechanism that gives its coin away with probability delta keeps (0, delta)."""
    runs, delta = 4000, 0.1
    there = coins(runs, seeded(1))
    given = np.where(np.arange(runs) % 10 == 0, np.where(there, 1, -1), 0)
    assert sampled(given, there, delta=delta).epsilon == 0.0
    assert sampled(given, there).epsilon > 1.0


def test_what_cannot_be_guessed_is_refused() -> None:
    there = coins(FEWEST, seeded(1))
    sampled(np.zeros(FEWEST), there)
    for scores in (np.zeros(FEWEST - 1), np.full(FEWEST, np.nan), np.zeros((FEWEST, 1))):
        with pytest.raises(EngineInputError, match="one for each coin"):
            sampled(scores, there)
    with pytest.raises(EngineInputError):
        sampled(np.zeros(FEWEST - 1), there[1:])


def test_the_examples_are_right() -> None:
    assert doctest.testmod(tests.sampling) == doctest.TestResults(failed=0, attempted=8)
