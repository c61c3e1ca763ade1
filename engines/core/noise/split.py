"""PrivTree's decisions: one bit per tree node that says whether continuous Laplace noise exceeds a threshold.

Guarantee: the bits have exactly the probabilities of a comparison with real-valued noise, so the proof of PrivTree
    holds as it stands, far in the tails too. With a float64 probability the bit becomes certain 37 scales out, and then
    a node that certainly stops, beside a neighbouring one that may not stop, has no epsilon at all.
Source: [zhang2016], for the decision. The draw is ours: noise is never
    materialised, the bit is drawn from its own probability.
Units: thresholds are whole multiples of `unit`, e.g. `Fraction(1, 2**20)` events; `scale` is in events.
"""

from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from engines.core.noise.arguments import check_fraction, int64_vector
from engines.core.noise.bernoulli import private_coins
from engines.core.noise.door import opened
from engines.core.noise.source import NoiseSource
from engines.core.noise.uniform import random_bits
from engines.core.noise.witness import ExceedsLaw, UniformLaw, drawn
from schemas.arrays import BoolArray, IntArray


def laplace_exceeds(thresholds: ArrayLike, *, unit: Fraction, scale: Fraction, source: NoiseSource) -> BoolArray:
    """Draw `(n,)` bits, the i-th True with probability P(X > thresholds[i] * unit), X continuous Laplace(scale).

    Args:
        thresholds: `(n,)` int64, of either sign.
        unit: positive, what one threshold step means.
        scale: positive, of the Laplace law; any fraction.
    Raises: EngineInputError if thresholds are not integers, or unit or scale is not a positive Fraction.

    | threshold x | P(True) |
    |---|---|
    | x >= 0 | exp(-x / scale) / 2 |
    | x < 0 | 1 - exp(x / scale) / 2 |

    >>> from engines.core.noise import seeded
    >>> laplace_exceeds([-5, 0, 5], unit=Fraction(1, 2), scale=Fraction(1), source=seeded(1))
    array([ True,  True, False])
    """
    check_fraction("unit", unit)
    check_fraction("scale", scale)
    bits = partial(_bits, rate=unit / scale, source=source)
    return opened(thresholds, ExceedsLaw(unit, scale), bits, source, checked=partial(int64_vector, "thresholds"))


def _bits(thresholds: IntArray, rate: Fraction, source: NoiseSource) -> BoolArray:
    outside = np.zeros(thresholds.size, dtype=np.bool_)
    # Outside: the noise lies beyond the threshold, seen from zero. A fair coin picks the side, exp(-|x|/scale) the
    # rest. A threshold below zero is exceeded unless the noise lies beyond it.
    heads = np.flatnonzero(_sides(thresholds.size, source))
    # Taken as unsigned, the magnitude of -2**63 is right as well.
    magnitudes = np.abs(thresholds[heads]).view(np.uint64)
    outside[heads] = private_coins(magnitudes, rate, source)
    return outside ^ (thresholds < 0)


def _sides(count: int, source: NoiseSource) -> BoolArray:
    return drawn(source, UniformLaw(2, count), partial(random_bits, count))
