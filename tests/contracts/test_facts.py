"""What an engine's facts say of its accounting is what its accountants do."""

from __future__ import annotations

import pytest

from agents.local.coupling.runs import settings
from engines.checks.contract_case import contract_case
from engines.core.accounting.accountant import Accountant
from engines.core.registry import build_engine
from schemas.config import ENGINES, Stream
from schemas.errors import EngineInputError

WITH_DELTA = [pytest.param(stream, id=name) for name, stream in settings() if stream.privacy.delta]


@pytest.mark.parametrize("stream", WITH_DELTA)
def test_modes_that_say_gaussian_are_charged_by_mu_squared(stream: Stream) -> None:
    rules = {accountant.rule for accountant in Accountant.kept(build_engine(stream).state()).values()}
    assert rules == {"gaussian" if stream.mode in stream.facts.gaussian else "schedule"}


@pytest.mark.parametrize(
    ("name", "mode"), [(name, mode) for name, spec in ENGINES.items() for mode in sorted(spec.facts.uses_delta)]
)
def test_a_delta_below_what_the_lattice_keeps_is_refused(name: str, mode: str) -> None:
    """Lemma D is about noise of a delta of 1e-40 or more."""
    with pytest.raises(EngineInputError, match="delta of the noise must be at least 1e-40"):
        build_engine(contract_case(name).stream(mode, {"privacy": {"delta": 1e-41}}))


@pytest.mark.parametrize("name", ENGINES)
def test_facts_name_modes(name: str) -> None:
    """A delta of several periods is known: it is of Gaussian noise, or periods are apart."""
    facts = ENGINES[name].facts
    assert facts.gaussian <= facts.uses_delta <= set(facts.modes)
    assert facts.periods_apart <= set(facts.modes)
    assert facts.thresholds.keys() <= facts.gaussian
    assert facts.uses_delta <= facts.gaussian | facts.periods_apart
