"""Rounds of select, measure, fit: what mode `paper` does in a step.

In each round the marginal that the model is furthest from is chosen (exponential mechanism), counted once more (a
continual counter of its own), and the model is fitted to all that was measured in this step (`fitting`).
Guarantee: `epsilon`-DP for one event, inserted or deleted, over all steps. An event is in one step. There it sways
    `rounds` choices, at `Selection.epsilon` each, and is counted by the counters of `rounds` different marginals, at
    `counter.cost` each (`engines.core.counters.selective`, applied once a round); all else is computed from releases.
Score of a marginal q: w_q * (sum over its cells of |q(events) + public_q| - penalty_q). `public` is what the last
    release has more than the model, in these cells, and follows from releases; so do the penalties; weights are
    configured. An event changes one cell of q(events) by 1, so it moves that sum by 1 at most, and the score by w_q:
    the sensitivity is the largest weight. The reverse triangle inequality asks for nothing else, neither for attributes
    with two values or more nor for a division by the cells, which the papers use (docs/notes/0041).
Exact: events are integers, and public numbers are rounded to whole quanta before events are added to them, so that
    scores of neighbours differ by what is proved and by no rounding. Events and public numbers are first cut at a bound
    that follows from the number of cells (`Selection.largest`): no score leaves 64 bits, and a cut moves no further
    than what is cut.
Source: [kumar2024c], algorithms 2 and 3, sections 6.4 and 7.2; [kumar2024], algorithm 14; corrected as
    docs/guarantee.md section 9 says.
Units: events; of scores, `QUANTUM` events; weights are whole numbers up to `WEIGHT`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.counters import Counter, CounterState
from engines.core.counters.selective import SelectiveCounting
from engines.core.noise import NoiseSource
from engines.core.noise.exponential import exponential_mechanism
from engines.tabular.marginals import Marginals
from engines.tabular.papers.fitting import ModelFitter, Observed
from engines.tabular.papers.model import Beliefs
from schemas.arrays import BoolArray, FloatArray, IntArray

QUANTUM = Fraction(1, 1024)
WEIGHT = 256
"""Of the heaviest marginal."""
_LARGEST = 2**32
_ROOM = 2**44 // 3
"""Events that the cells of a marginal stand for: twice that (counts and public numbers) and a penalty of `_LARGEST`, in
quanta and at the heaviest weight, are less than 2**62."""
POTENTIAL = Fraction(1, 1 << 20)
"""Potentials are rounded to it: libraries and machines differ in the last bits of logarithms."""
LEAST_TOTAL = 1.0
"""A model is a distribution: it has a row at least, whatever noise says."""


def whole_weights(weights: Sequence[Fraction]) -> IntArray:
    """Return weights in proportion, from 1 to `WEIGHT`, `(marginals,)` int64. Public."""
    heaviest = max(weights)
    return np.array([max(1, int(weight * WEIGHT / heaviest)) for weight in weights], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """How one marginal out of a layout is chosen. Public constants.

    Attributes:
        layout: marginals to choose from; an event is in one cell of each.
        weights: `(marginals,)` int64, from `whole_weights`.
        epsilon: of one choice.

    >>> from engines.core.noise import seeded
    >>> pick = Selection(Marginals((2, 2), ((0,), (1,))), np.array([1, 1]), Fraction(1))
    >>> scores = pick.scores(np.array([0, 0, 90, 10]), public=np.zeros(4), penalties=np.zeros(2))
    >>> scores.tolist(), pick.choose(scores, np.array([True, True]), seeded(1))
    ([0, 102400], 1)
    """

    layout: Marginals
    weights: IntArray
    epsilon: Fraction

    @property
    def sensitivity(self) -> Fraction:
        """The most that one event moves any score, in events."""
        return Fraction(int(self.weights.max()))

    @property
    def largest(self) -> int:
        """Events that a cell's count and its public number may each stand for: far beyond any table."""
        return max(1, min(_LARGEST, _ROOM // int(self.layout.lengths.max())))

    def scores(self, events: IntArray, *, public: FloatArray, penalties: FloatArray) -> IntArray:
        """Return scores in quanta, `(marginals,)` int64. Private.

        Args:
            events: `(cells,)` int64, inserts minus deletes of this step in every cell of the layout; private.
            public: `(cells,)`, last release minus model. penalties: `(marginals,)`. Both in events.
        """
        quanta = QUANTUM.denominator
        kept = np.clip(events, -self.largest, self.largest)
        sums: IntArray = self.layout.sums(np.abs(kept * quanta + _quantised(public, self.largest)))
        return self.weights * (sums - _quantised(penalties, _LARGEST))

    def choose(self, scores: IntArray, allowed: BoolArray, noise: NoiseSource) -> int:
        """Choose a marginal; its index is safe to publish.

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


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredMarginal:
    """One marginal measured in one round. Public. Attributes:

    index: of the marginal in the layout.
    increment: `(its cells,)` int64, noisy inserts minus deletes of this step, in units of 1/resolution events.
    variance: of a cell of `increment`, in squared events.
    """

    index: int
    increment: IntArray
    variance: float


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """What one step leaves to the next. Attributes:

    potentials: of the model.
    release: `(cells,)` what the last release says of the layout's marginals.
    carried: `(cells,)` the same, but for marginals measured in the last step what was measured.
    counters: a state for each marginal; PRIVATE where the counter holds events back.
    total: events in the last release.
    """

    potentials: FloatArray
    release: FloatArray
    carried: FloatArray
    counters: tuple[CounterState, ...]
    total: float


@dataclass(frozen=True, slots=True, eq=False)
class RoundsOutcome:
    """Everything a step measured and concluded. Public but for `memory.counters`."""

    memory: Memory
    measured: tuple[MeasuredMarginal, ...]
    beliefs: Beliefs


@dataclass(frozen=True, slots=True, eq=False)
class Rounds:
    """The parts. Public constants, no data.

    Attributes:
        fitter: its marginals are `layout`'s.
        selection: of one round.
        counter: of one marginal; private under adaptive continual release.
        rounds: choices in a step; never more than there are marginals.
        penalty: share of the expected noise, summed over a marginal's cells, that its score loses.
    """

    fitter: ModelFitter
    selection: Selection
    counter: Counter
    rounds: int
    penalty: float = 1.0

    @property
    def layout(self) -> Marginals:
        return self.selection.layout

    @property
    def counting(self) -> SelectiveCounting:
        """What one round is."""
        return SelectiveCounting(counters=(self.counter,) * len(self.layout), selection_cost=self.selection.epsilon)

    @property
    def epsilon(self) -> Fraction:
        """What one event costs over all steps: each round's choice and count."""
        return self.rounds * self.counting.cost

    def empty(self) -> Memory:
        """Return what is known before the first step: an empty table, and the uniform model."""
        zeros = np.zeros(self.layout.cells)
        counters = self.counting.initial([int(length) for length in self.layout.lengths])
        return Memory(self.fitter.initial(), zeros, zeros, counters, 0.0)

    def step(self, events: IntArray, memory: Memory, noise: NoiseSource) -> RoundsOutcome:
        """Args: events: `(cells,)` int64, inserts minus deletes of this step in each cell of the layout; private.

        Raises: EngineInputError if a counter was activated as often as its horizon allows; nothing is drawn then.
        """
        layout, counting = self.layout, self.counting
        potentials, counters = memory.potentials, memory.counters
        model, beliefs = memory.release, None
        carried, total = memory.carried.copy(), memory.total
        allowed: BoolArray = np.ones(len(layout), np.bool_)
        penalties = layout.lengths.astype(np.float64) * (self.penalty * expected_noise(self.counter))
        measured: list[MeasuredMarginal] = []
        observed: list[Observed] = []
        for at in range(self.rounds):
            scores = self.selection.scores(events, public=memory.release - model, penalties=penalties)
            index = self.selection.choose(scores, allowed, noise.child("choice", at))
            cells = slice(int(layout.offsets[index]), int(layout.offsets[index + 1]))
            before = counting.activations(counters)[index]
            increment, counters = counting.step(index, events[cells], counters, noise.child("count", at))
            # From here on nothing is private: the choice and the increment are released.
            allowed[index] = False
            measured.append(MeasuredMarginal(index, increment, increment_variance(self.counter, before + 1)))
            carried[cells] += increment / self.counter.resolution
            variance = max(self.counter.variance(before + 1), np.finfo(np.float64).tiny)
            observed.append(Observed(layout.cliques[index], carried[cells].reshape(layout.shape(index)), variance))
            total = max(LEAST_TOTAL, estimated_total(observed))
            potentials = rounded(self.fitter.fit(potentials, observed, total=total), POTENTIAL)
            beliefs = self.fitter.beliefs(potentials, total=total)
            model = rounded(beliefs.vector(layout))
        assert beliefs is not None
        # What was not measured is what the release says; what was, goes on from its measurement.
        chosen = layout.spread([not free for free in allowed])
        after = Memory(potentials, model, np.where(chosen, carried, model), counters, total)
        return RoundsOutcome(after, tuple(measured), beliefs)


def rounded(values: FloatArray, grid: Fraction = QUANTUM) -> FloatArray:
    """Round to multiples of `grid`: what is released, or decides what is measured, has no last bits to differ in."""
    return np.asarray(np.rint(values * float(1 / grid)) * float(grid))


def increment_variance(counter: Counter, activation: int) -> float:
    """Return the variance of the noise in a counter's increment, an upper bound where increments share noise."""
    if activation == 1:
        return counter.variance(1)
    return counter.variance(activation) + counter.variance(activation - 1)


def expected_noise(counter: Counter) -> float:
    """Return the expected size of the noise in one cell of a first increment, taken as Laplace noise."""
    return float(np.sqrt(counter.variance(1) / 2))


def estimated_total(observed: Sequence[Observed]) -> float:
    """Return the inverse-variance mean of the sums of noisy marginals. Public."""
    sums = np.array([each.counts.sum() for each in observed])
    weights = np.array([1.0 / (each.counts.size * each.variance) for each in observed])
    return float(rounded((weights * sums).sum() / weights.sum()))
