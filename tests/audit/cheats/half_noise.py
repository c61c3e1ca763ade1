"""Half the noise: a counter that is calibrated for twice the cost it states. Only runs tell."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from engines.audited.counters import case
from engines.auditor.cases import Case
from engines.counters import Counter, SimpleConfig


class HalvedNoise:
    """Steps as the counter of twice the cost, says all else as the honest one."""

    def __init__(self, cost: Fraction) -> None:
        self._honest = SimpleConfig().calibrate(cost)
        self._noisy = SimpleConfig().calibrate(2 * cost)
        self.initial = self._noisy.initial
        self.step = self._noisy.step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)


class HalvedConfig:
    def calibrate(self, cost: Fraction, /) -> Counter:
        return HalvedNoise(cost)  # type: ignore[return-value]


def cheat() -> Case:
    return case("with half the noise", HalvedConfig(), watched=4)


def honest() -> Case:
    return case("with all its noise", SimpleConfig(), watched=4)
