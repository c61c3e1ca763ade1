"""Engine `tabular`: rows with public attributes; a synthetic table that is kept up."""

from __future__ import annotations

from schemas.config.engines.spec import EngineFacts, EngineSpec, RecordFields
from schemas.config.engines.tabular import FINDING_DELTA, TableDomainSection, TabularOptions


def _records(domain: TableDomainSection) -> RecordFields:
    return {attribute.field: attribute.record_kinds for attribute in domain.all_attributes}


SPEC = EngineSpec(
    name="tabular",
    summary="rows with attributes of known values: a synthetic table that is kept up",
    facts=EngineFacts(
        modes=("default", "paper"),
        uses_delta=frozenset({"default"}),
        gaussian=frozenset({"default"}),
        thresholds={"default": FINDING_DELTA},
        measured_expiry=frozenset({"paper"}),
        counts_surplus=frozenset({"default"}),
        weighs_records=True,
    ),
    domains={"table": TableDomainSection},
    options=TabularOptions,
    domain="engines.tabular.build:domain",
    build="engines.tabular.build:build",
    evaluator="engines.tabular.build:evaluator",
    view="agents.show.views.tabular:VIEW",
    records=_records,
    contract_case="engines.tabular.fixture:CONTRACT",
    answers="engines.tabular.answers:answers",
)
