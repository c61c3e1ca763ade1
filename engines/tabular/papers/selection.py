"""Which marginal to measure next: the one that the model is furthest from, chosen by the exponential mechanism.

Guarantee: epsilon-DP for one event, inserted or deleted, for each choice.
Score of a marginal q: w_q * (sum over its cells of |q(events) + public_q| - penalty_q). `public` is what the last
    release has more than the model, in these cells, and follows from releases; so do the penalties; weights are
    configured. An event changes one cell of q(events) by 1, so it moves that sum by 1 at most, and the score by w_q:
    the sensitivity is the largest weight. The reverse triangle inequality asks for nothing else, neither for attributes
    with two values or more nor for a division by the cells, which the papers use (docs/notes/0041).
Exact: events are integers, and public numbers are rounded to whole quanta before events are added to them, so that
    scores of neighbours differ by what is proved and by no rounding. Events and public numbers are first cut at a bound
    that follows from the number of cells (`Selection.largest`): no score leaves 64 bits, and a cut moves no further
    than what is cut.
Source: [kumar2024c], sections 6.4 and 7.2, corrected as docs/guarantee.md section 9 says.
Units: `QUANTUM` events; weights are whole numbers up to `WEIGHT`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.noise import NoiseSource, exponential_mechanism
from engines.tabular.marginals import Marginals
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.errors import EngineInputError

QUANTUM = Fraction(1, 1024)
WEIGHT = 256
"""Of the heaviest marginal."""
_LARGEST = 2**32
_ROOM = 2**44 // 3
"""Events that the cells of a marginal stand for: twice that (counts and public numbers) and a penalty of `_LARGEST`, in
quanta and at the heaviest weight, are less than 2**62."""


def whole_weights(weights: Sequence[Fraction]) -> IntArray:
    """`(marginals,)` int64 weights in proportion, from 1 to `WEIGHT`. Public."""
    heaviest = max(weights)
    return np.array([max(1, int(weight * WEIGHT / heaviest)) for weight in weights], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """How one marginal out of a layout is chosen. Public constants.

    Attributes:
        layout: marginals to choose from; an event is in one cell of each.
        weights: `(marginals,)` int64, from `whole_weights`.
        epsilon: of one choice.
    Raises: EngineInputError.

    >>> from engines.core.noise import seeded
    >>> pick = Selection(Marginals((2, 2), ((0,), (1,))), np.array([1, 1]), Fraction(1))
    >>> scores = pick.scores(np.array([0, 0, 90, 10]), public=np.zeros(4), penalties=np.zeros(2))
    >>> scores.tolist(), pick.choose(scores, np.array([True, True]), seeded(1))
    ([0, 102400], 1)
    """

    layout: Marginals
    weights: IntArray
    epsilon: Fraction

    def __post_init__(self) -> None:
        if self.weights.shape != (len(self.layout),) or not len(self.layout):
            raise EngineInputError("a selection needs marginals with one weight each")
        if self.weights.dtype != np.int64 or self.weights.min() < 1 or self.weights.max() > WEIGHT:
            raise EngineInputError(f"weights must be whole numbers from 1 to {WEIGHT}")

    @property
    def sensitivity(self) -> Fraction:
        """The most that one event moves any score, in events."""
        return Fraction(int(self.weights.max()))

    @property
    def largest(self) -> int:
        """Events that a cell's count and its public number may each stand for: far beyond any table."""
        return max(1, min(_LARGEST, _ROOM // int(self.layout.lengths.max())))

    def scores(self, events: IntArray, *, public: FloatArray, penalties: FloatArray) -> IntArray:
        """`(marginals,)` int64 scores in quanta. Private.

        Args:
            events: `(cells,)` int64, inserts minus deletes of this step in every cell of the layout; private.
            public: `(cells,)`, last release minus model. penalties: `(marginals,)`. Both in events.
        """
        quanta = QUANTUM.denominator
        kept = np.clip(events, -self.largest, self.largest)
        sums: IntArray = self.layout.sums(np.abs(kept * quanta + _quantised(public, self.largest)))
        scores: IntArray = self.weights * (sums - _quantised(penalties, _LARGEST))
        return scores

    def choose(self, scores: IntArray, allowed: BoolArray, noise: NoiseSource) -> int:
        """The index of a marginal; safe to publish.

        Args:
            scores: from `scores`. allowed: `(marginals,)` which may be chosen, at least one; from releases alone.
        """
        among = np.flatnonzero(allowed)
        chosen = exponential_mechanism(
            scores[among], quantum=QUANTUM, sensitivity=self.sensitivity, epsilon=self.epsilon, source=noise
        )
        return int(among[chosen])


def _quantised(public: FloatArray, largest: int) -> IntArray:
    return np.rint(np.clip(public, -float(largest), float(largest)) * QUANTUM.denominator).astype(np.int64)
