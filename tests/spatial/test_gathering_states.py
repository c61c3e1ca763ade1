"""How long a stream gathers at its start is no part of what a state means."""

from __future__ import annotations

import pytest

from engines.registry import build_engine
from schemas.config import ENGINE_MODES
from tests.contracts.cases import CONTRACTS


@pytest.mark.parametrize("mode", ENGINE_MODES["spatial"])
def test_an_engine_goes_on_from_one_that_gathered_longer(mode: str) -> None:
    case = CONTRACTS["spatial"]
    engine = build_engine(case.stream("spatial", mode))
    other = build_engine(case.stream("spatial", mode, {"options": {"initial_steps": 3}}))
    other.restore(engine.state())
    assert other.state().keys() == engine.state().keys()
