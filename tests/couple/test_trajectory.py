"""Trips come and go: the same releases forced, the exact cost at most what is claimed, and that price paid in full."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from math import ceil
from typing import Any
from unittest.mock import patch

import pytest

from engines.checks.contract_case import contract_case
from engines.checks.coupling import CouplingBroken, Losses, Uses
from engines.core import shares
from engines.core.registry import build_engine
from engines.core.shares import LaplaceCells
from engines.spatial.split import SplitRule
from engines.trajectory.default.questions import COUNT_SHARE, FEW, FEW_TRIPS
from engines.trajectory.engine import Trajectories
from engines.trajectory.histograms import UNIT
from engines.trajectory.papers import hierarchy, pair_tree
from schemas.config import Stream
from tests.couple.trip_runs import (
    SLACK,
    Capricious,
    Magnifying,
    Trip,
    batches,
    by_mechanism,
    check_price,
    coupled,
    drive,
    epsilon_of,
    random_trips,
    scales_of,
)

CASE = contract_case("trajectory")
STEPS = 42
EACH = 2
"""Trips of a user, over the stream or in a period: `max_contributions`."""
OPTIONS: Mapping[str, Any] = {"idle": "2h", "longest": "5h", "side": 4}
QUIET: Mapping[str, Any] = {"records": False}
RICH: Mapping[str, Any] = {"privacy": {"epsilon": 40.0}}
"""Where synthetic trips are made: then 200 trips are many."""
RUNS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "default": ("default", RICH),
    "default, without records": ("default", {"options": {**QUIET, "side": 8, "longest": "30h"}}),
    "default, in periods": ("default", {"options": QUIET, "privacy": {"per": "7h"}}),
    "default, on a map": ("default", {**CASE.variants[-1], **RICH}),
    "paper": ("paper", RICH),
    "paper, in periods": ("paper", {"options": QUIET, "privacy": {"per": "7h"}}),
    "paper, exponential": ("paper", {"options": {**QUIET, "spread": "exponential"}}),
}


def stream(mode: str, variant: Mapping[str, Any]) -> Stream:
    return CASE.stream(mode, {**variant, "options": {**OPTIONS, **variant.get("options", {})}})


def built(configured: Stream) -> Trajectories:
    engine = build_engine(configured)
    assert isinstance(engine, Trajectories)
    return engine


def without(trips: list[Trip], some: list[Trip], *, steps: int) -> Any:
    return batches([trip for trip in trips if trip not in some], steps=steps)


@pytest.mark.parametrize("name", RUNS)
def test_a_trip_and_a_users_trips_cost_what_is_claimed_whatever_is_released(name: str) -> None:
    """Deterministic: streams and outputs come from a seed. The claim is of each trip, and so of a user's two."""
    mode, variant = RUNS[name]
    configured = stream(mode, variant)
    engine, chance = built(configured), random.Random(name)
    claim, rules = float(engine.guarantee().epsilon), engine.config.closing
    trips = random_trips(chance, steps=STEPS, rules=rules, users=12 if rules.period else 40, each=EACH)
    user = chance.choice(trips).user
    theirs = [trip for trip in trips if trip.user == user]
    # Synthetic trips take most of the time: there one neighbour does.
    missing = [theirs] if engine.config.records else [theirs, theirs[:1]]
    found = coupled(
        partial(build_engine, configured),
        batches(trips, steps=STEPS),
        *(without(trips, some, steps=STEPS) for some in missing),
        adversary=Capricious(3, most=ceil(1.2 * FEW / claim)),
        restarts=[3, 11, 12, 30],
    )
    for some, pairs in zip(missing, found, strict=True):
        assert epsilon_of(pairs) > 0
        check_price(engine, pairs, trips=len(some))
    period = rules.period or STEPS
    for begin in range(0, STEPS, period):
        check_price(engine, [pair for pair in found[0] if begin <= pair[0].step < begin + period], trips=EACH)


