"""Faults planted in the real code of engine `trajectory` are found; the same runs without them are clean."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from engines.checks.contract_case import contract_case
from engines.checks.coupling import CouplingBroken, check_guarded
from engines.core.noise import NoiseSource
from engines.core.noise.private import PrivateValueRead
from engines.core.registry import build_engine
from engines.trajectory.engine import Trajectories
from schemas.config import Stream
from tests.couple.plants import Plant, unasked
from tests.couple.plants.trajectory import HIDDEN, PEEKS
from tests.couple.trip_runs import SEED, Magnifying, Trip, batches, check_price, coupled, drive

CASE = contract_case("trajectory")
STEPS = 7
WAY = [(0.1, 0.1), (0.1, 0.1), (0.3, 0.1), (0.3, 0.3), (0.6, 0.3), (0.6, 0.6)]
SHORT = [(0.2, 0.7), (0.25, 0.65)]


@dataclass(frozen=True, slots=True)
class Scene:
    """`gone` are the trips of one user that the neighbour lacks; `at_most` of them are charged in a period."""

    others: Sequence[Trip]
    gone: Sequence[Trip]
    at_most: int


# A drive whose last record comes late, among others: some of which have not ended.
ORDINARY = Scene(
    [
        *(drive(user, SHORT, step=user % 3) for user in range(1, 5)),
        drive(5, WAY[2:], step=1, ends=False),
        drive(6, SHORT, step=2, ends=False),
    ],
    [drive(9, WAY, step=2, late=3)],
    at_most=1,
)
RENEWING = Scene(
    ORDINARY.others,
    [drive(9, WAY, step=step, number=number, ends=step > 2) for step in (2, 3) for number in range(2)],
    at_most=2,
)


# Five trips go one way, and one that is gone another one, by block pairs 1 and 3.
HEAVY = Scene(
    [drive(user, [(0.1, 0.1), (0.1, 0.9)], step=2) for user in range(1, 6)],
    [drive(9, [(0.1, 0.1), (0.9, 0.9)], step=2)],
    at_most=1,
)
# So many stay where one stays, that the noise of each tree is at its dearest.
STANDING = Scene(
    [drive(user, [(0.1, 0.1)] * 2, step=2) for user in range(11, 25)], [drive(9, [(0.1, 0.1)] * 2, step=2)], at_most=1
)
# Two are off the map; most points are those of the trip that is gone.
OFF_MAP = Scene(
    [drive(1, [(0.5, 0.3)] * 2), *(drive(user, [(0.05, 0.95)] * 2) for user in (2, 3))],
    [drive(9, [(0.3, 0.3)] * 6)],
    at_most=1,
)
SCENES = {
    "cell pairs of truly heavy block pairs": HEAVY,
    "heavy block pairs by true counts": HEAVY,
    "half the noise of the tree of cells": STANDING,
    "half the noise of the tree of pairs": STANDING,
    "points off the map counted with the crowd": OFF_MAP,
    "bounds forgotten at a period's end": RENEWING,
}


def scene_of(plant: Plant) -> Scene:
    return SCENES.get(plant.name, ORDINARY)


def stream(plant: Plant) -> Stream:
    options = {"longest": "5h", "idle": "2h", **plant.variant.get("options", {})}
    return CASE.stream(plant.mode, {**plant.variant, "options": options})


def check_coupled(plant: Plant, scene: Scene, planted: Any) -> None:
    """Raises: CouplingBroken. What is claimed is that of the honest engine."""
    configured = stream(plant)
    engine = build_engine(configured)
    assert isinstance(engine, Trajectories)
    with planted, unasked():
        (pairs,) = coupled(
            partial(build_engine, configured),
            batches([*scene.others, *scene.gone], steps=STEPS),
            batches(scene.others, steps=STEPS),
            adversary=Magnifying(1),
        )
    check_price(engine, pairs, trips=len(scene.gone))
    period = engine.config.closing.period or STEPS
    for begin in range(0, STEPS, period):
        check_price(engine, [pair for pair in pairs if begin <= pair[0].step < begin + period], trips=scene.at_most)


@pytest.mark.parametrize("plant", PEEKS, ids=lambda plant: f"{plant.mode}: {plant.name}")
def test_a_peek_is_found_on_sealed_events_whatever_they_are(plant: Plant) -> None:
    scene = scene_of(plant)
    check = partial(
        check_guarded,
        partial(build_engine, stream(plant)),
        batches([*scene.others, *scene.gone], steps=STEPS),
        lambda step: NoiseSource(SEED, "s", step),
    )
    check()
    with plant.planted(), pytest.raises(PrivateValueRead):
        check()


@pytest.mark.parametrize("plant", HIDDEN, ids=lambda plant: f"{plant.mode}: {plant.name}")
def test_a_fault_where_counts_are_made_is_found_by_a_forced_run(plant: Plant) -> None:
    scene = scene_of(plant)
    check_coupled(plant, scene, nullcontext())
    with pytest.raises(CouplingBroken):
        check_coupled(plant, scene, plant.planted())
