"""What trips with a delta claim, under forced outputs: all trips of a user together cost the promised mu squared.

No false alarms: losses are worked out from the laws that were drawn, nothing is sampled but inputs and outputs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from agents.local.coupling.claims import Claim
from engines.checks.contract_case import contract_case
from engines.checks.coupling import CouplingBroken, Losses, Uses
from engines.core import shares
from engines.core.accounting import gaussian
from engines.core.registry import build_engine
from engines.core.shares import GaussianShares
from engines.trajectory.build import shares as shares_of
from engines.trajectory.default import questions
from engines.trajectory.default.questions import FEW_TRIPS, MANY_TRIPS, Plan, parts_of
from engines.trajectory.domain import Closing
from schemas.config import Stream
from schemas.errors import BudgetError
from tests.couple.plants.edits import edited
from tests.couple.plants.tabular_faults import together
from tests.couple.plants.trajectory_counts import period_forgotten
from tests.couple.trip_runs import Capricious, Magnifying, Trip, batches, coupled, drive, random_trips

CASE = contract_case("trajectory")
STEPS = 12
LIFE = 3
"""Steps in which the records of a trip pass."""
BOUNDS: Mapping[str, Any] = {"delta": 1e-6, "epsilon": 2.0, "max_contributions": 7, "max_per_step": 2}
"""So at most 6 of a user's 7 trips close in one step, and 6^2 + 1^2 times one trip's mu^2 is what they may cost."""
TIMES = 37
OTHERS = [drive(1, [(0.1, 0.1), (0.3, 0.1)]), drive(2, [(0.6, 0.6)])]
Way = list[tuple[float, float]]
STAYS, MOVES, TURNS = [(0.1, 0.1)], [(0.1, 0.1), (0.3, 0.1)], [(0.1, 0.1), (0.3, 0.1), (0.3, 0.3)]
"""Weigh one in one bin of every histogram but moves and turns; in one of moves; in one of turns."""


def stream(privacy: Mapping[str, Any] = {}, **options: Any) -> Stream:
    quiet = {"records": False, "idle": "2h", "longest": "2h", "side": 4, **options}
    return CASE.stream("default", {"privacy": {**BOUNDS, **privacy}, "options": quiet})


def dearest(way: Way, *, begin: int = 0, trips: int = 7, life: int = LIFE) -> list[Trip]:
    """As many trips as may be admitted from `begin` on, which close as many at once as can be, and all go one way."""
    made = []
    for number in range(trips):
        admitted = begin + number // 2
        late = begin + number // 2 // life * life + life - 1
        rows = drive(9, way, step=admitted, ends=False).rows
        # The same place and time again, in the step in which it ends.
        made.append(Trip(9, number, admitted, (*rows, (late, *rows[-1][1:4], 1))))
    return made


def pairs_of(made: Stream, user: list[Trip], *, times: int = 200_000) -> Uses:
    (pairs,) = coupled(
        partial(build_engine, made),
        batches([*OTHERS, *user], steps=STEPS),
        batches(OTHERS, steps=STEPS),
        adversary=Magnifying(times),
        restarts=[2, 5],
    )
    return pairs


def share(made: Stream, pairs: Uses) -> float:
    """Of the claim, what was paid."""
    return Claim.of(made).share(Losses.of(pairs))


@pytest.mark.parametrize(("plan", "times"), [(MANY_TRIPS, 200_000), (FEW_TRIPS, 1)], ids=["many", "few"])
def test_each_histogram_costs_a_users_trips_what_is_claimed_and_no_more(plan: Plan, times: int) -> None:
    """Trips all alike, and as many in one window as may be. Weights are rounded down to 2**-20 trips."""
    made = stream()
    parts, paid = parts_of(plan, shares_of(made)), dict.fromkeys(parts_of(plan, shares_of(made)), 0.0)
    for way in (STAYS, MOVES, TURNS):
        pairs = pairs_of(made, dearest(way), times=times)
        assert share(made, pairs) <= 1
        for name in paid:
            alone = Losses.of([pair for pair in pairs if pair[0].place == f"noise/{name}"])
            paid[name] = max(paid[name], float(alone.mu_squared))
    for name, part in parts.items():
        assert TIMES * float(part) * (1 - 1e-5) <= paid[name] <= TIMES * float(part), name


@pytest.mark.parametrize(
    ("privacy", "times"),
    [
        ({"max_per_step": None}, 49),
        ({"max_per_step": 1}, 2 * 9 + 1),
        ({"max_per_step": 3, "max_contributions": 20}, 2 * 81 + 4),
        ({"per": "2h"}, 16 + 9),
        ({"per": "9h", "max_per_step": 1}, 2 * 9 + 1),
    ],
)
def test_the_unit_costs_the_promise_however_it_is_bounded(privacy: Mapping[str, Any], times: int) -> None:
    """Under any bounds the guarantee comes to all of mu^2, and one trip has one part in so many of it."""
    made = stream(privacy)
    guarantee, spends = build_engine(made).guarantee(), shares_of(made)
    assert guarantee.mu_squared == times * spends.whole
    most = gaussian.mu_for(made.privacy.epsilon_fraction, made.privacy.delta) ** 2
    assert 0.999999 < float(guarantee.mu_squared or 0) / most <= 1


@pytest.mark.parametrize("per", [None, "7h"])
def test_random_trips_of_users_cost_no_more_whatever_is_released(per: str | None) -> None:
    """Users whose trips are spread, or admitted together; without a cap on steps, so that any arrangement may be."""
    made, chance = stream({"per": per, "max_per_step": None, "max_contributions": 3}), random.Random(str(per))
    engine = build_engine(made)
    trips = random_trips(chance, steps=STEPS, rules=engine.config.closing, users=12, each=3)  # type: ignore[attr-defined]
    gone = [[trip for trip in trips if trip.user == user and (not per or trip.admitted < 7)] for user in (1, 2, 3)]
    found = coupled(
        partial(build_engine, made),
        batches(trips, steps=STEPS),
        *(batches([trip for trip in trips if trip not in some], steps=STEPS) for some in gone),
        adversary=Capricious(1, most=9000),
    )
    assert all(0 < share(made, pairs) <= 1 for pairs in found)


def life_forgotten() -> AbstractContextManager[Any]:
    """As if trips closed in the step of their admission."""
    return patch.object(Closing, "together", lambda rules, trips, per_step: min(trips, per_step or trips))


def cap_forgotten() -> AbstractContextManager[Any]:
    """As if each of a user's trips closed in a step of its own, and an account that agrees with it."""
    return together(
        edited(GaussianShares, "whole", "self.changes, self.together", "self.changes, 1"),
        edited(GaussianShares, "mu_squared_of", "share * self._times", "share * self.changes"),
    )


