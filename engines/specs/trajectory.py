"""Engine `trajectory`: trips, points that belong together."""

from __future__ import annotations

from schemas.config.engines.spec import INTEGER, NUMBER, TEXT, EngineFacts, EngineSpec, RecordFields
from schemas.config.engines.trajectory import TrajectoryOptions, TripsDomainSection


def _records(domain: TripsDomainSection) -> RecordFields:
    return {domain.trip: TEXT, domain.order: INTEGER, domain.x: NUMBER, domain.y: NUMBER}


SPEC = EngineSpec(
    name="trajectory",
    summary="trips, which are points that belong together: synthetic trips",
    # Contributions are trips: without a user whose they are, nobody tells whether two records are of one trip.
    # 2: a smaller lambda of PrivTree.
    facts=EngineFacts(
        modes=("default", "paper"),
        units=("user",),
        dates_records=True,
        uses_delta=frozenset({"default"}),
        gaussian=frozenset({"default"}),
        periods_apart=frozenset({"default", "paper"}),
        noise_versions={"paper": 2},
    ),
    domains={"trips": TripsDomainSection},
    options=TrajectoryOptions,
    domain="engines.trajectory.build:domain",
    build="engines.trajectory.build:build",
    evaluator="engines.trajectory.build:evaluator",
    view="agents.show.views.trajectory:VIEW",
    records=_records,
    contract_case="engines.trajectory.fixture:CONTRACT",
)
