"""How far one user can move a series of weighted noisy values: the worst arrangement of their events over the steps.

A user has at most `total` events, at most `per_step` of them in one step; n_t events in step t move the value there
by n_t * weights[t].
Guarantee: `l2_squared` is the exact maximum over all arrangements.
Source: ours. Proof: the sum is convex in n, so a corner of {0 <= n_t <= c, sum <= m} is worst: as
    many steps as possible full and at most one partly; exchanging two steps shows that the largest weights get them.
Units: those of the values; `l2_squared` is the square, exact, because its root seldom is.
"""

import heapq
from collections.abc import Iterable
from fractions import Fraction

from engines.core.accounting.arguments import Real, check_whole
from schemas.errors import EngineInputError


def l2_squared(weights: Iterable[Real], *, total: int, per_step: int) -> Fraction:
    """Return the largest sum of (n_t * weights[t])**2.

    Args:
        weights: one for each step; signs do not matter.
        total: events of one user over all steps. per_step: in one of them.
    Raises: EngineInputError if a bound is below 1 or a weight is not finite.

    >>> l2_squared([1, 3, 2], total=3, per_step=2)
    Fraction(40, 1)
    """
    return sum(((n * w) ** 2 for n, w in worst(weights, total=total, per_step=per_step)), Fraction(0))


def worst(weights: Iterable[Real], *, total: int, per_step: int) -> list[tuple[int, Fraction]]:
    """Return the worst arrangement: (events, weight) of each step that has any, largest weight first.

    Raises: EngineInputError as `l2_squared`.
    """
    check_whole(total=total, per_step=per_step)
    try:
        sizes = [abs(Fraction(w)) for w in weights]
    except (ValueError, OverflowError):
        raise EngineInputError("weights must be finite") from None
    arrangement = []
    for weight in heapq.nlargest(-(-total // per_step), sizes):
        arrangement.append((min(per_step, total), weight))
        total -= min(per_step, total)
    return arrangement
