"""The papers' tabular stream, made private: one model that is corrected step by step. Mode `paper`.

In each step, rounds of select, measure and fit (`rounds`) on this step's events: the marginal whose counts, added to
the last release, are furthest from the model; once more into that marginal's own continual counter; the model fitted to
what was measured, from where it stood. A marginal that is not measured goes on from what was released of it, one
that is measured in consecutive steps from its own counts.
Guarantee: epsilon-DP for one event, inserted or deleted, over the whole stream however long it lives (`rounds`).
Source: [kumar2024], algorithm 14; [kumar2024c], algorithm 3; corrected (docs/guarantee.md section 9): half the budget
    for each of choices and counts, scores of sensitivity 1, an empty start, totals from noisy marginals. The last
    round's model is released, which is closer than the mean over rounds; docs/notes/0041.
"""

from __future__ import annotations

import numpy as np

from engines.contract import State
from engines.noise import NoiseSource
from engines.tabular.batches import EventRows
from engines.tabular.papers.config import RoundsConfig
from engines.tabular.papers.engine import LearntStep, RoundsEngine
from engines.tabular.papers.rounds import Memory, rounded
from schemas.errors import EngineInputError

_COUNTER = "model/counter"


class PaperTable(RoundsEngine):
    """See the module.

    >>> from fractions import Fraction
    >>> from engines.contract import Batch
    >>> from engines.noise import seeded
    >>> from engines.tabular import Category, TableDomain
    >>> from schemas.blocks import Folded
    >>> table = TableDomain((Category(name="a", values=(0, 1)), Category(name="b", values=(0, 1))))
    >>> recipe = RoundsConfig(mode="paper", name="docs", domain=table, epsilon=Fraction(1), fit="joint")
    >>> engine = PaperTable(recipe)
    >>> release = engine.step(Batch(0, Folded(np.array([[0], [6]], np.uint64), np.array([400, 100]))), seeded(1))
    >>> release.measurements[0]["marginal"], abs(engine.learnt.total - 500) < 50
    (['a', 'b'], True)
    """

    def __init__(self, config: RoundsConfig) -> None:
        super().__init__(config)
        self._model = self._parts.empty()

    def _learn(self, rows: EventRows, noise: NoiseSource) -> LearntStep:
        outcome = self._parts.step(rows.counts(self._parts.layout), self._model, noise)
        self._model = outcome.memory
        return LearntStep(
            rounded(outcome.beliefs.vector(self._released)),
            outcome.memory.total,
            tuple(("", measured) for measured in outcome.measured),
        )

    def _memory(self) -> State:
        model = self._model
        arrays = {
            "model/potentials": model.potentials.copy(),
            "model/release": model.release.copy(),
            "model/carried": model.carried.copy(),
            "model/total": np.array([model.total]),
        }
        # A counter that was never selected remembers nothing.
        for index, activations in enumerate(self._parts.counting.activations(model.counters)):
            if activations:
                for name, array in model.counters[index].items():
                    arrays[f"{_COUNTER}/{index}/{name}"] = array.copy()
        return arrays

    def _remember(self, state: State) -> None:
        empty = self._parts.empty()
        counters = list(empty.counters)
        for index, untouched in enumerate(empty.counters):
            prefix = f"{_COUNTER}/{index}/"
            if any(name.startswith(prefix) for name in state):
                counters[index] = {name: np.array(state[prefix + name]) for name in untouched}
        potentials, release, carried = (
            np.array(state[f"model/{name}"], np.float64) for name in ("potentials", "release", "carried")
        )
        if potentials.shape != empty.potentials.shape or not release.shape == carried.shape == empty.release.shape:
            raise EngineInputError("the state's model is of another structure")
        self._model = Memory(potentials, release, carried, tuple(counters), float(state["model/total"][0]))
