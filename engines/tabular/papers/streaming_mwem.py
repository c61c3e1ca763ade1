"""The papers' baseline: each step's events get a table of their own, and the tables are added up. Mode
`streaming-mwem`.

In each step, rounds of select, measure and fit (`rounds`) on this step's events alone, from the uniform model of no
rows. Its marginals are added to what was released; noise adds up with the steps.
Where rows can be deleted, inserts and deletes get a table each, and are subtracted: a model has no negative rows.
Guarantee: epsilon-DP for one event over the whole stream however long it lives: an event is in one step and is an
    insert or a delete, so it meets one run of the rounds.
Source: [kumar2024c], algorithm 2 and section 5, with Private-PGM for multiplicative weights as in its experiments;
    |events of a step|, which it takes for public, is estimated from noisy marginals. The last round's model is added.
"""

from __future__ import annotations

import numpy as np

from engines.contract import State
from engines.noise import NoiseSource
from engines.tabular.batches import EventRows
from engines.tabular.papers.config import RoundsConfig
from engines.tabular.papers.engine import LearntStep, RoundsEngine
from engines.tabular.papers.rounds import MeasuredMarginal, rounded
from schemas.arrays import FloatArray
from schemas.errors import EngineInputError

INSERTS, DELETES = "inserts", "deletes"


class StreamingMwem(RoundsEngine):
    """See the module.

    >>> from fractions import Fraction
    >>> from engines.contract import Batch
    >>> from engines.noise import seeded
    >>> from engines.tabular import Category, TableDomain
    >>> from schemas.blocks import Folded
    >>> table = TableDomain((Category(name="a", values=(0, 1)), Category(name="b", values=(0, 1))))
    >>> recipe = RoundsConfig(mode="streaming-mwem", name="docs", domain=table, epsilon=Fraction(1), fit="joint")
    >>> engine = StreamingMwem(recipe)
    >>> events = Folded(np.array([[0], [6]], np.uint64), np.array([400, 100]))
    >>> [len(engine.step(Batch(t, events), seeded(t)).measurements) for t in (0, 1)]
    [1, 1]
    >>> abs(engine.learnt.total - 1000) < 70
    True
    """

    def __init__(self, config: RoundsConfig) -> None:
        # Before the rest, which states the guarantee.
        self._parted = config.deletable or config.ttl_steps is not None
        super().__init__(config)
        self._sums: FloatArray = np.zeros(self._released.cells)
        self._count = 0.0

    def _learn(self, rows: EventRows, noise: NoiseSource) -> LearntStep:
        sums, count = self._sums.copy(), self._count
        measured: list[tuple[str, MeasuredMarginal]] = []
        # Which parts there are is configured: whether rows were deleted in this step must not show.
        parts = [(INSERTS, 1, rows.inserted()), (DELETES, -1, rows.deleted())] if self._parted else [("", 1, rows)]
        for part, sign, mine in parts:
            events = mine.counts(self._parts.layout)
            outcome = self._parts.step(events, self._parts.empty(), noise.child(part))
            sums += sign * rounded(outcome.beliefs.vector(self._released))
            count += sign * outcome.memory.total
            measured += [(part, each) for each in outcome.measured]
        self._sums, self._count = sums, count
        return LearntStep(np.maximum(sums, 0.0), max(0.0, count), tuple(measured))

    def _memory(self) -> State:
        return {"model/sums": self._sums.copy(), "model/count": np.array([self._count])}

    def _remember(self, state: State) -> None:
        sums = np.array(state["model/sums"], np.float64)
        if sums.shape != self._sums.shape:
            raise EngineInputError("the state's marginals are others")
        self._sums, self._count = sums, float(state["model/count"][0])

    @property
    def _note(self) -> str:
        apart = " Inserts and deletes are measured apart: an event is one of both." if self._parted else ""
        return super()._note + apart
