"""The sensitivity of add/remove used where one record REPLACES another: two counts move, noise is for one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from engines.auditor.cases import Case, Claim, Exact, Neighbours
from engines.auditor.exact import laplace_loss
from engines.auditor.observations import Observations
from engines.noise import NoiseSource, discrete_laplace, scale_for


class Histogram:
    """Counts of two cells under a fixed population."""

    def __init__(self, l1_sensitivity: int) -> None:
        self.scale = scale_for(l1_sensitivity, Fraction(1))

    def release(self, counts: tuple[int, int], runs: int, source: NoiseSource) -> np.ndarray:
        return np.array(counts)[:, None] + discrete_laplace(2 * runs, self.scale, source).reshape(2, runs)


def _case(name: str, histogram: Histogram) -> Case:
    def run(side: int, runs: int, source: NoiseSource) -> Observations:
        left, right = histogram.release((6, 4) if side else (5, 5), runs, source)
        return Observations.of_arrays(left=left, right=right, difference=left - right)

    moved = np.array([[1], [-1]])
    exact = Exact("L1 of a replacement over scale", lambda: laplace_loss(moved, histogram.scale))
    return Case(
        name, "mechanism", Claim(Fraction(1)), neighbours=(Neighbours("one record replaced", run),), exact=(exact,)
    )


def cheat() -> Case:
    return _case("histogram of replacements, sensitivity 1", Histogram(1))


def honest() -> Case:
    return _case("histogram of replacements, sensitivity 2", Histogram(2))
