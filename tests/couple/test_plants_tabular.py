"""Planted faults of synthetic tables: each is found, and the same runs without it are clean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

import pytest

from engines.checks.contract_checks import ContractBroken, check_words_are_used_once
from engines.checks.coupling import CouplingBroken, check_guarded
from engines.core.noise import NoiseSource
from engines.core.noise.private import PrivateValueRead
from engines.core.registry import build_engine
from schemas.config import Stream
from schemas.errors import BudgetError
from tests.couple.plants import Plant
from tests.couple.plants.tabular import HIDDEN, PEEKS, PLANTS
from tests.couple.table_pairs import SEED, SLACK, certain_cost, claimed_cost, couple
from tests.couple.table_streams import Event, batches, stream

pytestmark = pytest.mark.seconds(0.4)

STEPS = 12
RESTARTS = {2, 9}
EPSILON = {"default": 4.0, "paper": 0.5}
"""Of one event: in mode `default` blocks of every kind close within the steps below."""


def steady(*, deletes: bool) -> list[Event]:
    """Few rows while a stream is early, then many; one row is never there."""
    events: list[Event] = [(0, (0, 0, 0), 12), (1, (1, 1, 0), 9), (2, (0, 2, 1), 12)]
    for step in range(3, STEPS):
        events += [(step, (0, 0, 0), 160), (step, (1, 1, 0), 90), (step, (1, 2, 1), 7 + step)]
    return [*events, (5, (0, 0, 0), -40), (9, (1, 1, 0), -30)] if deletes else events


UNDONE: list[Event] = [(0, (0, 0, 0), -50), (0, (1, 0, 0), 60)]
"""One more row of the first kind undoes a delete of `smokes`, which leads by far, and adds to `age` and `city`."""


def tied(more: int) -> list[Event]:
    """`smokes` and `age` have scores of which one more row of the first kind moves one down and one up."""
    return [(0, (0, 0, 0), -50), (0, (1, 0, 0), 50), (0, (1, 0, 1), 50 + more), (0, (1, 1, 1), -50 - more)]


def streamed(mode: str, variant: Mapping[str, Any]) -> Stream:
    quick = {} if mode == "default" else {"rounds": 2, "records": False}
    return stream(mode, {**variant, "options": {**quick, **variant.get("options", {})}}, epsilon=EPSILON[mode])


Scene = tuple[list[Event], list[Event], int]
"""Events, those that the neighbour has besides, and how many changes these are."""


def scenes(configured: Stream) -> list[Scene]:
    absent = (1, 0, 1)
    events = steady(deletes=configured.domain.operation_field is not None)
    if configured.domain.operation_field is None:
        charge = configured.insert_charge
        return [(events, [(0, absent, 1)], charge), (events, [(4, (0, 0, 0), 1), (9, absent, 1)], 2 * charge)]
    undone: list[Scene] = [(UNDONE, [(0, (0, 0, 0), 1)], 1), (UNDONE, [(0, (1, 0, 0), 1)], 1)]
    return [*undone, *((tied(more), [(0, (0, 0, 0), 1)], 1) for more in range(8)), (events, [(8, absent, -1)], 1)]


def excess(configured: Stream, scene: Scene) -> float:
    """What a neighbour costs beyond the claim, as a share of it: choices, counts, or both. Raises: CouplingBroken."""
    events, user, changes = scene
    steps = 1 + max(step for step, _, _ in [*events, *user])
    both = batches(events, steps), batches([*events, *user], steps)
    cost = certain_cost(couple(partial(build_engine, configured), *both, restarts=RESTARTS))
    guarantee = build_engine(configured).guarantee()
    claim, whole = claimed_cost(guarantee), changes * float(configured.event_epsilon)
    return max(
        cost.total / whole,
        cost.counts / (changes * claim.counts),
        cost.choices / (changes * claim.choices) if claim.choices else 0.0,
        float(guarantee.spent / configured.event_epsilon),
    ) - 1  # fmt: skip


def found(configured: Stream) -> bool:
    for scene in scenes(configured):
        try:
            if excess(configured, scene) > 0.01:
                return True
        except CouplingBroken:
            return True
    return draws_words_twice(configured)


def draws_words_twice(configured: Stream) -> bool:
    """Two draws that share their noise: outputs and laws say nothing of it."""
    make, steps, _ = guarded(configured)
    try:
        check_words_are_used_once(make, steps[:6])
    except ContractBroken:
        return True
    return False


@lru_cache(maxsize=64)
def clean(mode: str, variant: str) -> bool:
    configured = streamed(mode, json.loads(variant))
    check_guarded(*guarded(configured))
    return not draws_words_twice(configured) and all(excess(configured, scene) <= SLACK for scene in scenes(configured))


def guarded(configured: Stream) -> tuple[Any, Any, Any]:
    events = steady(deletes=configured.domain.operation_field is not None)
    return partial(build_engine, configured), batches(events, STEPS), lambda step: NoiseSource(SEED, "s", step)


@pytest.mark.parametrize("plant", PEEKS, ids=lambda plant: plant.name)
def test_a_peek_is_found_whatever_the_data_are(plant: Plant) -> None:
    assert clean(plant.mode, json.dumps(plant.variant))
    check = guarded(streamed(plant.mode, plant.variant))
    with plant.planted(), pytest.raises(PrivateValueRead, match=r"a private value|is read"):
        check_guarded(*check)


@pytest.mark.parametrize("plant", HIDDEN, ids=lambda plant: plant.name)
def test_what_sealing_does_not_see_forced_runs_do(plant: Plant) -> None:
    assert clean(plant.mode, json.dumps(plant.variant))
    with plant.planted():
        try:
            seen = found(streamed(plant.mode, plant.variant))
        except BudgetError:  # mechanisms that cost more than is claimed are refused before the first step
            seen = True
    assert seen


def test_plants_are_named_once_and_of_every_mode() -> None:
    assert len({plant.name for plant in PLANTS}) == len(PLANTS)
    assert {plant.mode for plant in PLANTS} == set(EPSILON)
