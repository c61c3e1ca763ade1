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

from dataclasses import dataclass
from typing import Any

import numpy as np

from engines.core.accounting.budgets import Budgets
from engines.core.contract import Batch, Release, State
from engines.core.noise import NoiseSource
from engines.core.state import Expiry, head, numbers_of, reading, with_expired
from engines.tabular.forest import dependences, spanning_forest
from engines.tabular.marginals import EventRows, Marginals, check_batch
from engines.tabular.papers.config import RoundsConfig
from engines.tabular.papers.rounds import MeasuredMarginal, Memory, rounded
from engines.tabular.records import Fitted, Rows, stream_key
from schemas.arrays import FloatArray, below, under
from schemas.errors import EngineInputError
from schemas.guarantee import Guarantee, Mechanism

STATE_FORMAT = 1
_COUNTER = "model/counter"


@dataclass(frozen=True, slots=True, eq=False)
class LearntStep:
    """What a step released, before it is made into rows. Public. Attributes:

    released: `(cells,)` of `RoundsConfig.released`: rows in each cell, not negative.
    total: rows in all.
    measured: in order.
    """

    released: FloatArray
    total: float
    measured: tuple[MeasuredMarginal, ...]


class PaperTable:
    """See the module; implements `engines.core.contract.Engine`.

    >>> from fractions import Fraction
    >>> from engines.core.contract import Batch
    >>> from engines.core.noise import seeded
    >>> from engines.tabular.domain import Category, TableDomain
    >>> from schemas.blocks import Folded
    >>> table = TableDomain((Category(field="a", values=(0, 1)), Category(field="b", values=(0, 1))))
    >>> recipe = RoundsConfig(name="docs", domain=table, epsilon=Fraction(1), fit="joint")
    >>> engine = PaperTable(recipe)
    >>> release = engine.step(Batch(0, Folded(np.array([[0], [6]], np.uint64), np.array([400, 100]))), seeded(1))
    >>> release.measurements[0]["marginal"], abs(engine.learnt.total - 500) < 50
    (['a', 'b'], True)
    """

    def __init__(self, config: RoundsConfig) -> None:
        self.config = config
        self._parts = config.parts
        self._released = config.released
        self._next = 0
        # An event is in one step, where it meets all the rounds.
        self._budgets = Budgets.from_guarantee(self.guarantee())
        self._expiry = Expiry.empty(config.domain.words)
        self._model = self._parts.empty()
        self._last = LearntStep(np.zeros(self._released.cells), 0.0, ())
        self._key = stream_key(config.name)
        self._rows = Rows.none(len(config.domain.sizes))

    @property
    def learnt(self) -> LearntStep:
        """What the last step released."""
        return self._last

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        config, parts = self.config, self._parts
        check_batch(batch, step=self._next, domain=config.domain)
        events, expiry = with_expired(batch.events, self._expiry, step=batch.step, ttl=config.ttl_steps)
        # Refused here, no noise is drawn.
        budgets = self._budgets.charged(self.guarantee(), "choices", "counts", step=batch.step)
        learnt = self._learn(EventRows.of(events, config.domain), noise)
        before, after = self._rows, self._followed(learnt, noise.child("rows"))
        self._last, self._expiry, self._budgets, self._next = learnt, expiry, budgets, batch.step + 1
        self._rows = after
        changed = after.change(before, config.domain, self._key, weighted=config.weighted)
        return Release(
            step=batch.step,
            added=changed.added,
            removed=changed.removed,
            measurements=self._measurements(learnt),
            total=changed.total,
            notes={
                "rows_estimate": round(learnt.total),
                "measured": len(learnt.measured),
                "model_cells": parts.fitter.tree.cells,
            },
            weight=changed.weight,
        )

    def _followed(self, learnt: LearntStep, noise: NoiseSource) -> Rows:
        """Return the rows, closer to what was released.

        A step may change a share of the rows, and twice what came or went: an event changes one value in each
        attribute's marginal by one, so what those changed by, in the mean, says how many events there were.
        """
        config, rows = self.config, self._rows
        if not config.records:
            return rows
        ones = config.ones
        changed = np.abs(learnt.released - self._last.released)[: ones.cells].sum()
        came = float(changed) / len(ones) if len(ones) else abs(learnt.total - self._last.total)
        return config.keeper.follow(
            rows,
            self._shares(learnt, draw=not len(rows)),
            total=round(learnt.total),
            most=int(2 * came + config.churn * len(rows)),
            new_fit=True,
            noise=noise,
        )

    def _shares(self, learnt: LearntStep, *, draw: bool) -> Fitted:
        """Return released marginals as shares of the rows, and, to draw the first rows along, a forest of pairs."""
        ones, larger = self.config.ones, self.config.larger
        sums = self._released.sums(learnt.released)
        even = 1 / self._released.spread(self._released.lengths.astype(np.float64))
        divisor = self._released.spread(np.where(sums > 0, sums, 1.0))
        shares = np.where(self._released.spread(sums) > 0, learnt.released / divisor, even)
        first, rest = shares[: ones.cells], shares[ones.cells :]
        edges: list[int] = []
        if draw:
            pairs = [clique for clique in larger.cliques if len(clique) == 2]
            layout = Marginals(larger.sizes, tuple(pairs))
            margins = [ones.table(first, attribute) for attribute in range(len(ones))]
            independent = [np.outer(margins[left], margins[right]).ravel() for left, right in pairs]
            scores = dependences(layout, rest[: layout.cells], np.concatenate([np.zeros(0), *independent]))
            edges = spanning_forest([(left, right) for left, right in pairs], scores, len(ones))
        return Fitted(first, rest, np.zeros(len(larger)), 0.0, np.array(edges, np.int64))

    def _learn(self, rows: EventRows, noise: NoiseSource) -> LearntStep:
        """Measure a step's PRIVATE rows, and remember the model. Raises: EngineInputError before that."""
        outcome = self._parts.step(rows.counts(self._parts.layout), self._model, noise)
        self._model = outcome.memory
        return LearntStep(rounded(outcome.beliefs.vector(self._released)), outcome.memory.total, outcome.measured)

    def _measurements(self, learnt: LearntStep) -> list[dict[str, Any]]:
        """Return one object for each measurement of this step, see `Release.measurements`.

        `increment` is a noisy marginal of this step's inserts minus deletes, the last attribute's values fastest,
        `variance` that of the noise in each of its cells, and `estimate` what the release says of all rows alive.
        """
        names, layout, released = self.config.domain.names, self._parts.layout, self._released
        resolution = self._parts.counter.resolution
        listed = []
        for measured in learnt.measured:
            clique = layout.cliques[measured.index]
            kept = self.config.reduced(clique)
            table = released.table(learnt.released, released.cliques.index(kept)) if kept else np.array(learnt.total)
            increment = measured.increment if resolution == 1 else measured.increment / resolution
            listed.append(
                {
                    "marginal": [names[attribute] for attribute in clique],
                    "increment": increment.tolist(),
                    "variance": measured.variance,
                    "estimate": table.ravel().tolist(),
                }
            )
        return listed

    def state(self) -> State:
        """See `engines.core.contract.Engine.state`. O(cells of the marginals), plus what waits for its ttl."""
        return {
            **head(STATE_FORMAT, self.config.identity, self._next),
            "released": self._last.released.copy(),
            "total": np.array([self._last.total]),
            **self._rows.arrays(self.config.domain),
            **self._model_arrays(),
            **self._expiry.arrays(),
            **self._budgets.arrays(),
        }

    def restore(self, state: State) -> None:
        (step,) = numbers_of(state, STATE_FORMAT, self.config.identity, count=1)
        with reading():
            released, total = np.array(state["released"], np.float64), float(state["total"][0])
            expiry, budgets = Expiry.from_arrays(state), self._budgets.restored(state)
            kept = Rows.of(state, self.config.domain)
            model = self._model_of(state)
        self._next, self._model = step, model
        self._last = LearntStep(released, total, ())
        self._expiry, self._budgets, self._rows = expiry, budgets, kept

    def _model_arrays(self) -> State:
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
                counter = {name: array.copy() for name, array in model.counters[index].items()}
                arrays |= under(f"{_COUNTER}/{index}/", counter)
        return arrays

    def _model_of(self, state: State) -> Memory:
        """Undo `_model_arrays`. Raises: KeyError or EngineInputError."""
        empty = self._parts.empty()
        counters = list(empty.counters)
        for index, untouched in enumerate(empty.counters):
            if found := below(f"{_COUNTER}/{index}/", state):
                counters[index] = {name: found[name].copy() for name in untouched}
        potentials, release, carried = (
            np.array(state[f"model/{name}"], np.float64) for name in ("potentials", "release", "carried")
        )
        if potentials.shape != empty.potentials.shape or not release.shape == carried.shape == empty.release.shape:
            raise EngineInputError("the state's model is of another structure")
        return Memory(potentials, release, carried, tuple(counters), float(state["model/total"][0]))

    def guarantee(self) -> Guarantee:
        """See `engines.core.contract.Engine.guarantee`. Pure; choices and counts add up to epsilon exactly."""
        parts, expires = self._parts, self.config.ttl_steps is not None
        return Guarantee(
            epsilon=self.config.epsilon,
            mechanisms=(
                Mechanism(
                    name="choice of a marginal (its distance from the model)",
                    distribution="exponential mechanism",
                    l1_sensitivity=1,
                    scale=2 / parts.selection.epsilon,
                    epsilon=parts.selection.epsilon,
                    uses=parts.rounds,
                    account="choices",
                ),
                Mechanism(
                    name="counts of a chosen marginal",
                    distribution="discrete Laplace",
                    l1_sensitivity=1,
                    scale=max(parts.counter.node_noise(1)),
                    epsilon=parts.counter.cost,
                    uses=parts.rounds,
                    account="counts",
                ),
            ),
            note="One event is measured in one step, in its rounds."
            + (" A ttl insert is two events: itself and its expiry." if expires else ""),
        )
