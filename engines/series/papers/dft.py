"""Fourier coefficients of a block of steps, the lowest of them with Laplace noise: mode `dft`, released with a delay.

The transform is an integer matrix (the orthonormal real one, scaled by 2**16 and rounded), so that coefficients are
integers and get noise on integers.
Guarantee: epsilon-DP for a unit over a span; sensitivity proven at `FourierBudget.l1_sensitivity`.
Source: [rastogi2010]; online by blocks as in [zhang2022], section 8 and figure 5. With a block as long as
    the horizon it is the offline transform: all releases come at the end.
Units: lattice steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isqrt

import numpy as np

from engines.accounting import Accountant, PureEvent
from engines.contract import State
from engines.noise import DiscreteLaplace, NoiseSource, aggregate, laplace_mechanism, scale_for
from engines.series.modes import NORMAL_90, SeriesOutcome, Value
from engines.series.presence import Presence
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError

_BITS = 16


@dataclass(frozen=True, kw_only=True)
class FourierBudget:
    """Public constants. Args: `block` steps, of which the lowest `kept` of as many coefficients are measured."""

    epsilon: Fraction
    presence: Presence
    shifts: tuple[int, ...]
    shares: tuple[Fraction, ...]
    block: int
    kept: int

    def __post_init__(self) -> None:
        if not 1 <= self.kept <= self.block:
            raise EngineInputError("coefficients must be at least one and at most the steps of a block")
        if self.presence.most is None:
            raise EngineInputError("Laplace noise needs a horizon, or a bound on the events of a unit")

    @cached_property
    def basis(self) -> FloatArray:
        """`(kept, block)`: rows of the orthonormal real transform, lowest frequencies first."""
        steps = np.arange(self.block)
        rows = [np.full(self.block, self.block**-0.5)]
        for k in range(1, self.block // 2 + 1):
            turn = 2 * np.pi * k * steps / self.block
            if 2 * k == self.block:
                rows.append(np.cos(turn) * self.block**-0.5)
            else:
                rows += [np.cos(turn) * (2 / self.block) ** 0.5, np.sin(turn) * (2 / self.block) ** 0.5]
        return np.stack(rows)[: self.kept]

    @cached_property
    def matrix(self) -> IntArray:
        """`basis` times 2**16, rounded to integers: what is measured."""
        rounded: IntArray = np.rint(self.basis * 2**_BITS).astype(np.int64)
        return rounded

    def l1_sensitivity(self, field: int) -> int:
        """How far a unit moves all coefficients of a span, in L1, at most.

        Two bounds, the lesser of which counts. (1) One event moves a block's coefficients by its shift times a column;
        a unit has `most` of them. (2) In a block a unit moves the vector of totals by at most n = per_step * shift *
        sqrt(block) in L2; the matrix is 2**16 times rows of an orthonormal one, plus entries of at most 1/2, so its
        norm is at most 2**16 + sqrt(kept * block) / 2; and L1 is at most sqrt(kept) times L2. Roots are rounded up.
        """
        shift, presence = self.shifts[field], self.presence
        assert presence.most is not None
        by_events = presence.most * shift * int(np.abs(self.matrix).sum(axis=0).max())
        if presence.steps is None:
            return by_events
        blocks = -(-presence.steps // self.block)
        norm = 2**_BITS + (_root_up(self.kept * self.block) + 1) // 2
        by_blocks = blocks * presence.per_step * shift * _root_up(self.kept * self.block) * norm
        return int(min(by_events, by_blocks))

    def scale(self, field: int) -> Fraction:
        """Of the noise on a coefficient of a field."""
        return scale_for(self.l1_sensitivity(field), self.epsilon * self.shares[field])


@aggregate
def coefficients(matrix: IntArray, totals: Sequence[int]) -> IntArray:
    """`matrix @ totals`, `(kept,)` whole numbers of any size; private: see `FourierBudget.l1_sensitivity`."""
    # Python's integers: no product leaves them.
    moved: IntArray = matrix.astype(object) @ np.array(totals, object)
    return moved


def _root_up(square: int) -> int:
    return isqrt(square - 1) + 1 if square else 0


class Fourier:
    """A mode, see `modes`."""

    def __init__(self, budget: FourierBudget) -> None:
        self._budget = budget
        self._span = -1
        self._accountant = Accountant(epsilon=budget.epsilon)
        self._held: list[tuple[int, ...]] = []
        self._present: list[bool] = []

    def step(self, step: int, totals: Sequence[int], present: bool, noise: NoiseSource) -> SeriesOutcome:
        budget = self._budget
        span, at = budget.presence.where(step)
        # A missing reading counts as zero inside the block, and is not released.
        self._held.append(tuple(totals) if present else (0,) * len(totals))
        self._present.append(present)
        last = budget.presence.steps is not None and at == budget.presence.steps - 1
        if len(self._held) < budget.block and not last:
            return SeriesOutcome(silent=True, notes={"held_back": len(self._held)})
        if span != self._span:
            self._accountant = Accountant(epsilon=budget.epsilon).charged(PureEvent(budget.epsilon))
            self._span = span
        outcome = self._released(step, noise)
        self._held, self._present = [], []
        return outcome

    def _released(self, step: int, noise: NoiseSource) -> SeriesOutcome:
        budget, size = self._budget, len(self._held)
        columns, measurements = [], []
        for field, held in enumerate(zip(*self._held, strict=True)):
            # A short last block is filled up with zeros.
            exact = coefficients(budget.matrix[:, :size], held)
            scale = budget.scale(field)
            measured = laplace_mechanism(exact, scale, noise.child("series", field))
            noisy = measured.astype(np.float64) / 2**_BITS
            variance = DiscreteLaplace(scale).variance / 4**_BITS
            values = noisy @ budget.basis[:, :size]
            deviations = np.sqrt(variance * (budget.basis[:, :size] ** 2).sum(axis=0))
            columns.append(
                [Value(v, d, NORMAL_90 * d) for v, d in zip(values.tolist(), deviations.tolist(), strict=True)]
            )
            measurements += [
                {"field": field, "of_step": step, "coefficient": index, "value": value, "variance": variance}
                for index, value in enumerate(noisy.tolist())
            ]
        first = step - size + 1
        released = [
            (first + index, tuple(column[index] for column in columns)) for index in range(size) if self._present[index]
        ]
        return SeriesOutcome(released, measurements)

    def arrays(self) -> State:
        fields = len(self._budget.shifts)
        return {
            "span": np.array([self._span], np.int64),
            "held": np.array(self._held, np.int64).reshape(len(self._held), fields),
            "present": np.array(self._present, np.bool_),
            **self._accountant.state(),
        }

    def restore(self, state: State) -> None:
        (self._span,) = state["span"].tolist()
        self._held = [tuple(row) for row in state["held"].tolist()]
        self._present = state["present"].tolist()
        self._accountant = self._accountant.restore(state)
