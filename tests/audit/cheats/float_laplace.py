"""Float Laplace noise, whose low bits tell what it was added to ([mironov2012]).

0 + noise keeps the noise's own low bits, 1 + noise is rounded to the grid of numbers near 1: outputs that are on no
grid of 1 come from 0. The auditor looks at the lowest set bit of every number that is not whole.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from engines.auditor.cases import Case, Claim, Neighbours
from engines.auditor.observations import Observations
from engines.noise import NoiseSource, discrete_laplace


class FloatLaplace:
    """The textbook sampler: a uniform float64 through the inverse distribution function."""

    def noise(self, runs: int, source: NoiseSource) -> np.ndarray:
        uniform = (source.words(runs) >> np.uint64(11)).astype(np.float64) * 2.0**-53 - 0.5
        return -np.sign(uniform) * np.log1p(-2 * np.abs(uniform))


class IntegerLaplace:
    def noise(self, runs: int, source: NoiseSource) -> np.ndarray:
        return discrete_laplace(runs, Fraction(1), source).astype(np.float64)


def _case(name: str, sampler: FloatLaplace | IntegerLaplace) -> Case:
    def run(side: int, runs: int, source: NoiseSource) -> Observations:
        return Observations.of_arrays(count=side + sampler.noise(runs, source))

    return Case(name, "mechanism", Claim(Fraction(1)), neighbours=(Neighbours("insert, empty cell", run),))


def cheat() -> Case:
    return _case("float Laplace", FloatLaplace())


def honest() -> Case:
    return _case("discrete Laplace", IntegerLaplace())
