"""Zero-concentrated DP: what discrete and continuous Gaussian noise have in common, and exact under any adaptivity.

Guarantee: noise with parameter sigma_squared on integers that move by at most s in L2 is s**2 / (2 sigma_squared)-zCDP,
    discrete as continuous; rho adds up, and may be spent adaptively up to a fixed total.
Source: [bun2016]; [canonne2020], theorem 4 (noise) and corollary 13 (conversion);
    [whitehouse2023] (a fixed total, adaptively spent).
Units: rho in nats.
"""

import math
from fractions import Fraction

from engines.core.accounting.arguments import Real, check_delta, check_positive
from engines.core.accounting.ledger import Cost, Event, fold

_MARGIN = 1e-10


def rho(event: Event) -> Fraction:
    """Return the zCDP of a tree of events; exact.

    >>> from engines.core.accounting import Contributions, DiscreteGaussianEvent
    >>> rho(Contributions(DiscreteGaussianEvent(sigma_squared=Fraction(9), count=2), 3))
    Fraction(1, 1)
    """
    return fold(event).rho


def log_delta(epsilon: Real, rho: Real) -> float:
    """Return ln of a delta for which rho-zCDP is (epsilon, delta)-DP, by the best order alpha.

    Raises: EngineInputError if rho or epsilon is not positive and finite.
    """
    check_positive(epsilon=epsilon, rho=rho)
    return _log_delta(float(epsilon), float(rho))


def _log_delta(eps: float, r: float) -> float:
    from scipy.optimize import minimize_scalar

    def at(log_order: float) -> float:
        less = math.exp(log_order)  # alpha - 1
        return less * ((less + 1) * r - eps) - math.log(less) - (less + 1) * math.log1p(1 / less)

    # Near the larger root of 2 rho x**2 - (eps - rho) x - 1; any order gives a valid bound.
    root = math.hypot(eps - r, math.sqrt(8 * r))
    guess = math.log((root + eps - r) / (4 * r) if eps > r else 2 / (root + r - eps))
    found = minimize_scalar(at, bounds=(guess - 4, guess + 4), method="bounded")
    return min(0.0, float(found.fun), at(guess))


def delta(epsilon: Real, rho: Real) -> float:
    """Return a delta for which rho-zCDP is (epsilon, delta)-DP.

    Raises: EngineInputError if an argument is not positive and finite.

    >>> round(delta(1.0, 0.01), 12) < 1e-9
    True
    """
    return math.exp(log_delta(epsilon, rho))


def epsilon(delta: Real, rho: Real) -> float:
    """Return an epsilon for which rho-zCDP is (epsilon, delta)-DP; 0.0 where none is needed.

    Raises: EngineInputError if an argument is out of range.

    >>> round(epsilon(1e-5, 0.5), 3)
    4.728
    """
    from scipy.optimize import brentq

    check_delta(delta)
    check_positive(rho=rho)
    target = math.log(delta) - _MARGIN
    r = float(rho)
    if _log_delta(0.0, r) <= target:
        return 0.0
    high = r + 2 * math.sqrt(-r * target)
    while _log_delta(high, r) > target:
        high *= 2
    root = float(brentq(lambda e: _log_delta(e, r) - target, 0.0, high, xtol=1e-15, rtol=1e-12, maxiter=500))
    return root * (1 + 1e-11)


def rho_for(epsilon: Real, delta: Real) -> float:
    """Return the largest rho that is (epsilon, delta)-DP by this conversion, rounded down a little.

    Raises: EngineInputError if an argument is out of range.

    >>> round(rho_for(1.0, 1e-5), 4)
    0.0306
    """
    from scipy.optimize import brentq

    check_positive(epsilon=epsilon)
    check_delta(delta)
    target = math.log(delta) - _MARGIN
    low = high = math.log(float(epsilon))
    while log_delta(epsilon, math.exp(high)) <= target:
        high += 1
    while log_delta(epsilon, math.exp(low)) > target:
        low -= 1
    root = float(brentq(lambda r: log_delta(epsilon, math.exp(r)) - target, low, high, xtol=1e-13, maxiter=500))
    return math.exp(root) * (1 - 1e-11)


def of_cost(cost: Cost, epsilon: Real) -> float:
    """Return a delta for a folded cost: pure mechanisms as zCDP or beside it, whichever is less.

    Raises: EngineInputError if epsilon is not positive and finite.
    """
    check_positive(epsilon=epsilon)
    noise, left = cost.rho - cost.pure_rho, Fraction(epsilon) - cost.pure
    if not noise and left >= 0:
        return 0.0
    whole = delta(epsilon, cost.rho)
    return min(whole, delta(left, noise)) if noise and left > 0 else whole
