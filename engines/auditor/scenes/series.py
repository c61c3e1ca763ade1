"""What engine `series` is audited on: a sum of values, to which one user adds the largest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engines.auditor.features import Features
from engines.auditor.scenes.scene import DENSE, VISITED, Focus, Scene
from schemas.blocks import Folded
from schemas.config import Stream
from schemas.config.engines import ENGINE_FACTS


def series_focus(name: str, known: Sequence[tuple[int, float, int]]) -> Focus:
    """What was measured of a series beyond the known events' values."""

    def focus(step: int, measurements: Sequence[Mapping[str, Any]]) -> Features:
        found: Features = {}
        for measurement in measurements:
            if measurement["field"] == name and "value" in measurement and "coefficient" not in measurement:
                there = sum(value * count for at, value, count in known if at == measurement["of_step"])
                found["residual"] = float(measurement["value"]) - there
        return found

    return focus


def series(mode: str, *, steps: int = VISITED, epsilon: float = 1.5) -> Scene:
    """A sum of values up to 4, `DENSE` of 2 in each step; the audited user has one event, as large as can be."""
    highest, middle = 8192, 4096
    window = {"per": "4h"} if mode in ("ba", "bd") else {}
    delta = {"delta": 1e-3} if mode in ENGINE_FACTS["series"].needs_delta else {}
    stream = Stream.model_validate(
        {
            "name": "audit",
            "engine": "series",
            "mode": mode,
            "source": "raw.audit",
            "privacy": {"epsilon": epsilon, "unit": "user", "user": "u", "max_contributions": 1, **window, **delta},
            "time": {"field": "t", "format": "s", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
            "domain": {"kind": "series", "fields": [{"name": "km", "of": "sum", "limits": [0.0, 4.0]}]},
            "options": {"horizon": 32, "delay": 2, "coefficients": 1},
        }
    )
    focus = series_focus("km", [(step, 2.0, DENSE) for step in range(steps)])
    base = Folded(np.array([[middle]], np.uint64), np.array([DENSE], np.int64))
    return Scene(stream, base, {"dense cell": (highest, None, focus)})
