"""Endless clustered points, the same every time, and the engines that get them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from engines.core.contract import Columns
from engines.spatial.domain.box import BoxDomain
from engines.spatial.held.engine import HeldConfig, HeldLeaves
from engines.spatial.papers.phdstream import PHDStream, PHDStreamConfig
from schemas.blocks import Folded

DOMAIN = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth=18)
EVENTS = 2_000
CHUNK = 1_000_000
DRAWN = 10_000_000
"""Events that are drawn at most; of more, each stands for several."""
MODES = ("default", "paper")
Engine = HeldLeaves | PHDStream


class City:
    """40 Gaussian spots of different sizes, the same for every seed: what comes later comes where the first was."""

    def __init__(self, seed: int) -> None:
        places = np.random.default_rng(1)
        self._centres = places.random((40, 2))
        self._spreads = 0.003 + 0.05 * places.random(40)
        weights = places.random(40) ** 3
        self._weights = weights / weights.sum()
        self._random = np.random.default_rng((seed, 1))

    def events(self, count: int) -> Folded:
        """So many new ones, folded."""
        times = -(-count // DRAWN)
        folded = Folded.empty(1)
        for start in range(0, count // times, CHUNK):
            size = min(CHUNK, count // times - start)
            spots = self._random.choice(40, size, p=self._weights)
            noise = self._random.normal(size=(size, 2)) * self._spreads[spots, None]
            x, y = np.clip(self._centres[spots] + noise, 0, 1 - 1e-9).T
            keys, _ = DOMAIN.encode(Columns({"x": x, "y": y}, {}, np.ones(size, np.int8)))
            folded = folded.merge(Folded.from_keys(keys))
        return Folded(folded.keys, folded.counts * times)


def fresh(mode: str) -> Engine:
    """An engine of this mode before its first step."""
    if mode == "paper":
        return PHDStream(PHDStreamConfig(name="bench", domain=DOMAIN, epsilon=Fraction(1, 2)))
    return HeldLeaves(HeldConfig(name="bench", domain=DOMAIN, epsilon=Fraction(1, 2)))
