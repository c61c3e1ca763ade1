"""Integer noise on a real-valued statistic: the fraction of w * z passes through the noise untouched."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from engines.auditor.cases import Case, Claim, Neighbours
from engines.auditor.observations import Observations
from engines.noise import NoiseSource, discrete_laplace

WEIGHT = 0.3


class RealPlusInteger:
    """w * z + n, with sensitivity w <= 1 and noise for sensitivity 1: enough, if it were on the same lattice."""

    def release(self, count: int, runs: int, source: NoiseSource) -> np.ndarray:
        return WEIGHT * count + discrete_laplace(runs, Fraction(1), source)


class OnTheLattice(RealPlusInteger):
    """z + n first, which is on integers; the weight comes after."""

    def release(self, count: int, runs: int, source: NoiseSource) -> np.ndarray:
        return WEIGHT * (count + discrete_laplace(runs, Fraction(1), source))


def _case(name: str, mechanism: RealPlusInteger) -> Case:
    def run(side: int, runs: int, source: NoiseSource) -> Observations:
        return Observations.of_arrays(value=mechanism.release(5 + side, runs, source))

    return Case(name, "mechanism", Claim(Fraction(1)), neighbours=(Neighbours("insert", run),))


def cheat() -> Case:
    return _case("integer noise on a real number", RealPlusInteger())


def honest() -> Case:
    return _case("integer noise on integers", OnTheLattice())
