"""A crash that redraws when the draw was large: who can crash the job picks among its draws.

The honest job commits its seed before it draws, so the step that is computed again has the same noise.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from engines.auditor.cases import Case, Claim, Neighbours
from engines.auditor.observations import Observations
from engines.noise import NoiseSource, discrete_laplace
from schemas.arrays import IntArray

LARGE = 1


class SeedFirst:
    """Draws, crashes where the noisy count is large, and draws again after the crash."""

    def again(self, runs: int, before: IntArray, source: NoiseSource) -> IntArray:
        """The noise after a crash: that of the committed seed."""
        return before

    def release(self, count: int, runs: int, source: NoiseSource) -> IntArray:
        noise = discrete_laplace(runs, Fraction(1), source.child("committed"))
        first, second = count + noise, count + self.again(runs, noise, source)
        return np.where(first >= LARGE, second, first)


class RedrawnWhenLarge(SeedFirst):
    def again(self, runs: int, before: IntArray, source: NoiseSource) -> IntArray:
        return discrete_laplace(runs, Fraction(1), source.child("drawn anew"))


def _case(name: str, job: SeedFirst) -> Case:
    def run(side: int, runs: int, source: NoiseSource) -> Observations:
        return Observations.of_arrays(count=job.release(side, runs, source))

    return Case(name, "mechanism", Claim(Fraction(1)), neighbours=(Neighbours("insert, empty cell", run),))


def cheat() -> Case:
    return _case("redrawn when large", RedrawnWhenLarge())


def honest() -> Case:
    return _case("seed committed first", SeedFirst())
