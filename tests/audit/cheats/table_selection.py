"""Two ways in which the choice of a marginal costs more than it says, both from the papers.

One event can lower one marginal's score and raise another's: it undoes a delete in the first, and adds a second change
to the other. `spent twice`: exp(eps u / Delta) for exp(eps u / 2 Delta) ([kumar2024], algorithm 13, line 10).
`divided`: scores over the number of cells, taken to have sensitivity 1/4 because a pair of attributes has four cells or
more ([kumar2024c], section 7.2); an attribute with one value breaks that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from engines.auditor.cases import Case, Claim, Neighbours
from engines.auditor.observations import Observations
from engines.noise import NoiseSource, exponential_mechanism
from engines.tabular import Marginals
from engines.tabular.papers.selection import QUANTUM, Selection
from schemas.arrays import BoolArray, IntArray

EPSILON = Fraction(1)
SIZES = (1, 2, 2)
"""The first attribute has one value."""
LAYOUT = Marginals(SIZES, ((0, 1), (0, 2)))
HONEST = Selection(LAYOUT, np.array([1, 1]), EPSILON)
DELETED, INSERTED = [0, 0, 0], [0, 0, 1]
"""Rows: alike in the first pair, different in the second."""


@dataclass(frozen=True, slots=True, eq=False)
class Divided(Selection):
    """Scores over the cells, at a sensitivity of 1/4."""

    def choose(self, scores: IntArray, allowed: BoolArray, noise: NoiseSource) -> int:
        return exponential_mechanism(
            scores // self.layout.lengths,
            quantum=QUANTUM,
            sensitivity=Fraction(1, 4),
            epsilon=self.epsilon,
            source=noise,
        )


def _case(name: str, selection: Selection) -> Case:
    def run(side: int, runs: int, source: NoiseSource) -> Observations:
        rows = np.array([DELETED, INSERTED][: 1 + side])
        events = LAYOUT.counts(rows, np.array([-1, 1][: 1 + side]))
        scores = selection.scores(events, public=np.zeros(LAYOUT.cells), penalties=np.zeros(len(LAYOUT)))
        both = np.ones(len(LAYOUT), np.bool_)
        chosen = [selection.choose(scores, both, source.child(index)) for index in range(runs)]
        return Observations.of_arrays(first=[index == 0 for index in chosen])

    pair = Neighbours("an insert that undoes a delete in one marginal only", run, times=20)
    return Case(name, "mechanism", Claim(EPSILON), neighbours=(pair,))


def spent_twice() -> Case:
    return _case("choice of a marginal at twice its budget", replace(HONEST, epsilon=2 * EPSILON))


def divided() -> Case:
    return _case("scores divided by cells", Divided(LAYOUT, np.array([1, 1]), EPSILON))


def honest() -> Case:
    return _case("choice of a marginal", HONEST)
