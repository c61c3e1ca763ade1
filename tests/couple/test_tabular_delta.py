"""What synthetic tables with a delta claim, under forced outputs: a unit costs the promised mu squared.

No false alarms: losses are worked out from the laws that were drawn, nothing is sampled but inputs and outputs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from agents.local.coupling.claims import Claim
from agents.local.coupling.mutants import every_site, mutated
from engines.checks.coupling import CouplingBroken, Losses
from engines.core.registry import build_engine
from schemas.config import Stream
from schemas.errors import BudgetError
from tests.couple.planted import OWN_INPUTS
from tests.couple.plants import Plant
from tests.couple.plants.tabular_delta import PLANTS
from tests.couple.table_pairs import Wild, couple
from tests.couple.table_streams import DELETES, Event, batches, random_events, random_user, stream

STEPS = 18
MANY = {"delta": 1e-5, "epsilon": 1.0, "max_contributions": 10}
STEADY: list[Event] = [(at, (at % 2, at % 3, 0), 40_000) for at in range(STEPS)]
"""Enough for blocks of every kind to close at any of these budgets."""
ABSENT = (1, 0, 1)


def configured(privacy: Mapping[str, Any], more: Mapping[str, Any] = {}) -> Stream:
    return stream("default", {**more, "privacy": privacy, "options": {"records": False, **more.get("options", {})}})


def share(made: Stream, events: list[Event], user: list[Event], *, reach: int | None = None) -> float:
    """Of the claim, what a user costs. Raises: CouplingBroken."""
    steps = 1 + max(step for step, _, _ in [*events, *user])
    both = batches(events, steps), batches([*events, *user], steps)
    adversary = None if reach is None else Wild(1, reach)
    losses = Losses.of(couple(partial(build_engine, made), *both, adversary=adversary, restarts={2, 9}))
    return Claim.of(made).share(losses)


@pytest.mark.parametrize("more", [{}, {"domain": {"ttl": "3h"}}, DELETES, {"options": {"ways": [1, 2, 3]}}])
def test_one_event_costs_what_is_promised_and_no_more(more: Mapping[str, Any]) -> None:
    made = configured({"delta": 1e-6, "unit": "event", "user": None, "max_contributions": None}, more)
    shares = [share(made, STEADY, [(step, ABSENT, 1)]) for step in (0, 5, 12)]
    assert max(shares) <= 1
    assert max(shares) > 0.9999


@pytest.mark.parametrize("privacy", [MANY, {"delta": 1e-3, "max_contributions": 2}])
def test_all_of_a_users_events_in_one_row_cost_what_is_promised(privacy: Mapping[str, Any]) -> None:
    """The dearest arrangement: in other rows or blocks the shifts are not of the same counts."""
    made = configured(privacy)
    together = share(made, STEADY, [(4, ABSENT, made.changes)])
    apart = share(made, STEADY, [(step, (step % 2, step % 3, 0), 1) for step in range(made.changes)])
    assert apart < together <= 1
    assert together > 0.9999


@pytest.mark.parametrize("reach", [None, 40, 1000])
@pytest.mark.parametrize("more", [{}, DELETES])
def test_neighbours_release_the_same_at_no_more_than_the_claim(more: Mapping[str, Any], reach: int | None) -> None:
    made, chance = configured(MANY, more), random.Random(f"{more} {reach}")
    events = random_events(chance, STEPS, deletes=bool(more))
    user = random_user(chance, STEPS, made.changes, deletes=bool(more))
    assert 0 < share(made, events, user, reach=reach) <= 1


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_planted_fault_is_found(plant: Plant) -> None:
    made = stream("default", plant.variant)
    user = [(4, ABSENT, made.changes)]
    assert share(made, STEADY, user) <= 1
    # Or it is found before: noise that is not what is declared, mechanisms that cost more than is claimed.
    with plant.planted(), suppress(CouplingBroken, BudgetError):
        assert share(made, STEADY, user) > 1


def test_half_the_noise_of_totals_costs_more_than_is_promised() -> None:
    """They have a twelfth of the budget: pairs of random inputs seldom use enough of the rest for it to show."""
    (site,) = [site for site in every_site() if site.function in OWN_INPUTS]
    made = configured({"delta": 1e-6, "unit": "event", "user": None, "max_contributions": None})
    assert share(made, STEADY, [(0, ABSENT, 1)]) <= 1
    with mutated(site), suppress(BudgetError):
        assert share(made, STEADY, [(0, ABSENT, 1)]) > 1
