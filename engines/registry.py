"""Every engine under its configured name. Registering one gets it tested and offered.

What the configuration knows of it stands in `schemas.config.engines`; what `explain`, `simulate` and `audit` show of it
in `agents.presentation`. Tests hold the three tables to the same names.
"""

from __future__ import annotations

from collections.abc import Mapping

from engines.contract import Domain, Engine, EngineSpec, Evaluator
from engines.sequence import markov_spec as markov
from engines.sequence import series_spec as series
from engines.spatial import spec as spatial
from engines.tabular import spec as tabular
from engines.trajectory import spec as trajectory
from schemas.config import Stream

ENGINES: Mapping[str, EngineSpec] = {
    spec.name: spec for spec in (spatial.SPEC, markov.SPEC, series.SPEC, tabular.SPEC, trajectory.SPEC)
}


def build_domain(stream: Stream) -> Domain:
    """The domain that encodes a configured stream's events. Raises: EngineInputError."""
    return ENGINES[stream.engine].domain(stream)


def build_engine(stream: Stream) -> Engine:
    """A configured stream's engine before its first step. Raises: EngineInputError."""
    return ENGINES[stream.engine].build(stream)


def build_evaluator(stream: Stream) -> Evaluator:
    """What measures a configured stream's utility. Raises: EngineInputError."""
    return ENGINES[stream.engine].evaluator(stream)
