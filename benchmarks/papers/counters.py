"""Counters under pure DP that the product's are compared with: variances of their running sums, from their matrices.

Each function takes the number of activations and epsilon, and returns `(horizon,)` variances in squared events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np

from engines.noise import DiscreteLaplace, scale_for
from schemas.arrays import FloatArray


def honaker(horizon: int, epsilon: Fraction) -> FloatArray:
    """Binary tree with estimates from below: same nodes and noise as `tree`, about 40 % less variance.

    A node of height l and those below it together estimate its interval, best with weights that are inverse to the
    heights' variances: with 2^l / (2^(l+1) - 1) times the variance of a node.
    Source: [honaker2015] (estimation from below).
    """
    levels, t = horizon.bit_length(), np.arange(1, horizon + 1)
    heights = sum((t >> level & 1) * (2**level / (2 ** (level + 1) - 1)) for level in range(levels))
    return np.asarray(heights) * DiscreteLaplace(scale_for(levels, epsilon)).variance


COUNTERS: Mapping[str, Callable[[int, Fraction], FloatArray]] = {"honaker": honaker}
