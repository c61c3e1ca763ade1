"""What growing blocks promise, as data.

Guarantee: says what the engine proves; draws nothing.
Units: scales in events.
"""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

from engines.core.noise import scale_for
from engines.core.shares import PureShares
from engines.tabular.growing.config import GrowingConfig, GrowingParts
from schemas.guarantee import Guarantee, Mechanism

_SHORT = 2**20


def guarantee(config: GrowingConfig, parts: GrowingParts) -> Guarantee:
    """See `engines.core.contract.Engine.guarantee`. Costs of the mechanisms add up to the whole budget exactly."""
    lines = (
        ("one-way marginals, in growing blocks", len(parts.ones), parts.ones_share),
        ("larger marginals, in growing blocks", len(parts.larger), parts.larger_share),
    )
    mechanisms = [_totals(parts)]
    mechanisms += [_line(parts, name, marginals, share) for name, marginals, share in lines if marginals and share > 0]
    note = "An event is in the totals when it arrives, and then in one block of each line of marginals."
    if parts.schedule.early(0.0) and len(parts.larger):
        note += " While the stream is early the one-way line has more of the budget of both lines, or all of it."
    if config.ttl_steps is not None:
        note += " Expiry by ttl is post-processing."
    if config.delta:
        note += (
            f" Gaussian noise: what adds up is mu^2, over all that a unit of {config.changes} "
            f"event{'s' if config.changes > 1 else ''} is measured in."
        )
    return Guarantee(epsilon=config.epsilon, delta=config.delta, mechanisms=tuple(mechanisms), note=note)


def _totals(parts: GrowingParts) -> Mechanism:
    counter, shares = parts.totals_counter, parts.shares
    (noise,) = set(counter.node_noise(1))
    name = "inserts and deletes of every step (continual counters; scale of the first epoch)"
    if isinstance(shares, PureShares):
        return Mechanism(
            name=name,
            distribution="discrete Laplace",
            l1_sensitivity=round(noise * parts.totals_share),
            scale=noise,
            epsilon=parts.totals_share,
            account="totals",
        )
    return Mechanism(
        name=name,
        distribution="discrete Gaussian",
        l1_sensitivity=1,
        scale=Fraction(sqrt(noise) / counter.resolution).limit_denominator(_SHORT),
        epsilon=shares.epsilon_of(parts.totals_share),
        account="totals",
        mu_squared=shares.mu_squared_of(parts.totals_share),
    )


def _line(parts: GrowingParts, name: str, marginals: int, share: Fraction) -> Mechanism:
    shares = parts.shares
    even = share / marginals
    pure = isinstance(shares, PureShares)
    deviation = scale_for(marginals, share) if pure else Fraction(shares.cells(even).variance ** 0.5)
    return Mechanism(
        name=f"{name} (scale on average: shares of the budget differ)",
        distribution="discrete Laplace" if pure else "discrete Gaussian",
        l1_sensitivity=marginals,
        scale=deviation if pure else deviation.limit_denominator(_SHORT),
        epsilon=shares.epsilon_of(share),
        account="marginals",
        mu_squared=shares.mu_squared_of(share),
        # One in a cell of each marginal.
        shift=Fraction(marginals),
    )
