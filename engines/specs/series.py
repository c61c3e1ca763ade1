"""Engine `series`: one number a step, or several: counts, sums, readings, histograms with their percentiles."""

from __future__ import annotations

from schemas.config.engines.series import SUFFIXES, SeriesDomainSection, SeriesOptions
from schemas.config.engines.spec import INTEGER, NUMBER, TEXT, EngineFacts, EngineSpec, RecordFields, RecordKind

_OR_NONE: frozenset[RecordKind] = frozenset({"number", "null"})
_MODES = ("default", "paper", "paper-binomial")


def _records(domain: SeriesDomainSection) -> RecordFields:
    numbers = [
        # Where noise says that a step has no values, they have no mean and no percentiles.
        (name, NUMBER if name in (field.name, f"{field.name}_count") else _OR_NONE)
        for field in domain.series
        for name in field.released
    ]
    group = {} if domain.by is None else {domain.by: TEXT}
    return {"step": INTEGER, **group, **{name + suffix: kinds for name, kinds in numbers for suffix in SUFFIXES}}


SPEC = EngineSpec(
    name="series",
    summary="numbers over time, as counts, sums and percentiles of a step's events: noisy numbers each step",
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
