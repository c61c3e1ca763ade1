"""Measuring many marginals of the same rows: shares of a budget, and exact noise on integer counts.

Guarantee: `measure` is epsilon-DP with epsilon the sum of the marginals' epsilons: one event moves one cell of each
    marginal by 1, and its cell gets discrete Laplace noise of scale 1/epsilon of that marginal (or larger).
Units: events.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from engines.noise import DiscreteLaplace, NoiseSource, laplace_mechanism, scale_for
from engines.tabular.marginals import Marginals
from schemas.arrays import FloatArray, IntArray

STEPS_PER_OCTAVE = 4
"""Shares are rounded to so many values per factor of two: few different scales are drawn faster."""
_UNIT = 1 << 20


def split(epsilon: Fraction, weights: npt.ArrayLike) -> tuple[Fraction, ...]:
    """Shares of a budget, nearly in proportion to positive weights; they add up to `epsilon` exactly.

    >>> split(Fraction(1), [1.0, 1.0, 2.0])
    (Fraction(1, 4), Fraction(1, 4), Fraction(1, 2))
    """
    octaves = np.rint(np.log2(np.asarray(weights, np.float64)) * STEPS_PER_OCTAVE) / STEPS_PER_OCTAVE
    parts = [max(1, round(math.ldexp(2.0 ** (octave % 1), int(octave // 1)) * _UNIT)) for octave in octaves.tolist()]
    whole = sum(parts)
    return tuple(epsilon * part / whole for part in parts)


def measure(counts: IntArray, layout: Marginals, epsilons: Sequence[Fraction], noise: NoiseSource) -> IntArray:
    """Noisy counts `(cells,)` of PRIVATE ones, each marginal under its own epsilon.

    Raises: EngineInputError if an epsilon is too small for exact noise.
    """
    noisy = np.zeros(layout.cells, np.int64)
    groups: dict[Fraction, list[int]] = {}
    for index, epsilon in enumerate(epsilons):
        groups.setdefault(epsilon, []).append(index)
    for epsilon, members in sorted(groups.items()):
        cells = np.concatenate([np.arange(layout.offsets[i], layout.offsets[i + 1]) for i in members])
        noisy[cells] = laplace_mechanism(counts[cells], scale_for(1, epsilon), noise.child("marginals", members[0]))
    return noisy


def variances(epsilons: Sequence[Fraction]) -> FloatArray:
    """`(marginals,)` variance of the noise of one cell."""
    known: dict[Fraction, float] = {}
    for epsilon in epsilons:
        if epsilon not in known:
            known[epsilon] = DiscreteLaplace(scale_for(1, epsilon)).variance
    return np.array([known[epsilon] for epsilon in epsilons])
