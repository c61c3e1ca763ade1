"""Coupled pairs of streams whose keys are combined from their types: configurations that nobody has written down.

False alarms: none, nothing is sampled but streams and inputs, for any of which the promise holds. New ones each night.
"""

from __future__ import annotations

import random

import pytest

from agents.local.coupling.audit import fresh_seed
from agents.local.coupling.runs import couple
from engines.checks.contract_case import contract_case
from tests.contracts.combinations import cases, combinations
from tests.couple.planted import SHORT

STREAMS = 6
"""Of each mode."""
CROWD = 60


@pytest.mark.nightly
@pytest.mark.parametrize(("engine", "mode"), cases())
def test_neighbours_cannot_be_told_apart_however_keys_are_combined(engine: str, mode: str) -> None:
    seed = fresh_seed()
    streams = list(combinations(contract_case(engine), mode))
    for stream in random.Random(seed).sample(streams, min(STREAMS, len(streams))):
        verdict = couple(f"{engine}/{mode}", stream, seed, steps=SHORT, crowd=CROWD)
        assert not verdict.broken, (seed, stream)
        assert verdict.share <= 1 + 1e-9, (seed, stream)
