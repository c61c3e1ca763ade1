"""Streams that the spatial engines are tested on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engines.core.contract import Columns, Release
from engines.spatial.domain.base import SpatialDomain
from engines.spatial.domain.box import BoxDomain
from schemas.blocks import Folded

BOX = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), 14)


def encode(x: np.ndarray, y: np.ndarray, *, domain: SpatialDomain = BOX, delete: bool = False) -> Folded:
    signs = np.full(len(x), -1 if delete else 1, np.int8)
    keys, _ = domain.encode(Columns({"x": x, "y": y}, {}, signs))
    return Folded.from_keys(keys)


def city(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Two streets and a square."""
    kind = random.integers(0, 4, count)
    along, across = random.random(count), random.normal(0, 0.01, count)
    x = np.select([kind == 0, kind == 1], [along, 0.3 + across], random.normal(0.7, 0.03, count))
    y = np.select([kind == 0, kind == 1], [0.2 + across, along], random.normal(0.6, 0.03, count))
    return np.clip(x, 0, 0.999), np.clip(y, 0, 0.999)


def alive(releases: Sequence[Release]) -> dict[str, dict[str, float]]:
    """What a consumer holds who has read all of them."""
    records: dict[str, dict[str, float]] = {}
    for release in releases:
        for name in release.removed:
            del records[name]
        records.update({record.id: dict(record.fields) for record in release.added})
    return records
