"""Rounds of select, measure, fit: what mode `paper` does in a step.

In each round the marginal that the model is furthest from is chosen (`selection`), counted once more (a continual
counter of its own), and the model is fitted to all that was measured in this step (`fitting`).
Guarantee: `epsilon`-DP for one event, inserted or deleted, over all steps. An event is in one step. There it sways
    `rounds` choices, at `Selection.epsilon` each, and is counted by the counters of `rounds` different marginals, at
    `counter.cost` each (`engines.core.counters.selective`, applied once a round); all else is computed from releases.
Source: [kumar2024c], algorithms 2 and 3; [kumar2024], algorithm 14; corrected as docs/guarantee.md section 9 says.
Units: events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.counters import Counter, CounterState
from engines.core.counters.selective import SelectiveCounting
from engines.core.noise import NoiseSource
from engines.tabular.marginals import Marginals
from engines.tabular.papers.beliefs import Beliefs
from engines.tabular.papers.fitting import ModelFitter, Observed
from engines.tabular.papers.selection import QUANTUM, Selection
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.errors import EngineInputError

POTENTIAL = Fraction(1, 1 << 20)
"""Potentials are rounded to it: libraries and machines differ in the last bits of logarithms."""
LEAST_TOTAL = 1.0
"""A model is a distribution: it has a row at least, whatever noise says."""


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
    Raises: EngineInputError.
    """

    fitter: ModelFitter
    selection: Selection
    counter: Counter
    rounds: int
    penalty: float = 1.0

    def __post_init__(self) -> None:
        if self.layout.cliques != self.fitter.marginals:
            raise EngineInputError("the model must hold the marginals to choose from")
        if self.counter.measure != "epsilon":
            raise EngineInputError("counter must be one of pure differential privacy: its noise is Laplace")
        if not 1 <= self.rounds <= len(self.layout):
            raise EngineInputError("rounds must be at least 1 and at most the marginals to choose from")

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
        """Before the first step: an empty table, and the uniform model."""
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
    """To multiples of `grid`: what is released, and decides what is measured next, has no last bits to differ in."""
    return np.asarray(np.rint(values * float(1 / grid)) * float(grid))


def increment_variance(counter: Counter, activation: int) -> float:
    """Variance of the noise in a counter's increment, an upper bound where increments share noise."""
    if activation == 1:
        return counter.variance(1)
    return counter.variance(activation) + counter.variance(activation - 1)


def expected_noise(counter: Counter) -> float:
    """Expected size of the noise in one cell of a first increment, taken as Laplace noise."""
    return float(np.sqrt(counter.variance(1) / 2))


def estimated_total(observed: Sequence[Observed]) -> float:
    """Inverse-variance mean of the sums of noisy marginals. Public."""
    sums = np.array([each.counts.sum() for each in observed])
    weights = np.array([1.0 / (each.counts.size * each.variance) for each in observed])
    return float(rounded((weights * sums).sum() / weights.sum()))
