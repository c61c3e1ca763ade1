"""A generator with a fixed seed. Its noise has the right law, and everybody can subtract it.

Runs in one process see nothing: the generator goes on from draw to draw. What tells is that two processes, each with a
fresh seed of the operating system, release the same.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from engines.auditor.cases import Case, Claim, Fresh
from engines.noise import NoiseSource, discrete_laplace


class SeededNoise:
    """Made once for each process; takes the noise source and does not use it."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng(20160101)

    def release(self, source: NoiseSource) -> bytes:
        return (self._generator.geometric(0.6, 64) - self._generator.geometric(0.6, 64)).tobytes()


class SourceNoise:
    def release(self, source: NoiseSource) -> bytes:
        return discrete_laplace(64, Fraction(1), source).tobytes()


def _case(name: str, process: Callable[[], SeededNoise | SourceNoise]) -> Case:
    fresh = Fresh(lambda source: process().release(source), collision=1e-20, runs=100)
    return Case(name, "mechanism", Claim(Fraction(1)), fresh=(fresh,))


def cheat() -> Case:
    return _case("seeded generator", SeededNoise)


def honest() -> Case:
    return _case("noise of the source", SourceNoise)
