"""A small stream of the library, and rows for it."""

from __future__ import annotations

from typing import Any

import numpy as np

START = "2024-01-01T00:00:00"
TABLES: dict[str, Any] = {
    "engine": "spatial",
    "privacy": {"epsilon": 2, "user": "who", "max_contributions": 2},
    "time": {"field": "at", "step": "1h", "start": START},
    "domain": {"kind": "box", "x": "x", "y": "y", "bounds": [0, 0, 1, 1]},
    "options": {"depth": 4, "initial_steps": 1},
}


def rows(step: int, *, users: int = 40, first: int = 0) -> dict[str, Any]:
    """One row of each user, in a step."""
    at = np.datetime64(START) + np.timedelta64(3600 * step, "s") + np.arange(users).astype("timedelta64[s]")
    places = np.linspace(0.05, 0.95, users)
    return {"who": np.arange(first, first + users), "at": at, "x": places, "y": places[::-1].copy()}
