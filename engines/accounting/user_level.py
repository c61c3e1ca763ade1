"""From what a user is promised to what an engine may spend on one event of theirs.

Pure DP divides: epsilon for a user of m events is epsilon / m for each. (epsilon, delta) does NOT: an engine calibrated
to (epsilon / m, delta / m) for one event breaks the promise to the user (tests/accounting/test_user_level.py shows by
how much). For Gaussian noise find the user's mu and run events at mu / m: shifts add up, whatever the steps.
Source: [dwork2014], theorem 2.2 (groups); [dong2019], theorem 5 (groups of Gaussian DP).
Units: epsilon in nats; m is the contribution bound, `max_contributions`.
"""

from fractions import Fraction
from functools import lru_cache

from engines.accounting.arguments import Real, check_delta, check_epsilon, check_whole
from engines.accounting.group import group_delta

_BITS = 32


def event_epsilon(epsilon: Fraction, contributions: int) -> Fraction:
    """Return the epsilon of one event under pure DP; exact.

    Raises: EngineInputError if epsilon is not a positive Fraction or the bound is below 1.

    >>> event_epsilon(Fraction(1, 10), 2)
    Fraction(1, 20)
    """
    check_epsilon(epsilon)
    check_whole(contributions=contributions)
    return epsilon / contributions


@lru_cache(maxsize=64)
def event_mu_squared(epsilon: Fraction, delta: float, contributions: int) -> Fraction:
    """Return the mu^2 that Gaussian noise may cost one event in all, where a user of so many has (epsilon, delta).

    Shifts of a user's events add up in each count, so the user's are at most `contributions` times as long as one
    event's (triangle inequality), wherever the events fall. Rounded down to short terms, the last 2^-32 of it or less.
    Raises: EngineInputError if a number is out of range.

    >>> one, ten = (event_mu_squared(Fraction(1), 1e-6, m) for m in (1, 10))
    >>> round(1 / float(one), 2), round(float(one / ten), 6)
    (17.85, 100.0)
    """
    from engines.accounting import gaussian  # here: what is pure need not load scipy

    check_epsilon(epsilon)
    check_whole(contributions=contributions)
    exact = Fraction(gaussian.mu_for(epsilon, delta)) ** 2 / contributions**2
    shift = _BITS - (exact.numerator.bit_length() - exact.denominator.bit_length())
    step = Fraction(1, 1 << shift) if shift >= 0 else Fraction(1 << -shift)
    return exact // step * step


def group_promise(epsilon: Real, delta: Real, size: int) -> tuple[float, float]:
    """Return (epsilon, delta) of a group of `size` where one event has (epsilon, delta), and nothing else is known.

    delta grows by (exp(size * epsilon) - 1) / (exp(epsilon) - 1), far more than `size` times.
    Raises: EngineInputError if a number is out of range.

    >>> group_promise(1.0, 1e-6, 3)[0], round(group_promise(1.0, 1e-6, 3)[1] * 1e6, 2)
    (3.0, 11.11)
    """
    check_delta(delta)
    return size * float(epsilon), group_delta(float(epsilon), float(delta), size)
