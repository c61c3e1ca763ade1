"""Engine `spatial`: points in a box, on a map or in named zones."""

from __future__ import annotations

from schemas.config.engines.spatial import (
    BoxDomainSection,
    GeoJsonDomainSection,
    PlanarDomainSection,
    SpatialOptions,
    ZonesDomainSection,
)
from schemas.config.engines.spec import NUMBER, TEXT, EngineFacts, EngineSpec, RecordFields


def _records(domain: PlanarDomainSection | ZonesDomainSection) -> RecordFields:
    zone = {domain.field: TEXT} if isinstance(domain, ZonesDomainSection) else {}
    return {**zone, **dict.fromkeys(domain.coordinates or (), NUMBER)}


SPEC = EngineSpec(
    name="spatial",
    summary="points on a map or in a rectangle, or named zones: synthetic points that lie where events do",
    facts=EngineFacts(
        modes=("default", "paper"),
        measured_expiry=frozenset({"paper"}),
        counts_surplus=frozenset({"default"}),
        weighs_records=True,
        # 2: a smaller lambda of PrivTree.
        noise_versions={"paper": 2},
    ),
    domains={"box": BoxDomainSection, "geojson": GeoJsonDomainSection, "zones": ZonesDomainSection},
    options=SpatialOptions,
    domain="engines.spatial.build:domain",
    build="engines.spatial.build:build",
    evaluator="engines.spatial.build:evaluator",
    view="agents.show.views.spatial:VIEW",
    records=_records,
    contract_case="engines.spatial.fixture:CONTRACT",
    answers="engines.spatial.answers:answers",
)
