"""How often one protected unit may be in a series, and what that makes of a schedule of weights.

Guarantee: `Presence.worst` is the exact maximum over all arrangements of a unit's events (`accounting.sensitivity`).
Source: ours.
Units: steps; events of one unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from engines.core.accounting import sensitivity
from schemas.errors import EngineInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """Where one unit may be.

    Args:
        events: of one unit in one span; None: `per_step` in every step of it.
        per_step: of these, in one step at most.
        steps: length of the span for which the promise holds, a horizon or a period; None: it never ends.
        renews: the span is a period, after which a new budget is there; else a horizon, after which nothing is.
    Raises: EngineInputError if a bound is below 1.
    """

    written_as: ClassVar[str] = "Presence"

    events: int | None = None
    per_step: int = 1
    steps: int | None = None
    renews: bool = False

    def __post_init__(self) -> None:
        if self.per_step < 1 or (self.events is not None and self.events < 1):
            raise EngineInputError("a unit must be allowed at least one event")
        if self.steps is not None and self.steps < 1:
            raise EngineInputError("the horizon must be at least one step")

    @property
    def fewest_steps(self) -> int | None:
        """Steps that hold all of a unit's events where each has as many as it may; None: all of a span without end.

        The dearest arrangement where a step's cost is convex in its events. A unit may be in more: `most_steps`.
        """
        if self.events is None:
            return self.steps
        steps = -(-self.events // self.per_step)
        return steps if self.steps is None else min(steps, self.steps)

    @property
    def everywhere(self) -> bool:
        """True if a unit's events, as many in a step as may be, reach every step of a span."""
        return self.fewest_steps == self.steps

    @property
    def most_steps(self) -> int | None:
        """Steps that a unit can be in, with one event in each; None: all of a span without end."""
        if self.events is None:
            return self.steps
        return self.events if self.steps is None else min(self.events, self.steps)

    @property
    def most(self) -> int | None:
        """Events of a unit in a span; None: no bound."""
        if self.steps is None:
            return self.events
        everywhere = self.steps * self.per_step
        return everywhere if self.events is None else min(self.events, everywhere)

    def worst(self, leading: list[Fraction]) -> Fraction:
        """Largest sum of (events in the step)**2 * weight over all arrangements.

        Args:
            leading: the `fewest_steps` largest of the steps' squared weights.
        Raises: EngineInputError if a unit is in infinitely many steps: their sum is the schedule's affair.
        """
        if self.fewest_steps is None or self.most is None:
            raise EngineInputError("a unit without bounds needs a horizon or weights that decay")
        # Squares of events times squared weights: weights of squared roots would not be exact.
        arrangement = sensitivity.worst(leading, total=self.most, per_step=self.per_step)
        return sum((Fraction(events) ** 2 * weight for events, weight in arrangement), Fraction(0))

    def where(self, step: int) -> tuple[int, int]:
        """(number of the span, step in it) of a step of the stream; both from 0."""
        return divmod(step, self.steps) if self.renews and self.steps is not None else (0, step)

    def over(self, step: int) -> bool:
        """True beyond a horizon: nothing may be released any more."""
        return self.steps is not None and not self.renews and step >= self.steps
