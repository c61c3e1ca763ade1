"""The exponential mechanism: choose an index, better ones exponentially more often.

Guarantee: epsilon-DP, if one record moves every utility by at most `sensitivity`. Exact: utilities are integers, and
    no weight is ever computed.
Source: [mcsherry2007]. Definition 2.2.7 of [kumar2024] has the
    sign of the exponent wrong.
Units: a utility is a whole multiple of `quantum`; `sensitivity` is in the units of `quantum`.
"""

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from engines.core.noise.arguments import check_fraction, int64_vector
from engines.core.noise.bernoulli import private_coins
from engines.core.noise.door import opened
from engines.core.noise.source import NoiseSource
from engines.core.noise.uniform import uniform_below
from engines.core.noise.witness import ExponentialLaw, UniformLaw, drawn
from schemas.arrays import IntArray
from schemas.errors import EngineInputError

_FIRST_BATCH = 64
_LAST_BATCH = 2**16


def exponential_mechanism(
    utilities: ArrayLike, *, quantum: Fraction, sensitivity: Fraction, epsilon: Fraction, source: NoiseSource
) -> int:
    """Choose index i with probability proportional to exp(epsilon * utilities[i] * quantum / (2 * sensitivity)).

    Args:
        utilities: `(n,)` int64, at least one; private.
        quantum: positive, what one step of a utility means, e.g. `Fraction(1, 2**20)`.
        sensitivity: positive, the most that one record moves any utility, in the units of `quantum` and with the
            rounding to multiples of it included.
        epsilon: positive, spent by this call.
    Returns: the index; safe to publish.
    Raises: EngineInputError if there is no utility, they are not integers, or a fraction is not positive.
    Privacy: the running time depends on how many utilities are near the best one. It is not part of the release; do
        not publish it.

    >>> from engines.core.noise import seeded
    >>> args = dict(quantum=Fraction(1), sensitivity=Fraction(1), epsilon=Fraction(1))
    >>> exponential_mechanism([0, 100, 3], **args, source=seeded(1))
    1
    """
    check_fraction("quantum", quantum)
    check_fraction("sensitivity", sensitivity)
    check_fraction("epsilon", epsilon)
    chosen = partial(_chosen, rate=epsilon * quantum / (2 * sensitivity), source=source)
    return opened(utilities, ExponentialLaw(quantum, sensitivity, epsilon), chosen, source, checked=_scores)


def _scores(utilities: Any) -> IntArray:
    scores = int64_vector("utilities", utilities)
    if not scores.size:
        raise EngineInputError("utilities must not be empty")
    return scores


def _chosen(utilities: IntArray, rate: Fraction, source: NoiseSource) -> int:
    # Unsigned arithmetic wraps: the gap is right even where it does not fit into int64.
    gaps = utilities.max().view(np.uint64) - utilities.view(np.uint64)
    # Rejection: propose a uniform index, accept it with probability exp(-gap). The first accepted one has the law asked
    # for, exactly. The best index is always accepted, so n proposals suffice on average even where it dominates:
    # no more work than reading the utilities took.
    batch = _FIRST_BATCH
    while True:
        proposed = _proposals(utilities.size, batch, source)
        accepted = private_coins(gaps[proposed], rate, source)
        if accepted.any():
            return int(proposed[np.argmax(accepted)])
        batch = min(2 * batch, _LAST_BATCH)


def _proposals(bound: int, count: int, source: NoiseSource) -> IntArray:
    return drawn(source, UniformLaw(bound, count), partial(uniform_below, bound, count))
