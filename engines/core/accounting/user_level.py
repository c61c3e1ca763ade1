"""From what a user is promised to what an engine may spend on one event of theirs, and what a group is promised.

Pure DP divides: epsilon for a user of m events is epsilon / m for each. (epsilon, delta) does NOT: an engine calibrated
to (epsilon / m, delta / m) for one event breaks the promise to the user (tests/accounting/test_user_level.py shows by
how much). For Gaussian noise find the user's mu and run events at mu / m: shifts add up, whatever the steps. Where at
most C of a user's events meet the same draws, mu / sqrt(m C) does.
Source: [dwork2014], theorem 2.2 (groups); [dong2019], theorem 5 (groups of Gaussian DP); `group_delta`: [vadhan2017],
    lemma 2.2, with its sum left as it is.
Units: epsilon in nats; m is the contribution bound, `max_contributions`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from engines.core.accounting.arguments import check_epsilon, check_positive, check_whole
from engines.core.noise.arguments import shortened

_BITS = 32


def group_delta(epsilon: float, delta: float, members: int) -> float:
    """Return the delta of `members` changes together, at `members` times epsilon, of any (epsilon, delta)-DP mechanism.

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


def times_mu_squared(contributions: int, together: int | None = None) -> int:
    """Return how many times the mu^2 of one event a user of so many may cost.

    Shifts of events that are measured together add up in each count, so n of them are at most n times as long as one
    (triangle inequality): n^2. What is measured apart has noise of its own, and mu^2 adds up. Of all ways to put the
    events into measurements of at most `together` each, full ones cost most: n^2 is convex.
    Raises: EngineInputError if a number is below 1.

    >>> times_mu_squared(10), times_mu_squared(10, 1), times_mu_squared(10, 4)
    (100, 10, 36)
    """
    most = contributions if together is None else together
    check_whole(contributions=contributions, together=most)
    full, rest = divmod(contributions, most)
    return full * most**2 + rest**2


@lru_cache(maxsize=64)
def event_mu_squared(epsilon: Fraction, delta: float, contributions: int, together: int | None = None) -> Fraction:
    """Return the mu^2 that Gaussian noise may cost one event in all, where a user of so many has (epsilon, delta).

    Args: together: events of a user at most that are measured by the same draws; None: all.
    Rounded down to short terms, by less than 2^-31 of it.
    Raises: EngineInputError if a number is out of range.

    >>> one, ten, apart = (event_mu_squared(Fraction(1), 1e-6, *m) for m in ((1,), (10,), (10, 1)))
    >>> round(1 / float(one), 2), round(float(one / ten), 6), round(float(one / apart), 6)
    (17.85, 100.0, 10.0)
    """
    from engines.core.accounting.gaussian import mu_squared_for  # here: what is pure need not load scipy

    check_epsilon(epsilon)
    return shortened(mu_squared_for(epsilon, delta) / times_mu_squared(contributions, together), _BITS, up=False)
