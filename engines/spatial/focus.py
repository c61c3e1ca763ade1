"""What an audit reads off a release of a spatial engine: the leaf at a point, and what was measured there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engines.auditor.features import Features
from engines.auditor.fixture import Focus
from engines.spatial.domain import BoxDomain

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


def centre(box: BoxDomain, code: int) -> tuple[float, float]:
    node = np.array([(1 << box.depth) + code])
    xmin, ymin, xmax, ymax = (float(corner[0]) for corner in box.corners(node, np.array([box.depth])))
    return (xmin + xmax) / 2, (ymin + ymax) / 2
