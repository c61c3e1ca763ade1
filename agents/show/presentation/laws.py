"""The noise of a mechanism in figures that a person can use. A law that is not in the table is refused, never left out.

Units: events. A 95 % interval is the smallest distance that the noise exceeds with probability 5 % at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from agents.show.presentation.error import NORMAL_95
from engines.core.noise import DiscreteLaplace
from schemas.errors import PrivstreamError
from schemas.guarantee import Mechanism

OUTSIDE = 0.05


@dataclass(frozen=True, slots=True)
class NoiseFacts:
    """Attributes:

    variance: of one draw.
    interval: 95 % of all draws lie within plus or minus this.
    added: True where the noise is added to counts; False where it only blurs decisions.
    """

    variance: float
    interval: float
    added: bool

    @property
    def deviation(self) -> float:
        """Standard deviation."""
        return math.sqrt(self.variance)


def noise_facts(mechanism: Mechanism) -> NoiseFacts:
    """Figures of a mechanism's noise.

    Raises: PrivstreamError if its distribution is unknown here: an explanation without it would hide noise.

    >>> from fractions import Fraction
    >>> facts = noise_facts(Mechanism(name="counts", distribution="discrete Laplace", l1_sensitivity=1,
    ...                               scale=Fraction(2), epsilon=Fraction(1, 2)))
    >>> round(facts.deviation, 2), facts.interval
    (2.8, 6)
    """
    try:
        law = LAWS[mechanism.distribution]
    except KeyError:
        raise PrivstreamError(
            f'explain does not know the noise "{mechanism.distribution}" of "{mechanism.name}". '
            "Fix: add its law to agents/show/presentation/laws.py."
        ) from None
    return law(mechanism.scale)


def _discrete_laplace(scale: Fraction) -> NoiseFacts:
    return NoiseFacts(DiscreteLaplace(scale).variance, laplace_interval(scale), added=True)


def laplace_interval(scale: Fraction) -> int:
    """95 % of discrete Laplace noise lies within plus or minus this."""
    law = DiscreteLaplace(scale)
    # 2 P(X > k) = 2 exp(-(k+1)/scale) / (1 + exp(-1/scale)) <= 5 %, solved for k; then by steps, as floats are rounded.
    rate = float(1 / scale)
    k = max(0, math.ceil(math.log(2 / (OUTSIDE * (1 + math.exp(-rate)))) / rate) - 1)
    while 2 * law.tail(k + 1) > OUTSIDE:
        k += 1
    while k > 0 and 2 * law.tail(k) <= OUTSIDE:
        k -= 1
    return k


def _laplace_bit(scale: Fraction) -> NoiseFacts:
    return NoiseFacts(2 * float(scale) ** 2, float(scale) * math.log(1 / OUTSIDE), added=False)


def _normal(sigma: Fraction) -> NoiseFacts:
    """Discrete Gaussian and binomial noise on a lattice that is far finer than sigma: the scale is sigma itself."""
    return NoiseFacts(float(sigma) ** 2, NORMAL_95 * float(sigma), added=True)


def _gumbel(scale: Fraction) -> NoiseFacts:
    """The exponential mechanism chooses the largest score plus Gumbel noise of this scale (McSherry, Talwar 2007)."""
    return NoiseFacts(math.pi**2 / 6 * float(scale) ** 2, -float(scale) * math.log(-math.log(1 - OUTSIDE)), added=False)


LAWS: Mapping[str, Callable[[Fraction], NoiseFacts]] = {
    "discrete Laplace": _discrete_laplace,
    "Laplace (one bit)": _laplace_bit,
    "discrete Gaussian": _normal,
    "binomial": _normal,
    "exponential mechanism": _gumbel,
}
