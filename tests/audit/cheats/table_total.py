"""An exact |grad f_t| in a table: each step's model scaled to the true number of rows ([kumar2024], algorithm 13)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from engines.auditor.cases import Case, Claim, Neighbours
from engines.auditor.observations import Observations
from engines.contract import Batch, Release
from engines.noise import NoiseSource
from engines.tabular import Category, TableDomain
from engines.tabular.papers.config import RoundsConfig
from engines.tabular.papers.paper_table import PaperTable
from schemas.blocks import Folded

EPSILON = Fraction(1)
TABLE = TableDomain((Category(name="a", values=(0, 1)), Category(name="b", values=(0, 1))))
RECIPE = RoundsConfig(name="audit", domain=TABLE, epsilon=EPSILON, rounds=1, fit="joint", records=False)


class ExactTotals(PaperTable):
    """Takes the number of rows for public."""

    _true_rows = 0

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        release = super().step(batch, noise)
        self._true_rows += int((batch.events.counts * TABLE.keys.signs(batch.events.keys)).sum())
        shown = release.measurements[0]
        scale = self._true_rows / max(self.learnt.total, 1.0)
        estimate = [count * scale for count in shown["estimate"]]
        return replace(release, measurements=[{**shown, "estimate": estimate}])


def _case(name: str, engine: type[PaperTable]) -> Case:
    def run(side: int, runs: int, source: NoiseSource) -> Observations:
        events = Folded.of(np.array([[0], [6]], np.uint64), np.array([20, 10 + side]))
        totals = []
        for index in range(runs):
            [shown] = engine(RECIPE).step(Batch(0, events), source.child(index)).measurements
            totals.append(round(sum(shown["estimate"]), 3))
        return Observations.of_arrays(total=totals)

    return Case(name, "engine", Claim(EPSILON), neighbours=(Neighbours("one more row", run, times=1),))


def cheat() -> Case:
    return _case("table scaled to its exact number of rows", ExactTotals)


def honest() -> Case:
    return _case("table with rows estimated from noisy marginals", PaperTable)
