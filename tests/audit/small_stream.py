"""A stream small enough to be run thousands of times."""

from __future__ import annotations

from typing import Any

from schemas.config import Stream


def stream(*, unit: str = "user", contributions: int | None = 1, name: str = "small", **more: Any) -> Stream:
    """Mode paper with nine tenths of the budget for counting: it releases every event at once, so a step is short."""
    user = {"user": "u", "max_contributions": contributions} if unit == "user" else {}
    return Stream.model_validate(
        {
            "name": name,
            "engine": "spatial",
            "mode": "paper",
            "source": "raw.small",
            "privacy": {"epsilon": 1.5, "unit": unit, **user},
            "time": {"field": "t", "format": "s", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
            "domain": {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0]},
            "options": {"depth": 2, "initial_steps": 1, "split": 0.1},
            **more,
        }
    )
