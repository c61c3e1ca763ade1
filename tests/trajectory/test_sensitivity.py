"""A trip weighs at most one in every histogram: exactly, in integers, whatever the trip looks like."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.checks.contract_case import contract_case
from engines.core.accounting import gaussian
from engines.core.registry import build_engine
from engines.core.shares import PureShares
from engines.spatial.split import SplitRule
from engines.trajectory.build import shares as shares_of
from engines.trajectory.default.mode import Default
from engines.trajectory.default.questions import COUNT_SHARE, FEW_TRIPS, MANY_TRIPS, Plan
from engines.trajectory.engine import TripMode
from engines.trajectory.histograms import UNIT, equal_shares
from engines.trajectory.papers.hierarchy import margins
from engines.trajectory.papers.paper_trees import Paper, end_weighted_shares
from tests.examples import examples

MODES: list[TripMode] = [Default(), Paper(), Paper(spread="exponential")]


@given(parts=st.integers(1, 1 << 40))
def test_equal_shares_add_up_to_one_trip_at_most(parts: int) -> None:
    assert parts * int(equal_shares(np.array([parts]))[0]) <= UNIT


@given(number=st.integers(1, 3000))
def test_end_weighted_shares_add_up_to_one_trip_at_most_and_favour_the_ends(number: int) -> None:
    shares = end_weighted_shares(np.full(number, number), np.arange(number))
    assert shares.min() >= 0
    assert UNIT - number <= shares.sum() <= UNIT
    assert np.array_equal(shares, shares[::-1])
    assert np.all(np.diff(shares[: (number + 1) // 2]) <= 0)


@pytest.mark.parametrize("mode", MODES, ids=repr)
def test_shares_add_up_to_epsilon(mode: TripMode) -> None:
    assert sum(mechanism.epsilon for mechanism in mode.mechanisms(PureShares(Fraction(1, 3)))) == Fraction(1, 3)


@pytest.mark.parametrize("plan", [MANY_TRIPS, FEW_TRIPS])
def test_whatever_the_plan_the_price_is_the_same(plan: Plan) -> None:
    assert COUNT_SHARE + sum(plan.shares.values()) == 1


def path_losses(shares: np.ndarray, scores: np.ndarray, rule: SplitRule) -> float:
    """Exact log-ratio of a tree whose nodes all split, with a trip of these shares of each node and without it."""
    total = 0.0
    for depth in range(len(shares).bit_length()):
        nodes = slice(2**depth - 1, 2 ** (depth + 1) - 1)
        odds = []
        for score in (scores[nodes] + shares[nodes], scores[nodes]):
            scaled = margins(score, depth=depth, rule=rule) / 2**20 / float(rule.scale)
            odds.append(np.where(scaled >= 0, -scaled - np.log(2), np.log1p(-np.exp(np.minimum(scaled, 0)) / 2)))
        total += float((odds[0] - odds[1]).sum())
    return total


@settings(max_examples=examples(4))
@given(
    epsilon=st.sampled_from([Fraction(1, 20), Fraction(3, 10), Fraction(1), Fraction(4)]),
    leaves=st.lists(st.integers(0, 3 * UNIT), min_size=16, max_size=16),
    parts=st.lists(st.integers(0, 1000), min_size=16, max_size=16).filter(any),
    crowd=st.integers(0, 60),
)
def test_a_trip_in_many_leaves_costs_the_tree_no_more_than_one_in_one_leaf(
    epsilon: Fraction, leaves: list[int], parts: list[int], crowd: int
) -> None:
    """Exact loss over a whole tree, not over a path: shares of one trip lie in all of its leaves."""
    share = np.array(parts, np.int64) * UNIT // sum(parts)
    score = np.array(leaves, np.int64) + crowd * UNIT // 4
    levels = [(share, score)]
    while len(levels[0][0]) > 1:
        levels.insert(0, tuple(values.reshape(-1, 2).sum(axis=1) for values in levels[0]))
    shares, scores = (np.concatenate([level[side] for level in levels]) for side in (0, 1))
    assert path_losses(shares, scores, SplitRule(epsilon=epsilon, fanout=2)) <= float(epsilon) + 1e-9


@pytest.mark.parametrize(
    ("privacy", "times"),
    [
        ({"max_per_step": 2}, 6**2 + 1),
        ({"max_per_step": None}, 49),
        ({"max_per_step": 1}, 2 * 9 + 1),
        ({"max_per_step": 3, "max_contributions": 20}, 2 * 81 + 4),
        ({"max_per_step": 2, "per": "2h"}, 16 + 9),
        ({"per": "9h", "max_per_step": 1}, 2 * 9 + 1),
    ],
)
def test_a_unit_costs_the_promise_however_it_is_bounded(privacy: Mapping[str, Any], times: int) -> None:
    """Under any bounds the guarantee comes to all of mu^2. A trip lasts three steps, and has one part in so many."""
    bounds = {"delta": 1e-6, "epsilon": 2.0, "max_contributions": 7, **privacy}
    made = contract_case("trajectory").stream(
        "default", {"privacy": bounds, "options": {"idle": "2h", "longest": "2h", "side": 4}}
    )
    guarantee = build_engine(made).guarantee()
    assert guarantee.mu_squared == times * shares_of(made).whole
    most = gaussian.mu_for(made.privacy.epsilon_fraction, made.privacy.delta) ** 2
    assert 0.999999 < float(guarantee.mu_squared or 0) / most <= 1
