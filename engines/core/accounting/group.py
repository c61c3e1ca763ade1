"""What a group of neighbours is promised: several events of somebody, several ids of one person.

Source: [vadhan2017], lemma 2.2, with its sum left as it is.
"""

from __future__ import annotations

import math

from engines.core.accounting.arguments import check_positive, check_whole


def group_delta(epsilon: float, delta: float, members: int) -> float:
    """The delta of `members` changes together, at `members` times epsilon, of any (epsilon, delta)-private mechanism.

    One change after the other: `P(D0) <= e^eps P(D1) + delta <= ...`, so delta times the sum of `e^(i eps)`, i < k.

    Returns: at most 1, which promises nothing.
    Raises: EngineInputError if `members` is not a positive whole number, or epsilon not a positive finite one.

    >>> group_delta(1.0, 0.0, 5)
    0.0
    >>> round(group_delta(1.0, 1e-6, 2), 9)
    3.718e-06
    """
    check_whole(members=members)
    check_positive(epsilon=epsilon)
    if not delta:
        return 0.0
    exponent = members * epsilon
    if exponent > 700.0:
        return 1.0
    return min(1.0, delta * math.expm1(exponent) / math.expm1(epsilon))
