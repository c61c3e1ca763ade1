"""Small series engines and streams for the tests beside this file."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from engines.core.contract import Batch, Release
from engines.core.noise import seeded
from engines.series.budget import Presence
from engines.series.build import config_class
from engines.series.config import SeriesConfig
from engines.series.engine import Series
from engines.series.fields import SeriesDomain, SeriesField
from schemas.blocks import Folded

READING = SeriesDomain((SeriesField(name="v", of="value", limits=(-1000.0, 1000.0), sensitivity=1.0),))
COUNT = SeriesDomain((SeriesField(name="n"),))
TWO = SeriesDomain((SeriesField(name="n"), SeriesField(name="km", of="sum", limits=(-3.0, 10.0), share=Fraction(3))))


def recipe(mode: str = "default", domain: SeriesDomain = READING, **changes: Any) -> SeriesConfig:
    """A config with a horizon of 12 steps."""
    given: dict[str, Any] = {
        "name": "test",
        "domain": domain,
        "mode": mode,
        "epsilon": Fraction(1),
        "delta": 1e-6,
        "presence": Presence(steps=12) if domain.readings else Presence(events=6, per_step=2, steps=12),
        "horizon": 12,
    }
    return config_class(mode)(**{**given, **changes})


def reading(step: int, *values: float, domain: SeriesDomain = READING) -> Batch:
    """A step with readings of the first field."""
    lattice = domain.fields[0].lattice(np.array(values, np.float64))
    return Batch(step, Folded.from_keys(lattice.reshape(-1, 1).view(np.uint64)))


def run(config: SeriesConfig, values: Sequence[float], *, seed: int = 1) -> list[Release]:
    """One reading a step; NaN: none."""
    engine = Series(config)
    batches = [reading(t, *([] if np.isnan(value) else [value])) for t, value in enumerate(values)]
    return [engine.step(batch, seeded(seed).child(batch.step)) for batch in batches]


def released(releases: Sequence[Release], name: str = "v") -> np.ndarray:
    """Released values in the order of their steps."""
    rows = sorted((record.fields["step"], record.fields[name]) for release in releases for record in release.added)
    return np.array([value for _, value in rows])
