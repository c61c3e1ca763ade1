"""Engine `series`: one number a step, or several: counts, sums, readings."""

from __future__ import annotations

from schemas.config.engines import INTEGER, NUMBER, EngineFacts, EngineSpec, RecordFields
from schemas.config.series import SeriesDomainSection, SeriesOptions

_MODES = ("default", "paper", "paper-binomial")


def _records(domain: SeriesDomainSection) -> RecordFields:
    suffixes = ("", "_se", "_low", "_high")
    return {"step": INTEGER, **{field.name + suffix: NUMBER for field in domain.series for suffix in suffixes}}


SPEC = EngineSpec(
    name="series",
    summary="numbers over time, as counts and sums of a step's events: one noisy number a step",
    facts=EngineFacts(
        modes=_MODES,
        uses_delta=frozenset(_MODES),
        needs_delta=frozenset(_MODES),
        gaussian=frozenset({"default", "paper"}),
        periods_apart=frozenset(_MODES),
        whole_unit=True,
        dates_records=True,
        # 2: every arrangement of a user's events over steps is accounted for.
        noise_versions={"paper-binomial": 2},
    ),
    domains={"series": SeriesDomainSection},
    options=SeriesOptions,
    domain="engines.series.build:domain",
    build="engines.series.build:build",
    evaluator="engines.series.build:evaluator",
    view="agents.show.views.series:VIEW",
    records=_records,
    contract_case="engines.series.fixture:CONTRACT",
    answers="engines.series.answers:answers",
)
