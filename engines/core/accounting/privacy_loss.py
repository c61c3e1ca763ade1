"""Exact privacy loss of discrete Gaussian noise, and of all else composed with it, by Google's dp-accounting.

Guarantee: every delta is an upper bound, up to float rounding; what is left out (1e-15 of each composition) counts as
    a loss without limit. It holds for parameters that are public beforehand; where they depend on releases, use `zcdp`.
Source: [canonne2020]; [koskela2020]; [doroshenko2022] ("connect the dots", as implemented in dp-accounting 0.6).
Units: epsilon in nats. The noise on an integer that moves by s has losses s * (2 k + s) / (2 sigma_squared), all of
    them on one lattice: with its step as the grid nothing is rounded. With the library's default grid of 1e-4 the same
    delta comes out 8 % larger at sigma 37 after 100 uses.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

from engines.core.accounting import gaussian, zcdp
from engines.core.accounting.arguments import Real, check_delta, check_positive, check_whole
from engines.core.accounting.ledger import Cost, DiscreteGaussianEvent, Event, fold
from engines.core.noise import sigma_squared_for as rounded_up

MAX_SIGMA = 2**16
"""Above it arrays grow too long, and zCDP is used instead."""

_LARGEST_GRID = 2**21
_FINE = 2**13


def delta(event: Event, epsilon: Real) -> float:
    """Return a delta for which everything in `event` together is (epsilon, delta)-DP.

    Raises: EngineInputError if epsilon is not positive and finite.

    >>> round(delta(DiscreteGaussianEvent(sigma_squared=Fraction(1)), 1.0), 4)
    0.1414
    """
    return of_cost(fold(event), epsilon)


def of_cost(cost: Cost, epsilon: Real) -> float:
    """Do the same for a folded cost.

    Raises: EngineInputError if epsilon is not positive and finite.
    """
    check_positive(epsilon=epsilon)
    by_zcdp = zcdp.of_cost(cost, epsilon)
    if not by_zcdp:
        return 0.0
    if not cost.discrete and not cost.pure:
        return min(by_zcdp, gaussian.delta(epsilon, math.sqrt(cost.mu_squared)))
    if any(shift.sigma_squared > MAX_SIGMA**2 for shift, _ in cost.discrete):
        return by_zcdp
    return min(by_zcdp, float(_distribution(cost).get_delta_for_epsilon(float(epsilon))))


def epsilon(event: Event, delta: float) -> float:
    """Return an epsilon for which everything in `event` together is (epsilon, delta)-DP.

    Raises: EngineInputError if delta is not in (0, 1).
    """
    check_delta(delta)
    cost = fold(event)
    low, high = 0.0, zcdp.epsilon(delta, cost.rho) if cost.rho else 0.0
    # delta falls as epsilon grows: halve, and keep the side that was checked.
    while high - low > 1e-10 * max(1e-3, high):
        middle = (low + high) / 2
        low, high = (low, middle) if of_cost(cost, middle) <= delta else (middle, high)
    return high


def sigma_squared_for(*, epsilon: Real, delta: float, l2_sensitivity: int = 1, count: int = 1) -> Fraction:
    """Return a noise parameter, as small as a check can find, for which `count` uses are (epsilon, delta)-DP.

    It is close to `gaussian.sigma_for` squared where that is large, and checked by `delta`, not by any formula.
    Raises: EngineInputError if an argument is out of range.

    >>> round(float(sigma_squared_for(epsilon=1, delta=1e-5, count=100)), 1) ** 0.5 < 37.4
    True
    """
    check_whole(l2_sensitivity=l2_sensitivity, count=count)
    check_positive(epsilon=epsilon)
    check_delta(delta)

    def enough(sigma: float) -> bool:
        event = DiscreteGaussianEvent(sigma_squared=rounded_up(sigma), l2_sensitivity=l2_sensitivity, count=count)
        return of_cost(fold(event), epsilon) <= delta

    low = gaussian.sigma_for(epsilon=epsilon, delta=delta, l2_sensitivity=l2_sensitivity * math.sqrt(count)) / 2
    high = 2 * low
    while not enough(high):
        low, high = high, 1.25 * high
    while high > low * (1 + 1e-6):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return rounded_up(high)


@lru_cache(maxsize=64)
def _distribution(cost: Cost) -> Any:
    """Return the privacy loss distribution of dp-accounting for a cost with discrete noise or pure mechanisms in it."""
    from dp_accounting.pld import common, privacy_loss_distribution

    interval = _interval(cost)
    parts = []
    for shift, count in cost.discrete:
        one = privacy_loss_distribution.from_discrete_gaussian_mechanism(
            math.sqrt(shift.sigma_squared),
            sensitivity=shift.shift,
            # The library keeps 11.6 sigma; a small sigma needs room for its shift.
            truncation_bound=math.ceil(12 * math.sqrt(shift.sigma_squared)) + shift.shift,
            value_discretization_interval=interval,
            use_connect_dots=True,
        )
        parts.append(one if count == 1 else one.self_compose(count))
    if cost.mu_squared:
        parts.append(
            privacy_loss_distribution.from_gaussian_mechanism(
                1 / math.sqrt(cost.mu_squared), value_discretization_interval=interval
            )
        )
    if cost.pure:
        parameters = common.DifferentialPrivacyParameters(float(cost.pure), 0.0)
        parts.append(privacy_loss_distribution.from_privacy_parameters(parameters, interval))
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return total


def _interval(cost: Cost) -> float:
    """Return the step of a grid that all losses lie on, or one that is fine enough to be rounded up to."""
    spread = max(math.sqrt(2 * cost.rho), float(cost.pure) / 8)
    steps = [shift.shift / (2 * shift.sigma_squared) for shift, _ in cost.discrete] or [cost.pure]
    step = reduce(_common, steps)
    if cost.mu_squared or cost.pure:
        # Rounded up: a finer grid that still holds the lattice of the discrete noise, and that of epsilon if it can.
        both = _common(step, cost.pure) if cost.pure else step
        step = both if both * _LARGEST_GRID > 24 * Fraction(spread) else step
        step /= max(1, math.ceil(step * _FINE / Fraction(spread)))
    # No noise has a loss wider than 24 times shift / sigma, and that is never above the spread of all together.
    return max(float(step), 24 * spread / _LARGEST_GRID)


def _common(a: Fraction, b: Fraction) -> Fraction:
    """Return the largest number of which both are whole multiples."""
    denominator = math.lcm(a.denominator, b.denominator)
    return Fraction(math.gcd(int(a * denominator), int(b * denominator)), denominator)
