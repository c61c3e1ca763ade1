"""How a planted fault of a sequence engine is looked for: on sealed events, and by forced runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from engines.contract_case import contract_case
from engines.coupling import CouplingBroken, OutputAdversary, check_guarded
from engines.noise import NoiseSource
from engines.noise.private import PrivateValueRead
from engines.registry import build_engine
from schemas.config import Stream
from tests.couple.plants import Plant, unasked
from tests.couple.sequence_pairs import SEED, Pair, Wild, anyhow, bunched, check_pair

STEPS = 16
_FEW = 10
RESTARTS = (4, 12)
MakePair = Callable[..., Pair]
"""`sequence_pairs.series_pair` or `markov_pair`."""


def name_of(plant: Plant) -> str:
    return f"{plant.mode}: {plant.name}"


def _stream(plant: Plant) -> Stream:
    return contract_case(plant.engine).stream(plant.mode, plant.variant)


def check_peek_is_found(plant: Plant, make_pair: MakePair) -> None:
    """Sealed events show it, and nothing without it. No neighbour is needed, and data need not be near anything."""
    configured = _stream(plant)
    batches = make_pair(configured, _FEW, {}, Random(1), full=False).first
    check = partial(
        check_guarded, partial(build_engine, configured), batches, lambda step: NoiseSource(SEED, "s", step)
    )
    check()
    with plant.planted(), pytest.raises(PrivateValueRead):
        check()


def check_forced_run_finds(plant: Plant, make_pair: MakePair) -> None:
    """A forced run releases something else or costs more than is claimed, and does neither without the fault."""
    configured, chance = _stream(plant), Random(plant.name)

    def pair(*, full: bool) -> Pair:
        arrangement = bunched(configured, STEPS) if full else anyhow(configured, STEPS, chance)
        return make_pair(configured, STEPS, arrangement, chance, full=full)

    # Drawn before the plant is there: it may move what is drawn, too.
    runs = [(pair(full=full), OutputAdversary()) for full in (True, False)] + [(pair(full=True), Wild(1))]

    def check() -> None:
        for one, adversary in runs:
            check_pair(configured, one, adversary=adversary, restarts=RESTARTS)

    check()
    with plant.planted(), unasked(), pytest.raises(CouplingBroken):
        check()
