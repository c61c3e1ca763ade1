"""Engine `markov`: how many users are in each public state."""

from __future__ import annotations

from schemas.config.domain import Question
from schemas.config.engines.markov import MarkovOptions, StatesDomainSection
from schemas.config.engines.spec import INTEGER, NUMBER, TEXT, EngineFacts, EngineSpec, RecordFields


def _records(domain: StatesDomainSection) -> RecordFields:
    return {
        domain.field: TEXT | {"null"},  # null is who is in no state
        "step": INTEGER,
        **dict.fromkeys(("count", "standard_error", "low", "high"), NUMBER),
        "revised": frozenset({"boolean"}),
        "kind": TEXT | {"null"},
    }


SPEC = EngineSpec(
    name="markov",
    summary="how many users are in each of some known states, step by step",
    facts=EngineFacts(modes=("default", "paper"), units=("replace",), dates_records=True),
    domains={"states": StatesDomainSection},
    options=MarkovOptions,
    domain="engines.markov.build:domain",
    build="engines.markov.build:build",
    evaluator="engines.markov.build:evaluator",
    view="agents.show.views.markov:VIEW",
    records=_records,
    contract_case="engines.markov.fixture:CONTRACT",
    answers="engines.markov.answers:answers",
    asks=(
        Question(
            key="options.horizon",
            kind="whole",
            text="For how many steps does it run? Every user is charged in each of them",
            default=100,
        ),
        Question(key="privacy.max_contributions", kind="whole", same_as="options.horizon"),
        Question(key="privacy.max_per_step", kind="whole", default=1),
    ),
)
