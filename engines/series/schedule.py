"""Public schedules: how much weight each step of a series gets, decided before any data come.

Guarantee: none of its own; `worst` is what one unit meets at most, which `gaussian` turns into noise.
Source: [zhang2022] section 5 (fixed and geometric weights; w = 1 in the first two steps, which the total must contain).
Units: weights are relative; their squares are in proportion to a measurement's precision 1 / sigma**2.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from engines.series.presence import Presence
from schemas.errors import EngineInputError

_GRAIN = 2**60
_FIRST = 2
"""Steps of the paper's releaser whose weight is 1, since nothing is learnt yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSchedule:
    """Squared weights that never rise.

    Args:
        weight: of every step after the first ones.
        decay: r in w_t**2 = weight**2 * r**(t - 1), t from 1; None: weights do not fall.
        full: steps at the start with weight 1.
    Raises: EngineInputError if a number is out of range.
    """

    weight: Fraction = Fraction(1)
    decay: Fraction | None = None
    full: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise EngineInputError("weight must lie in (0, 1]")
        if self.decay is not None and not 0 < self.decay < 1:
            raise EngineInputError("decay must lie between 0 and 1")

    @staticmethod
    def of_paper(weight: Fraction, decay: Fraction | None) -> WeightSchedule:
        """That of the AR(1) releaser: w = 1 at t <= 2, inside the total."""
        return WeightSchedule(weight=weight, decay=decay, full=_FIRST)

    def squared(self, step: int) -> Fraction:
        """The squared weight of a step, from 0. Under `decay` rounded down to a multiple of 2**-60, and zero in the
        end: then nothing may be released."""
        if step < self.full:
            return Fraction(1)
        square = self.weight**2
        if self.decay is None:
            return square
        # One part in 10**12 below the power, more than floats can be wrong by: rounded down, never up.
        power = float(self.decay) ** step * (1 - 1e-12)
        return square * Fraction(int(power * _GRAIN), _GRAIN)

    def worst(self, presence: Presence) -> Fraction:
        """Largest sum of (events * weight)**2 that one unit can meet in one span, exact or above.

        Raises: EngineInputError if it is infinite.
        """
        busy = presence.fewest_steps
        if busy is None:
            if self.decay is None:
                raise EngineInputError("a unit without bounds needs a horizon or weights that decay")
            rest = self.weight**2 * self.decay**self.full / (1 - self.decay)
            return (rest + self.full) * presence.per_step**2
        if self.decay is None:
            ones = min(self.full, busy)
            if presence.most == busy * presence.per_step:
                return (ones + (busy - ones) * self.weight**2) * presence.per_step**2
        # Weights never rise, so the first steps hold the largest ones.
        return presence.worst([self.squared(step) for step in range(busy)])
