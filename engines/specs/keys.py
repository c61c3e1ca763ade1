"""Engine `keys`: values that nobody listed, such as pages or words, or a public list; how many people have each."""

from __future__ import annotations

from schemas.config.domain import Question
from schemas.config.engines.keys import LISTING_SHARE, PUBLIC, KeysDomainSection, KeysOptions
from schemas.config.engines.spec import INTEGER, NUMBER, EngineFacts, EngineSpec, RecordFields, RecordKind

_KEY: frozenset[RecordKind] = frozenset({"text", "number", "boolean"})


def _records(domain: KeysDomainSection) -> RecordFields:
    kinds = {**dict.fromkeys(domain.released, NUMBER), "step": INTEGER, "count": INTEGER, "found": INTEGER}
    return {**dict.fromkeys(domain.key_fields, _KEY if domain.grid is None else NUMBER), **kinds}


SPEC = EngineSpec(
    name="keys",
    summary="values that nobody listed, such as pages: those that enough people have, and how many; or public ones",
    facts=EngineFacts(
        modes=("default", PUBLIC),
        units=("user",),
        uses_delta=frozenset({"default", PUBLIC}),
        needs_delta=frozenset({"default", PUBLIC}),
        gaussian=frozenset({"default", PUBLIC}),
        thresholds={"default": LISTING_SHARE},
        periods_apart=frozenset({"default", PUBLIC}),
        whole_unit=True,
        dates_records=True,
        contribution="pair",
        records_are_counts=True,
    ),
    domains={"keys": KeysDomainSection},
    options=KeysOptions,
    domain="engines.keys.build:domain",
    build="engines.keys.build:build",
    evaluator="engines.keys.build:evaluator",
    view="agents.show.views.keys:VIEW",
    records=_records,
    contract_case="engines.keys.fixture:CONTRACT",
    answers="engines.keys.answers:answers",
    asks=(
        Question(
            key="options.horizon",
            kind="whole",
            text="For how many steps are keys counted? Each is a test of all keys; some 10 are a good choice. Or set "
            "privacy.per, for a bound and a list that begin anew",
            default=10,
        ),
    ),
)
