"""Measuring many marginals of the same rows: shares of a budget, and exact noise on integer counts.

Guarantee: `measure` costs one event the sum of its laws' costs (epsilon, or mu^2): it moves one cell of each marginal
    by 1, and all cells of a marginal have noise of that marginal's law.
Units: events.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from engines.core.noise import LEAST_VARIANCE, NoiseSource
from engines.core.shares import CellNoise
from engines.tabular.marginals import Marginals
from schemas.arrays import FloatArray, IntArray

STEPS_PER_OCTAVE = 4
"""Shares are rounded to so many values per factor of two: few different scales are drawn faster."""
_UNIT = 1 << 20


def split(budget: Fraction, weights: npt.ArrayLike) -> tuple[Fraction, ...]:
    """Shares of a budget, nearly in proportion to positive weights; they add up to `budget` exactly.

    >>> split(Fraction(1), [1.0, 1.0, 2.0])
    (Fraction(1, 4), Fraction(1, 4), Fraction(1, 2))
    """
    octaves = np.rint(np.log2(np.asarray(weights, np.float64)) * STEPS_PER_OCTAVE) / STEPS_PER_OCTAVE
    parts = [max(1, round(math.ldexp(2.0 ** (octave % 1), int(octave // 1)) * _UNIT)) for octave in octaves.tolist()]
    whole = sum(parts)
    return tuple(budget * part / whole for part in parts)


def measure(counts: IntArray, layout: Marginals, laws: Sequence[CellNoise], noise: NoiseSource) -> IntArray:
    """Noisy counts `(cells,)` of PRIVATE ones, each marginal under its own law.

    Raises: EngineInputError if a cost is too small for exact noise.
    """
    noisy = np.zeros(layout.cells, np.int64)
    groups: dict[CellNoise, list[int]] = {}
    for index, law in enumerate(laws):
        groups.setdefault(law, []).append(index)
    for law, members in sorted(groups.items(), key=lambda group: group[0].cost):
        cells = np.concatenate([np.arange(layout.offsets[i], layout.offsets[i + 1]) for i in members])
        noisy[cells] = law.added(counts[cells], noise.child("marginals", members[0]))
    return noisy


def variances(laws: Sequence[CellNoise]) -> FloatArray:
    """`(marginals,)` variance of the noise of one cell, `LEAST_VARIANCE` at least."""
    known = {law: max(LEAST_VARIANCE, law.variance) for law in set(laws)}
    return np.array([known[law] for law in laws])
