"""Engine `spatial`: points in a box, on a map or in named zones."""

from __future__ import annotations

from schemas.config.engines import EngineFacts, EngineSpec
from schemas.config.spatial import BoxDomainSection, GeoJsonDomainSection, SpatialOptions, ZonesDomainSection

SPEC = EngineSpec(
    name="spatial",
    summary="points on a map or in a rectangle, or named zones: synthetic points that lie where events do",
    facts=EngineFacts(
        modes=("default", "paper"),
        measured_expiry=frozenset({"paper"}),
        counts_surplus=frozenset({"default"}),
        # 2: a smaller lambda of PrivTree.
        noise_versions={"paper": 2},
    ),
    domains={"box": BoxDomainSection, "geojson": GeoJsonDomainSection, "zones": ZonesDomainSection},
    options=SpatialOptions,
    domain="engines.spatial.build:domain",
    build="engines.spatial.build:build",
    evaluator="engines.spatial.build:evaluator",
    view="agents.show.views.spatial:VIEW",
    contract_case="engines.spatial.fixture:CONTRACT",
    answers="engines.spatial.answers:answers",
)
