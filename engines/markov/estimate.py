"""What every estimator of counts looks like: noisy counts of one step in, estimates out, state in arrays.

Estimators see released values only, so they are post-processing and cost no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from engines.core.contract import State
from schemas.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Counts of one step, `(states,)` each, those who are unseen last where there are any.

    Attributes:
        step: that they are of. variances: of the error that is left, as far as the estimator can tell.
        revised: True if the step was released before.
    """

    step: int
    counts: FloatArray
    variances: FloatArray
    revised: bool = False


class CountsEstimator(Protocol):
    """Keeps no state of its own."""

    def begin(self) -> State:
        """The state before the first step."""
        ...

    def observe(
        self, state: State, step: int, noisy: FloatArray, scale: Fraction, *, last: bool
    ) -> tuple[State, tuple[Estimate, ...]]:
        """The next state, this step's estimate, and revisions of earlier ones.

        Args:
            noisy: `(states,)` counts with discrete Laplace noise of this scale. last: no step will follow.
        """
        ...
