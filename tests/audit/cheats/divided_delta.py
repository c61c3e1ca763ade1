"""(epsilon, delta) simply divided by the number of contributions: m Gaussian events at (epsilon/m, delta/m) each.

The user's true loss is Gaussian with m times the shift, and its epsilon at delta is above the claim. The excess is
small at a delta worth claiming, far below what runs can show: the hockey-stick sum shows it exactly. The honest way
finds the user-level noise first: sigma for a shift of m.
"""

from __future__ import annotations

from fractions import Fraction

from engines.auditor.cases import Case, Claim, Exact
from engines.auditor.exact import gaussian_epsilon
from engines.noise import sigma_squared_for

CLAIM = Claim(Fraction(1), 1e-5)
CONTRIBUTIONS = 10


class Divided:
    """Noise of one event at its share of the budget."""

    def sigma_squared(self) -> Fraction:
        return _smallest(shift=1, epsilon=1 / CONTRIBUTIONS, delta=CLAIM.delta / CONTRIBUTIONS)


class UserLevel(Divided):
    """Noise of all of a user's events together at the whole budget."""

    def sigma_squared(self) -> Fraction:
        return _smallest(shift=CONTRIBUTIONS, epsilon=1.0, delta=CLAIM.delta)


def _smallest(*, shift: int, epsilon: float, delta: float) -> Fraction:
    """Smallest variance, to a part in 10^4, that keeps (epsilon, delta) for this shift."""
    low, high = 1.0, 1000.0
    while high / low > 1.0001:
        middle = (low * high) ** 0.5
        kept = gaussian_epsilon(shift=shift, sigma_squared=sigma_squared_for(middle), delta=delta) <= epsilon
        low, high = (low, middle) if kept else (middle, high)
    return sigma_squared_for(high)


def _case(name: str, calibration: Divided) -> Case:
    def loss() -> float:
        return gaussian_epsilon(shift=CONTRIBUTIONS, sigma_squared=calibration.sigma_squared(), delta=CLAIM.delta)

    return Case(name, "mechanism", CLAIM, exact=(Exact(f"hockey-stick sum of {CONTRIBUTIONS} events", loss),))


def cheat() -> Case:
    return _case("delta divided by contributions", Divided())


def honest() -> Case:
    return _case("user-level Gaussian", UserLevel())
