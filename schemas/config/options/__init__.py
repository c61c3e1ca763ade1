"""`[streams.options]`: each engine's own options, a model and a file for each engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from schemas.config.options.common import OptionsSection, Share
from schemas.config.options.markov import MarkovOptions
from schemas.config.options.series import SeriesOptions
from schemas.config.options.spatial import SpatialOptions
from schemas.config.options.tabular import TabularOptions
from schemas.config.options.trajectory import TrajectoryOptions
from schemas.config.tagged import tagged

OPTIONS: Mapping[str, type[OptionsSection]] = {
    "spatial": SpatialOptions,
    "markov": MarkovOptions,
    "series": SeriesOptions,
    "tabular": TabularOptions,
    "trajectory": TrajectoryOptions,
}
"""By engine."""


class OfEngine(dict[str, Any]):
    """The raw table of a stream's options, with the engine that says which model reads it."""

    def __init__(self, engine: str, table: Mapping[str, Any]) -> None:
        super().__init__(table)
        self.engine = engine


def _engine(value: Any) -> str | None:
    if isinstance(value, OfEngine):
        return value.engine
    # Of what is no table at all, the first model says so.
    return next((engine for engine, model in OPTIONS.items() if isinstance(value, model)), next(iter(OPTIONS)))


Options: Any
if TYPE_CHECKING:
    Options = Any  # each engine reads its own
else:
    Options = tagged(OPTIONS, _engine)

__all__ = [
    "OPTIONS",
    "MarkovOptions",
    "OfEngine",
    "Options",
    "OptionsSection",
    "SeriesOptions",
    "Share",
    "SpatialOptions",
    "TabularOptions",
    "TrajectoryOptions",
]
