"""Engine `markov`: how many users are in each public state."""

from __future__ import annotations

from schemas.config.domain.states import StatesDomainSection
from schemas.config.engines import EngineFacts, EngineSpec
from schemas.config.options.markov import MarkovOptions

SPEC = EngineSpec(
    name="markov",
    facts=EngineFacts(
        modes=("default", "kalman", "paper", "mle", "prior", "raw"), units=("replace",), dates_records=True
    ),
    domains={"states": StatesDomainSection},
    options=MarkovOptions,
    domain="engines.markov.build:domain",
    build="engines.markov.build:build",
    evaluator="engines.markov.build:evaluator",
    presentation="agents.presentation.markov:PRESENTATION",
    audit="engines.markov.fixture:cases",
    contract_case="engines.markov.fixture:CONTRACT",
    answers="engines.markov.answers:answers",
)