def test_generated_runs_ask_every_question() -> None:
    """What is never asked is never checked: both plans, and pairs of cells in heavy blocks."""
    configured = stream("default", {"options": QUIET})
    rules = built(configured).config.closing
    trips = random_trips(random.Random(5), steps=STEPS, rules=rules, users=40, each=EACH)
    (pairs,) = coupled(
        partial(build_engine, configured),
        batches(trips, steps=STEPS),
        batches(trips[1:], steps=STEPS),
        adversary=Capricious(3, most=6000),
    )
    asked = [used.place.removeprefix("noise/") for used, _ in pairs]
    assert STEPS == asked.count("trips") > asked.count("block pairs") >= asked.count("cell pairs") > 3


WAY = [(0.1, 0.1), (0.1, 0.1), (0.3, 0.1), (0.3, 0.3), (0.6, 0.3), (0.6, 0.6)]
"""Steps to neighbours in every grid; once it stays."""


def one_trip_among(configured: Stream, others: list[Trip], trip: Trip, *, times: int = 3000) -> Uses:
    (pairs,) = coupled(
        partial(build_engine, configured),
        batches([*others, trip], steps=1),
        batches(others, steps=1),
        adversary=Magnifying(times),
    )
    return pairs


GROUND = {"domain": CASE.variants[-1]["domain"]}
TIGHT: Mapping[str, tuple[str, Mapping[str, Any], int]] = {
    "default, many trips": ("default", {}, 3000),
    "default, few trips": ("default", {}, 1),
    "default, many trips on a map": ("default", GROUND, 3000),
    "default, few trips on a map": ("default", GROUND, 1),
}


@pytest.mark.parametrize("name", TIGHT)
def test_a_trip_that_is_asked_everything_pays_all_of_epsilon(name: str) -> None:
    """Weights are rounded down to 2**-20 trips: of the claim all but 1e-5 is paid. Half of any scale would show."""
    mode, variant, times = TIGHT[name]
    configured = stream(mode, {**variant, "options": {**variant.get("options", {}), **QUIET}})
    guarantee = built(configured).guarantee()
    pairs = one_trip_among(configured, [drive(1, WAY), drive(2, WAY[:2])], drive(3, WAY), times=times)
    declared = {f"noise/{mechanism.name}": mechanism for mechanism in guarantee.mechanisms}
    few = {"noise/trips": COUNT_SHARE} | {f"noise/{name}": share for name, share in FEW_TRIPS.shares.items()}
    claims = (
        {place: guarantee.epsilon * share for place, share in few.items()}
        if "few" in name
        else {place: mechanism.epsilon for place, mechanism in declared.items()}
    )
    assert sum(claims.values()) == guarantee.epsilon
    losses = by_mechanism(pairs)
    assert losses.keys() == claims.keys()
    for place, claim in claims.items():
        assert (1 - 1e-5) * float(claim) <= losses[place] <= float(claim), place
    assert float(guarantee.epsilon) * (1 - 1e-5) <= epsilon_of(pairs) <= float(guarantee.epsilon)
    declared_scales = {place: mechanism.scale for place, mechanism in declared.items()}
    assert scales_of(pairs) == (
        {place: LaplaceCells(claim, UNIT).scale / UNIT for place, claim in claims.items()}
        if "few" in name
        else declared_scales
    )


