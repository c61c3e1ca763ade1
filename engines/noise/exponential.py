"""The exponential mechanism: choose an index, better ones exponentially more often.

Guarantee: epsilon-DP, if one record moves every utility by at most `sensitivity`. Exact: utilities are integers, and
    no weight is ever computed.
Source: [mcsherry2007]. Definition 2.2.7 of [kumar2024] has the
    sign of the exponent wrong.
Units: a utility is a whole multiple of `quantum`; `sensitivity` is in the units of `quantum`.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from engines.noise.arguments import check_fraction, int64_vector
from engines.noise.bernoulli import bernoulli_exp_multiples
from engines.noise.private import revealed
from engines.noise.source import NoiseSource
from engines.noise.uniform import uniform_below
from engines.noise.witness import ExponentialLaw, released
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

    >>> from engines.noise import seeded
    >>> args = dict(quantum=Fraction(1), sensitivity=Fraction(1), epsilon=Fraction(1))
    >>> exponential_mechanism([0, 100, 3], **args, source=seeded(1))
    1
    """
    scores = int64_vector("utilities", revealed(utilities))
    if not scores.size:
        raise EngineInputError("utilities must not be empty")
    check_fraction("quantum", quantum)
    check_fraction("sensitivity", sensitivity)
    check_fraction("epsilon", epsilon)
    law = ExponentialLaw(quantum, sensitivity, epsilon)
    return released(source, law, scores, lambda: _chosen(scores, epsilon * quantum / (2 * sensitivity), source))


def _chosen(utilities: IntArray, rate: Fraction, source: NoiseSource) -> int:
    # Unsigned arithmetic wraps: the gap is right even where it does not fit into int64.
    gaps = utilities.max().view(np.uint64) - utilities.view(np.uint64)
    # Rejection: propose a uniform index, accept it with probability exp(-gap). The first accepted one has the law asked
    # for, exactly. The best index is always accepted, so n proposals suffice on average even where it dominates:
    # no more work than reading the utilities took.
    batch = _FIRST_BATCH
    while True:
        proposed = uniform_below(utilities.size, batch, source)
        accepted = bernoulli_exp_multiples(gaps[proposed], rate, source)
        if accepted.any():
            return int(proposed[np.argmax(accepted)])
        batch = min(2 * batch, _LAST_BATCH)
