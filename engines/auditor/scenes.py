"""What an engine is audited on: a small public world with a dense cell and an empty one, and what is read off releases.

An engine is audited by having a scene in `SCENES`; a test holds that to all registered engines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engines.auditor.features import Features
from engines.spatial import BoxDomain
from schemas.blocks import Folded
from schemas.config import Stream
from schemas.config.engines import ENGINE_FACTS, measures_expiry

STEPS = 5
LATE = 2
"""Step of late events; there are steps after it because an engine may hold events before it counts them."""
VISITED = 12
"""Steps of which the events are known, and in which canaries come where several are in one run."""
DENSE = 30

Key = int | tuple[int, ...]
"""Of an event: its word, or words."""
Focus = Callable[[int, Sequence[Mapping[str, Any]]], Features]
"""What a step's measurements say of one place."""

Located = tuple[int, float, float, int]
"""Step, x, y and number (negative: deleted) of events that both inputs have, so that the adversary knows them."""


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """Attributes:

    stream: configured as for production, but small, so that outputs repeat often enough to be counted.
    base: events of every step, the same in both inputs; the first step's where they are `changing`.
    places: name -> (key of an insert there, key of a delete there or None, focus).
    replaced: name -> (key of an event of one input, key of the one that stands in its place in the other).
    deletes: whether what is in the dense cell may be deleted.
    numbered: from a key and a step to the key of a unit of that step's own, where keys name units.
    changing: events of each step, where they may not be the same ones in each.
    """

    stream: Stream
    base: Folded
    places: Mapping[str, tuple[Key, Key | None, Focus]]
    replaced: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    deletes: bool = False
    numbered: Callable[[Key, int], Key] | None = None
    changing: Callable[[int], Folded] | None = None

    def at(self, step: int) -> Folded:
        """Events of a step that both inputs have."""
        return self.base if self.changing is None else self.changing(step)


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


def _tabular(mode: str) -> Scene:
    from engines.auditor.tabular import tabular

    return tabular(mode)


def _trajectory(mode: str) -> Scene:
    from engines.auditor.trajectory import trajectory

    return trajectory(mode)


SCENES: Mapping[str, Callable[[str], Scene]] = {
    "spatial": spatial,
    "markov": markov,
    "series": series,
    "tabular": _tabular,
    "trajectory": _trajectory,
}
