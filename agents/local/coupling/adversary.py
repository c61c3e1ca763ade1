"""Outputs that an adversary chooses: any has a positive probability, whatever the data are."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from engines.checks.coupling import OutputAdversary
from engines.core.noise.witness import CounterLaw, ExceedsLaw, ExponentialLaw, GaussianLaw, LaplaceLaw, Law

SELDOM = 0.05


class Choosing(OutputAdversary):
    """Chooses outputs far from what is true now and then, as rare noise does: trees grow and die, bursts begin."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def output(self, law: Law, private: Any, drawn: Any) -> Any:
        if isinstance(law, ExceedsLaw) and self._chance.random() < 0.5:
            # Trees as deep as they can be: a unit pays on the whole path.
            return np.ones_like(drawn)
        if self._chance.random() > SELDOM:
            return drawn
        match law:
            case LaplaceLaw(scale):
                return self._moved(drawn, 30 * float(scale))
            case GaussianLaw(sigma_squared):
                return self._moved(drawn, 8 * float(sigma_squared) ** 0.5)
            case ExceedsLaw():
                return drawn ^ (np.array([self._chance.random() < 0.3 for _ in drawn], np.bool_))
            case ExponentialLaw():
                return self._chance.randrange(len(private))
            case CounterLaw():
                return self._moved(drawn, 40.0 * law.resolution)
            case _:
                return drawn

    def _moved(self, values: Any, size: float) -> Any:
        if isinstance(values, int):
            return values + int(self._chance.uniform(-size, size))
        moves = [int(self._chance.uniform(-size, size)) if self._chance.random() < 0.5 else 0 for _ in values]
        return values + np.array(moves, np.int64)
