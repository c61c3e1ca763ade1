"""What engine `markov` is audited on: a state with many users, one with few and one with nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engines.auditor.features import Features
from engines.auditor.scenes.scene import DENSE, VISITED, Focus, Scene
from schemas.blocks import Folded
from schemas.config import Stream


def state_focus(value: str, known: Sequence[tuple[int, str, int]]) -> Focus:
    """What was measured in a state beyond the known events: all of a release that a user there can move.

    Args: known: step, state and number of events that both inputs have.
    """

    def focus(step: int, measurements: Sequence[Mapping[str, Any]]) -> Features:
        there = sum(count for at, state, count in known if (at, state) == (step, value))
        counted = [m["count"] for m in measurements if m["state"] == value]
        return {"residual": float(counted[-1] - there)} if counted else {}

    return focus


def markov(mode: str, *, steps: int = VISITED, epsilon: float = 2.0) -> Scene:
    """Three states; one holds `DENSE` users in each step, one a few, one nobody; the bound renews with every step."""
    content = b"0.8,0.1,0.1\n0.1,0.8,0.1\n0.1,0.1,0.8\n"
    values = ("dense", "few", "empty")
    stream = Stream.model_validate(
        {
            "name": "audit",
            "engine": "markov",
            "mode": mode,
            "source": "raw.audit",
            "privacy": {"epsilon": epsilon, "unit": "replace", "user": "u", "per": "1h"}
            | {"max_contributions": 1, "max_per_step": 1},
            "time": {"field": "t", "format": "s", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
            "domain": {"kind": "states", "field": "s", "values": values, "population": DENSE + 4}
            | {"transition": {"path": "chain.csv", "sha256": "", "content": content}},
            "options": {"lag": 1},
        }
    )
    crowd = (DENSE, 3)
    known = [(step, values[at], count) for step in range(steps) for at, count in enumerate(crowd)]
    places = {
        "dense cell": (0, None, state_focus(values[0], known)),
        "empty cell": (2, None, state_focus(values[2], known)),
    }
    base = Folded(np.array([[0], [1]], np.uint64), np.array(crowd, np.int64))
    return Scene(stream, base, places, {"moved from a dense to an empty state": (0, 2)})