@pytest.mark.parametrize("spread", ["uniform", "exponential"])
def test_a_trip_of_mode_paper_pays_all_of_its_histograms_and_most_of_its_trees(spread: str) -> None:
    """PrivTree's noise is a little larger than its worst trip needs. That trip's cells and pairs of cells
    hold whole multiples of the decay of a level, so that one more trip moves two margins by all that they can be moved
    and those above by what is left; both trees have theirs at other crowds."""
    configured = stream("paper", {"options": {**QUIET, "spread": spread}, "privacy": {"epsilon": 0.5}})
    guarantee = built(configured).guarantee()
    claims = {mechanism.name: mechanism for mechanism in guarantee.mechanisms}
    cells, pairs_of_cells = claims["cells (one bit for each)"], claims["pairs of cells (one bit for each)"]
    trip = drive(1000, [(0.1, 0.1), (0.1, 0.1)])
    paid: dict[str, float] = {}
    for tree, fanout, most in ((cells, 2, 18), (pairs_of_cells, 4, 8)):
        decay = SplitRule(epsilon=tree.epsilon, fanout=fanout).decay_units / 2**20
        # Whole trips that are just above a whole multiple.
        levels = min(range(5, most), key=lambda number: -number * decay % 1)
        crowd = [drive(user, [(0.1, 0.1), (0.1, 0.1)]) for user in range(ceil(levels * decay))]
        found = one_trip_among(configured, crowd, trip, times=1)
        assert epsilon_of(found) <= float(guarantee.epsilon) * SLACK
        for place, loss in by_mechanism(found).items():
            paid[place] = max(paid.get(place, 0.0), loss)
        assert scales_of(found) == {
            "noise/transitions": claims["transitions"].scale,
            "noise/pairs/pairs": claims["pairs"].scale,
            "noise/cells/split": cells.scale,
            "noise/pairs/split": pairs_of_cells.scale,
        }
    for place, claim, least in (
        ("noise/transitions", claims["transitions"], 1 - 1e-5),
        ("noise/pairs/pairs", claims["pairs"], 1),
        ("noise/cells/split", cells, 0.85),
        ("noise/pairs/split", pairs_of_cells, 0.92),
    ):
        assert least * float(claim.epsilon) <= paid[place] <= float(claim.epsilon) * SLACK, place


def test_a_trip_is_counted_in_one_window_only() -> None:
    """By a whole trip and no more, over all windows: however its records come, and whatever comes after it closed."""
    for seed in range(3):
        configured = stream("default", {"options": QUIET})
        rules = built(configured).config.closing
        trips = random_trips(random.Random(seed), steps=STEPS, rules=rules, users=30, each=EACH)
        closed = [trip for trip in trips if trip.admitted < STEPS - rules.life][:6]
        found = coupled(
            partial(build_engine, configured),
            batches(trips, steps=STEPS),
            *(without(trips, [trip], steps=STEPS) for trip in closed),
            restarts=range(5, 40, 3),
        )
        for pairs in found:
            counted = [pair for pair in pairs if pair[0].place == "noise/trips"]
            assert Losses.of(counted).epsilon == COUNT_SHARE * built(configured).guarantee().epsilon


def halved(place: str) -> Any:
    """Half the scale in one histogram, or in one tree."""

    def in_half(original: Any, values: Any, *given: Any, scale: Any = None, source: Any = None, **named: Any) -> Any:
        if scale is None:
            scale, source = given
        here = "/".join(map(str, source.labels[2:]))
        half = scale / 2 if here == place or here.startswith(f"{place}/") else scale
        return original(values, scale=half, source=source, **named)

    stack = ExitStack()
    for module, name in (
        (shares, "laplace_mechanism"),
        (hierarchy, "laplace_exceeds"),
        (pair_tree, "laplace_exceeds"),
    ):
        stack.enter_context(patch.object(module, name, partial(in_half, getattr(module, name))))
    return stack


@pytest.mark.parametrize("name", [*TIGHT, "paper"])
def test_half_the_scale_of_any_draw_is_found(name: str) -> None:
    mode, variant, times = TIGHT.get(name, ("paper", {}, 1))
    configured = stream(mode, {**variant, "options": {**variant.get("options", {}), **QUIET}})
    others, trip = [drive(1, WAY), drive(2, WAY[:2])], drive(3, WAY)
    if mode == "paper":
        # A little more than the decay of a level in the tree of pairs, and than three levels in that of cells.
        others, trip = [drive(user, WAY[:2]) for user in range(20)], drive(100, WAY[:2])
    honest = one_trip_among(configured, others, trip, times=times)
    check_price(built(configured), honest, trips=1)
    for place in by_mechanism(honest):
        with halved(place):
            pairs = one_trip_among(configured, others, trip, times=times)
        with pytest.raises(CouplingBroken, match="cost"):
            check_price(built(configured), pairs, trips=1)
