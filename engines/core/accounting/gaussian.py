"""Continuous Gaussian noise, accounted exactly: Gaussian DP.

Guarantee: noise of standard deviation sigma on a vector that moves by at most s in L2 is mu-GDP with mu = s / sigma,
    over any number of adaptive uses with s**2 / sigma**2 added up; (epsilon, delta) follows exactly from mu.
Source: [balle2018], theorem 8; [dong2019]. Corollary 5.2 of [zhang2022] stands beside it: right, and looser.
Units: sigma and shifts are those of the values that get the noise. NOT for discrete noise as it is: see `lattice`.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from scipy.special import erfcx, log_ndtr, ndtr

from engines.core.accounting.arguments import Real, check_delta, check_positive
from schemas.errors import EngineInputError

_LOG_SQRT_2PI = math.log(2 * math.pi) / 2
_SMALL = 1e-3
_MARGIN = 1e-10
"""Solutions keep this much of log delta in hand, far more than the formulas' rounding."""

LEAST_DELTA = 1e-40
"""What discrete noise differs by from continuous noise is within that margin from here on (`lattice.dominating`)."""

_LOG_MU = (-60.0, 60.0)


def log_delta(epsilon: Real, mu: Real) -> float:
    """Return ln(Phi(mu/2 - eps/mu) - exp(eps) * Phi(-mu/2 - eps/mu)), ln delta of mu-GDP, where delta underflows too.

    Raises: EngineInputError if mu is not positive and finite, or epsilon is negative, infinite or not a number.

    >>> round(log_delta(50.0, 0.5))
    -4986
    """
    check_positive(mu=mu)
    if epsilon != 0:
        check_positive(epsilon=epsilon)
    centre, half = float(epsilon) / float(mu), float(mu) / 2
    a = half - centre
    log_density = -a * a / 2 - _LOG_SQRT_2PI
    if a > 5:
        return math.log(float(ndtr(a)) - math.exp(log_density) * _mills(centre + half))
    # exp(eps) * density(b) = density(a): what is left is a difference of Mills' ratios, of the order of one.
    if mu < _SMALL:
        # Too close for a difference: the middle's slope, and its second derivative.
        slope, bend = _mills_slope(centre)
        return log_density + math.log(float(mu) * (slope + half * half * bend / 6))
    return log_density + math.log(_mills(-a) - _mills(centre + half))


def _mills(x: float) -> float:
    """Return (1 - Phi(x)) / phi(x)."""
    return float(erfcx(x / math.sqrt(2))) * math.sqrt(math.pi / 2)


def _mills_slope(x: float) -> tuple[float, float]:
    """Return minus the derivative of `_mills`, 1 - x * _mills(x) with no cancellation; and its second derivative."""
    if x < 30:
        slope = 1 - x * _mills(x)
        return slope, 2 * slope + x * (x * slope - _mills(x))
    y = 1 / (x * x)
    return y * (1 - y * (3 - y * (15 - y * (105 - 945 * y)))), 6 * y * y


def delta(epsilon: Real, mu: Real) -> float:
    """Return the smallest delta for which mu-GDP is (epsilon, delta)-DP; 0.0 where that is below 1e-323.

    Raises: EngineInputError as `log_delta`.

    >>> round(delta(1.0, 1.0), 4)
    0.1269
    """
    return math.exp(min(0.0, log_delta(epsilon, mu)))


def epsilon(delta: Real, mu: Real) -> float:
    """Return the smallest epsilon for which mu-GDP is (epsilon, delta)-DP; 0.0 where none is needed.

    Raises: EngineInputError if an argument is out of range.

    >>> round(epsilon(1e-5, 10 / 37.3), 3)
    1.0
    """
    check_delta(delta)
    target = math.log(delta) - _MARGIN
    if log_delta(0.0, mu) <= target:
        return 0.0
    # Phi(mu/2 - eps/mu) alone bounds delta from above.
    scale = float(mu)
    upper = scale / 2 + 1
    while float(log_ndtr(scale / 2 - upper)) > target:
        upper *= 2
    return scale * _solved(lambda multiple: log_delta(multiple * scale, mu) - target, 0.0, upper)[1]


def mu_for(epsilon: Real, delta: Real) -> float:
    """Return the largest mu that is (epsilon, delta)-DP, rounded down a little.

    Raises: EngineInputError if epsilon is not positive and finite or delta not in (0, 1).

    >>> round(1 / mu_for(1.0, 1e-5), 3)
    3.731
    """
    check_positive(epsilon=epsilon)
    check_delta(delta)
    target = math.log(delta) - _MARGIN

    def excess(log_mu: float) -> float:
        return log_delta(epsilon, math.exp(log_mu)) - target

    # Far out, squares overflow: look for the bracket from the rough solution sqrt(2 eps).
    low = high = min(max(math.log(float(epsilon)) / 2, _LOG_MU[0]), _LOG_MU[1])
    while excess(high) <= 0:
        high += 1
    while excess(low) > 0:
        low -= 1
        if low < 2 * _LOG_MU[0]:
            raise EngineInputError("epsilon and delta are too small for any noise that a float can describe")
    return math.exp(_solved(excess, low, high)[0])


@lru_cache(maxsize=256)
def mu_squared_for(epsilon: Real, delta: float) -> Fraction:
    """Return the square of `mu_for`: what Gaussian noise that is drawn may cost in all, since mu^2 adds up.

    Raises: EngineInputError as `mu_for`, and for a delta below `LEAST_DELTA`.
    """
    if 0 < delta < LEAST_DELTA:
        raise EngineInputError(f"delta of the noise must be at least {LEAST_DELTA:g}")
    return Fraction(mu_for(epsilon, delta)) ** 2


def sigma_for(*, epsilon: Real, delta: Real, l2_sensitivity: Real = 1) -> float:
    """Return the smallest noise for which a total L2 shift of `l2_sensitivity` is (epsilon, delta)-DP.

    Raises: EngineInputError if an argument is out of range.

    >>> round(sigma_for(epsilon=1, delta=1e-5, l2_sensitivity=10), 1)
    37.3
    """
    check_positive(l2_sensitivity=l2_sensitivity)
    return float(l2_sensitivity) / mu_for(epsilon, delta)


def corollary_5_2(*, epsilon: Real, delta: Real, l2_sensitivity: Real = 1) -> float:
    """Return the sigma of [zhang2022] for the same promise: never below `sigma_for`; kept for comparison.

    Args:
        l2_sensitivity: the paper's Delta * sqrt(sum of squared weights).
    Raises: EngineInputError if an argument is out of range.

    >>> round(corollary_5_2(epsilon=1, delta=1e-5, l2_sensitivity=10), 1)
    49.0
    """
    check_positive(epsilon=epsilon, l2_sensitivity=l2_sensitivity)
    check_delta(delta)
    # 2 eps + 4L - 4 sqrt(L**2 + eps L) = 2 (sqrt(L + eps) - sqrt(L))**2, and that by its conjugate.
    log_inverse, eps = -math.log(delta), float(epsilon)
    gap = eps / (math.sqrt(log_inverse + eps) + math.sqrt(log_inverse))
    return float(l2_sensitivity) / (math.sqrt(2) * gap)


def _solved(excess: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return a bracket of the root, some 1e-14 of its size wide."""
    from scipy.optimize import brentq

    root = float(brentq(excess, low, high, xtol=1e-15, rtol=1e-14, maxiter=500))
    width = 4e-14 * max(abs(root), 1e-3)
    return root - width, root + width
