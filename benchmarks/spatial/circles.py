"""The papers' simulation: 5,000 points on two circles, then 500 a step that move from the outer to the inner one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.size import sized
from benchmarks.spatial.streams import NOTHING, Points, Source, StreamData, box

STEPS = sized(100, smallest=5)
BURSTS = {20: (0.03, 0.03), 40: (0.95, 0.05), 60: (0.04, 0.96), 80: (0.96, 0.95)}
"""Steps at which 1,500 events come to a corner that is quiet before and after."""


def circles(seed: int, early: float, *, deletion: bool = False, bursts: bool = False) -> StreamData:
    """With `deletion` 250 of those alive are deleted at each step. A tenth of all come with the first step."""
    random = np.random.default_rng(100 + seed)

    def ring(count: int, inner: float) -> Points:
        radius = np.where(random.random(count) < inner, 0.15, 0.4) + random.normal(0, 0.01, count)
        angle = random.uniform(0, 2 * np.pi, count)
        return np.stack([0.5 + radius * np.cos(angle), 0.5 + radius * np.sin(angle)], 1)

    points = ring(5000, 0.1)
    inserts, deletes = [points], [NOTHING]
    for step in range(STEPS):
        gone = random.choice(len(points), 250 if deletion else 0, replace=False)
        deletes.append(points[gone])
        inserts.append(ring(500, step / STEPS))
        if bursts and step in BURSTS:
            inserts[-1] = np.concatenate([inserts[-1], BURSTS[step] + 0.01 * random.random((1500, 2))])
        points = np.concatenate([np.delete(points, gone, axis=0), inserts[-1]])
    return StreamData(box(0, 0, 1, 1)(), inserts, deletes, None, 1 + max(0, round(early * 1.1 * STEPS - 11)))


CIRCLES: Mapping[str, Source] = {
    "circles": Source(circles),
    "circles, deletion": Source(lambda seed, early: circles(seed, early, deletion=True), tuned=True),
    "circles, bursts": Source(lambda seed, early: circles(seed, early, bursts=True)),
}
