"""Every engine under its configured name. Registering one gets it tested and offered.

What the configuration knows of it stands in `schemas.config.engines`; what `explain`, `simulate` and `audit` show of it
in `agents.presentation`. Tests hold the three tables to the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from engines.contract import Domain, Engine, EngineSpec, Evaluator
from schemas.config import Stream


def _spatial() -> EngineSpec:
    from engines.spatial import spec

    return spec.SPEC


def _markov() -> EngineSpec:
    from engines.markov import spec

    return spec.SPEC


def _series() -> EngineSpec:
    from engines.series import spec

    return spec.SPEC


def _tabular() -> EngineSpec:
    from engines.tabular import spec

    return spec.SPEC


def _trajectory() -> EngineSpec:
    from engines.trajectory import spec

    return spec.SPEC


class _Engines(Mapping[str, EngineSpec]):
    """Each is loaded when it is asked for: a worker that has just been started again waits for its own engines only."""

    _loaders: Mapping[str, Callable[[], EngineSpec]] = {
        "spatial": _spatial, "markov": _markov, "series": _series, "tabular": _tabular, "trajectory": _trajectory,
    }  # fmt: skip

    def __getitem__(self, name: str) -> EngineSpec:
        return self._loaders[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaders)

    def __len__(self) -> int:
        return len(self._loaders)


ENGINES: Mapping[str, EngineSpec] = _Engines()


def build_domain(stream: Stream) -> Domain:
    """The domain that encodes a configured stream's events. Raises: EngineInputError."""
    return ENGINES[stream.engine].domain(stream)


def build_engine(stream: Stream) -> Engine:
    """A configured stream's engine before its first step. Raises: EngineInputError."""
    return ENGINES[stream.engine].build(stream)


def build_evaluator(stream: Stream) -> Evaluator:
    """What measures a configured stream's utility. Raises: EngineInputError."""
    return ENGINES[stream.engine].evaluator(stream)
