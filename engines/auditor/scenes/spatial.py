"""What engine `spatial` is audited on: a dense cell and an empty one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engines.auditor.features import Features
from engines.auditor.scenes.scene import DENSE, VISITED, Focus, Scene
from engines.spatial import BoxDomain
from schemas.blocks import Folded
from schemas.config import Stream
from schemas.config.engines import measures_expiry

Located = tuple[int, float, float, int]
"""Step, x, y and number (negative: deleted) of events that both inputs have, so that the adversary knows them."""


def spatial_focus(x: float, y: float, known: Sequence[Located]) -> Focus:
    """The leaf that holds a point: how deep it is, and what was measured there in a step beyond the known events.

    That is all of a release that one event at the point can move, up to post-processing.
    """

    def focus(step: int, measurements: Sequence[Mapping[str, Any]]) -> Features:
        here = [measurement for measurement in measurements if within(measurement["cell"], x, y)]
        if not here:
            return {}
        # The first release and bursts count the events of a step in several rounds, in smaller and smaller cells.
        cell = here[-1]["cell"]
        since = min(measurement.get("since", step - 1) for measurement in here)
        there = sum(count for at, px, py, count in known if since < at <= step and within(cell, px, py))
        found = sum(measurement["increment"] for measurement in here)
        return {"depth": float(here[-1]["depth"]), "residual": float(found - there)}

    return focus


def within(cell: Sequence[float], x: float, y: float) -> bool:
    """A cell across the antimeridian has its west above its east."""
    xmin, ymin, xmax, ymax = cell
    return (xmin <= x < xmax if xmin <= xmax else x >= xmin or x < xmax) and ymin <= y < ymax


def spatial(mode: str, *, steps: int = VISITED, ttl: str | None = None, epsilon: float = 2.0) -> Scene:
    """16 cells; one holds `DENSE` new events each step, its neighbour a few, the far corner none.

    Epsilon is large on purpose: a mistake is a factor of the loss, and between 2 and 3 a factor shows in fewest runs.
    """
    depth = 4
    domain: dict[str, Any] = {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0]}
    if ttl is not None:
        domain["ttl"] = ttl
    expiries_measured = ttl is not None and measures_expiry("spatial", mode)
    stream = Stream.model_validate(
        {
            "name": "audit",
            "engine": "spatial",
            "mode": mode,
            "source": "raw.audit",
            "privacy": {"epsilon": epsilon * (2 if expiries_measured else 1), "unit": "event"},
            "time": {"field": "t", "format": "s", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
            "domain": domain,
            "options": {"depth": depth, "initial_steps": 1, "max_leaves": 16, "allow_not_private": True},
        }
    )
    box = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth)
    centres = {code: centre(box, code) for code in (4, 5, 14)}
    crowd = ((5, DENSE), (4, 3))
    known = [(step, *centres[code], count) for step in range(steps) for code, count in crowd]
    if expiries_measured:
        known += [(step, *centres[code], -count) for step in range(1, steps) for code, count in crowd]
    places = {
        name: (code << 1, code << 1 | 1, spatial_focus(*centres[code], known))
        for name, code in (("dense cell", 5), ("empty cell", 14))
    }
    keys, counts = zip(*((code << 1, count) for code, count in sorted(crowd)), strict=True)
    base = Folded(np.array(keys, np.uint64).reshape(-1, 1), np.array(counts, np.int64))
    return Scene(stream, base, places, deletes=True)


def centre(box: BoxDomain, code: int) -> tuple[float, float]:
    node = np.array([(1 << box.depth) + code])
    xmin, ymin, xmax, ymax = (float(corner[0]) for corner in box.corners(node, np.array([box.depth])))
    return (xmin + xmax) / 2, (ymin + ymax) / 2