def squares_forgotten() -> AbstractContextManager[Any]:
    """A budget that is divided by what one step may hold, and not by the squares of all of them."""
    return edited(GaussianShares, "whole", "self.changes, self.together", "self.together, 1")


def shares_of_epsilon() -> AbstractContextManager[Any]:
    """A histogram has noise for the root of its share, as if mu added up and not its square."""
    return edited(questions, "parts_of", "shares.whole * share", "shares.whole * Fraction(float(share) ** 0.5)")


def half_noise() -> AbstractContextManager[Any]:
    original = shares.sigma_squared_of
    return patch.object(shares, "sigma_squared_of", lambda moved, cost: original(moved, cost) / 4)


@pytest.mark.parametrize(
    "fault", [nullcontext, life_forgotten, cap_forgotten, squares_forgotten, shares_of_epsilon, half_noise]
)
def test_a_planted_fault_is_found(fault: Callable[[], AbstractContextManager[Any]]) -> None:
    made = stream()
    # Or it is found before: mechanisms that cost more than is claimed.
    with fault(), suppress(CouplingBroken, BudgetError):
        assert (share(made, pairs_of(made, dearest(MOVES))) > 1) == (fault is not nullcontext)


@pytest.mark.parametrize("fault", [nullcontext, period_forgotten])
def test_trips_that_outlive_their_period_would_be_found(fault: Callable[[], AbstractContextManager[Any]]) -> None:
    """Then windows of one period measure trips of two: those of the one, and all that its own bounds allow."""
    made = stream({"per": "4h", "max_contributions": 4})
    # Two begin in the last step of a period and never end; then there are four that end in step 5.
    user = [
        *(drive(9, MOVES, step=3, number=50 + at, ends=False) for at in (0, 1)),
        *dearest(MOVES, begin=4, trips=4, life=2),
    ]
    with fault():
        pairs = [pair for pair in pairs_of(made, user) if 4 <= pair[0].step < 8]
    assert (share(made, pairs) > 1) == (fault is period_forgotten)
