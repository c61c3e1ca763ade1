"""What the modes of engine `tabular` are compared with: [kumar2024c]'s algorithm 2, a table of each step by itself.

In each step, rounds of select, measure and fit on this step's rows alone, from the uniform model of no rows. The
marginals of its last round are added to what was released; noise adds up with the steps.
Where rows can be deleted, inserts and deletes get a table each, and are subtracted: a model has no negative rows.
Source: [kumar2024c], algorithm 2 and section 5, with Private-PGM for multiplicative weights as in its experiments;
    |rows of a step|, which it takes for public, is estimated from noisy marginals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from engines.core.noise import NoiseSource
from engines.tabular.marginals import Marginals
from engines.tabular.papers.rounds import Rounds, rounded
from schemas.arrays import FloatArray, IntArray


def streaming_mwem(
    rounds: Rounds, released: Marginals, steps: Iterable[tuple[IntArray, IntArray, NoiseSource]], *, deletes: bool
) -> Iterator[FloatArray]:
    """`(cells,)` rows in each cell of `released` after each step.

    Args:
        rounds: of one step, for all of epsilon: an event is in one step, and is an insert or a delete.
        steps: codes `(rows, attributes)`, whether each comes (+1) or goes (-1) `(rows,)`, and the noise of the step.
        deletes: whether rows may go.
    """
    sums = np.zeros(released.cells)
    for codes, signs, noise in steps:
        for name, sign in (("inserts", 1), ("deletes", -1)) if deletes else (("", 1),):
            events = rounds.layout.counts(codes[signs == sign], np.abs(signs[signs == sign]))
            outcome = rounds.step(events, rounds.empty(), noise.child(name))
            sums = sums + sign * rounded(outcome.beliefs.vector(released))
        yield np.maximum(sums, 0.0)
