"""How long a stream gathers at its start is no part of what a state means."""

from __future__ import annotations

import pytest

from engines.checks.contract_case import contract_case
from engines.core.registry import build_engine
from schemas.config import ENGINES


@pytest.mark.parametrize("mode", ENGINES["spatial"].facts.modes)
def test_an_engine_goes_on_from_one_that_gathered_longer(mode: str) -> None:
    case = contract_case("spatial")
    engine = build_engine(case.stream(mode))
    other = build_engine(case.stream(mode, {"options": {"initial_steps": 3}}))
    other.restore(engine.state())
    assert other.state().keys() == engine.state().keys()
