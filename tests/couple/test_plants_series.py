"""Every planted fault of engine `series` is found, and the same run without it is clean."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from engines.auditor.coupling import Adversary, CouplingBroken, check_guarded
from engines.noise import NoiseSource
from engines.noise.private import PrivateValueRead
from engines.registry import build_engine
from schemas.config import Stream
from tests.contracts.cases import CONTRACTS
from tests.couple.plants import Plant
from tests.couple.plants.series import HIDDEN, PEEKS
from tests.couple.sequence_pairs import SEED, Distant, Pair, Wild, anyhow, bunched, check_pair, series_pair

STEPS = 24
RESTARTS = (4, 12)


def stream(plant: Plant) -> Stream:
    return CONTRACTS["series"].stream("series", plant.mode, plant.variant)


def name_of(plant: Plant) -> str:
    return f"{plant.mode}: {plant.name}"


@pytest.mark.parametrize("plant", PEEKS, ids=name_of)
def test_a_peek_is_found_on_sealed_events(plant: Plant) -> None:
    configured = stream(plant)
    quiet = series_pair(configured, 8, {}, Random(1), full=False).first
    check = partial(check_guarded, partial(build_engine, configured), quiet, lambda step: NoiseSource(SEED, "s", step))
    check()
    with plant.planted(), pytest.raises(PrivateValueRead):
        check()


@pytest.mark.parametrize("plant", HIDDEN, ids=name_of)
def test_what_hides_in_an_aggregate_or_costs_too_much_is_found_by_a_forced_run(plant: Plant) -> None:
    configured, chance = stream(plant), Random(plant.name)

    def pair(*, full: bool) -> Pair:
        arrangement = bunched(configured, STEPS) if full else anyhow(configured, STEPS, chance)
        return series_pair(configured, STEPS, arrangement, chance, full=full)

    # Drawn before the plant is there: it may move what is drawn, too.
    runs = [(pair(full=True), Distant()), (pair(full=False), Adversary()), (pair(full=True), Wild(1))]

    def check() -> None:
        for one, adversary in runs:
            check_pair(configured, one, adversary=adversary, restarts=RESTARTS)

    check()
    with plant.planted(), pytest.raises(CouplingBroken):
        check()
