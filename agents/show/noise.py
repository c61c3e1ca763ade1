"""Noise in figures that a person can use: the law of a mechanism, and the error to expect of an engine's answers.

Units: events. A 95 % interval is the smallest distance that the noise exceeds with probability 5 % at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from engines.core.intervals import NORMAL_95
from engines.core.noise import DiscreteLaplace
from schemas.errors import PrivstreamError
from schemas.guarantee import Mechanism

RELEASES = (1, 10, 100, 1000)


OUTSIDE = 0.05


@dataclass(frozen=True, slots=True)
class NoiseFacts:
    """What a mechanism's noise is like.

    Attributes:
        variance: of one draw. interval: 95 % of all draws lie within plus or minus this.
        added: True where the noise is added to counts; False where it only blurs decisions.
    """

    variance: float
    interval: float
    added: bool

    @property
    def deviation(self) -> float:
        """The standard deviation of one draw."""
        return math.sqrt(self.variance)


@dataclass(frozen=True, slots=True)
class Answer:
    """One kind of answer that a consumer works out, such as the count of a small region, of so many draws of noise:
    the standard deviation of its error after each of `RELEASES`, and within what 95 % of its errors lie.
    """

    name: str
    size: int
    what: str
    deviations: tuple[float, ...]
    intervals: tuple[float, ...]

    @staticmethod
    def of(
        name: str,
        size: int,
        what: str,
        deviation: Callable[[int], float],
        interval: Callable[[int], float] | None = None,
    ) -> Answer:
        """Return an answer whose error is a function of the releases; without `interval` it is taken for normal."""
        deviations = tuple(deviation(t) for t in RELEASES)
        intervals = tuple(interval(t) if interval else NORMAL_95 * deviation(t) for t in RELEASES)
        return Answer(name, size, what, deviations, intervals)

    @staticmethod
    def steady(name: str, size: int, what: str, noise: NoiseFacts) -> Answer:
        """Return a sum of so many draws, whose error does not grow with the releases."""
        deviation = math.sqrt(size) * noise.deviation
        interval = noise.interval if size == 1 else NORMAL_95 * deviation
        return Answer.of(name, size, what, lambda t: deviation, lambda t: interval)

    @property
    def first(self) -> float:
        """The 95 % interval after one release."""
        return self.intervals[0]


@dataclass(frozen=True, slots=True)
class ErrorModel:
    """The errors to expect of an engine's answers.

    Attributes:
        answers: from small to large.
        sizes: what `Answer.size` counts, for the head of a table. unit: of the errors.
        growth: a sentence on how errors change with the number of releases.
        formula: in symbols. conditions: what it takes for granted.
    """

    answers: tuple[Answer, ...]
    sizes: str
    growth: str
    formula: str
    conditions: str
    unit: str = "counts"

    def first(self) -> dict[str, Any]:
        """Return the 95 % intervals of one release, for machines."""
        return {"unit": self.unit, "within": {answer.name: answer.first for answer in self.answers}}

    def within(self) -> str:
        """Return the errors of one release as a phrase: `one leaf ±11, whole domain ±110 counts`."""
        answers = ", ".join(f"{answer.name} ±{rounded(answer.first)}" for answer in self.answers)
        return f"{answers} {self.unit}"

    def drowned(self, total: int, *, releases: int) -> str | None:
        """Return a sentence where noise is larger than all events that are there; else None, and where none are.

        Args: releases: since the start; the error is that of the nearest number below it that is known.
        """
        if self.unit != "counts" or releases < 1 or total <= 0:  # of no events something else is the reason
            return None
        at = max(index for index, known in enumerate(RELEASES) if known <= releases)
        hidden = [answer for answer in self.answers if answer.intervals[at] > total]
        if not hidden:
            return None
        named = ", ".join(f"{answer.name} ±{rounded(answer.intervals[at])}" for answer in hidden)
        return (
            f"noise alone is larger than all {total:,} events that are there: {named} counts. Little can be read from "
            "these answers. Raise epsilon, lower max_contributions, make steps longer, or use a coarser domain."
        )


def rounded(value: float) -> str:
    """Return an error as text: whole where it is large, three digits where it is small."""
    return f"{round(value):,}" if 10 <= abs(value) < 1e15 else f"{value:.3g}"


def noise_facts(mechanism: Mechanism) -> NoiseFacts:
    """Return the figures of a mechanism's noise.

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
            "Fix: add its law to agents/show/noise.py."
        ) from None
    return law(mechanism.scale)


def laplace_interval(scale: Fraction) -> int:
    """Return the distance within which 95 % of discrete Laplace noise lies."""
    law = DiscreteLaplace(scale)
    # 2 P(X > k) = 2 exp(-(k+1)/scale) / (1 + exp(-1/scale)) <= 5 %, solved for k; then by steps, as floats are rounded.
    rate = float(1 / scale)
    k = max(0, math.ceil(math.log(2 / (OUTSIDE * (1 + math.exp(-rate)))) / rate) - 1)
    while 2 * law.tail(k + 1) > OUTSIDE:
        k += 1
    while k > 0 and 2 * law.tail(k) <= OUTSIDE:
        k -= 1
    return k


def _normal(sigma: Fraction) -> NoiseFacts:
    """Return the figures of discrete Gaussian and binomial noise: its lattice is far finer than its scale sigma."""
    return NoiseFacts(float(sigma) ** 2, NORMAL_95 * float(sigma), added=True)


LAWS: Mapping[str, Callable[[Fraction], NoiseFacts]] = {
    "discrete Laplace": lambda b: NoiseFacts(DiscreteLaplace(b).variance, laplace_interval(b), added=True),
    "Laplace (one bit)": lambda b: NoiseFacts(2 * float(b) ** 2, float(b) * math.log(1 / OUTSIDE), added=False),
    "discrete Gaussian": _normal,
    "binomial": _normal,
    # It chooses the largest score plus Gumbel noise of this scale (McSherry, Talwar 2007).
    "exponential mechanism": lambda b: NoiseFacts(
        math.pi**2 / 6 * float(b) ** 2, -float(b) * math.log(-math.log(1 - OUTSIDE)), added=False
    ),
}
"""Name of a distribution -> the figures of its noise at a scale."""
