"""Coupled pairs of streams whose keys are combined from their types: configurations that nobody has written down.

False alarms: none, nothing is sampled but streams and inputs, for any of which the promise holds. New ones each night,
and of each mode a few that are the same every time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import islice

import pytest

from agents.local.coupling.audit import fresh_seed
from agents.local.coupling.runs import couple
from engines.checks.contract_case import contract_case
from engines.core.registry import build_engine
from schemas.config import Stream
from schemas.errors import EngineInputError
from tests.contracts.combinations import cases, deeper, mixed, paired
from tests.couple.planted import SHORT

STREAMS, MIXED = 6, 30
"""Of each mode: with keys of the promise set together, and with keys of any depth."""
CROWD = 60


def runs_on(stream: Stream) -> bool:
    """Whether the engine takes what its configuration says, and no counter ends the stream within a short pair."""
    if hasattr(stream.options, "counter") and stream.horizon is not None and stream.horizon < SHORT:
        return False
    try:
        build_engine(stream)
    except EngineInputError:
        return False  # too large, or of no use: `validate` says so
    return True


def check(name: str, streams: Iterable[Stream], seed: int) -> None:
    for stream in filter(runs_on, streams):
        verdict = couple(name, stream, seed, steps=SHORT, crowd=CROWD)
        assert not verdict.broken, (seed, stream)
        assert verdict.share <= 1 + 1e-9, (seed, stream)


@pytest.mark.seconds(0.5)
@pytest.mark.parametrize(("engine", "mode"), cases())
def test_neighbours_cannot_be_told_apart_by_keys_that_settings_leave_alone(engine: str, mode: str) -> None:
    """Two of these: computed fields, parts of a split, weights, steps of the calendar. No setting has them."""
    chance = random.Random(f"{engine} {mode}")
    streams = list(deeper(contract_case(engine), mode))
    kinds = (
        [each for each in streams if each.map is not None],
        [each for each in streams if each.split is not None],
        [each for each in streams if each.weighted],
        [each for each in streams if each.time.timezone != "UTC"],
    )
    every = [kind for kind in kinds if kind]
    check(f"{engine}/{mode}", [chance.choice(kind) for kind in chance.sample(every, 2)], 1)


@pytest.mark.nightly
@pytest.mark.parametrize(("engine", "mode"), cases())
def test_neighbours_cannot_be_told_apart_however_keys_are_combined(engine: str, mode: str) -> None:
    seed = fresh_seed()
    chance, case = random.Random(seed), contract_case(engine)
    together = list(paired(case, mode))
    check(f"{engine}/{mode}", chance.sample(together, min(STREAMS, len(together))), seed)
    check(f"{engine}/{mode}", islice(mixed(case, mode, chance), MIXED), seed)
