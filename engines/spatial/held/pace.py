"""The pace of a stream: what the watch counted in a step corrects what leaves are expected to hold.

A leaf's rate is learnt when the leaf is measured; until then it is as old as that, and at first a guess. The watch has
counted every step since. So rates follow it by two factors: one that all leaves have in common, and one that those in a
cell of the watch have. For each a scalar Kalman filter holds the factor to be 1 with some variance, and observes it
through what was expected where the watch counted: where that is little beside the noise of the count, next to nothing
is corrected. What was expected of steps before is corrected by the part that is no news of this step (the smoother's
gain).
Privacy: released values only, so all of it is free. Floats are added, multiplied and divided one by one, in a fixed
    order, as in `engines.spatial.held.estimate`.
Source: [kalman1960]; the two factors are ours.
Units: variances are of factors, hence shares of a rate, squared.
"""

from __future__ import annotations

import numpy as np

from engines.spatial.held.measure import Watch
from engines.spatial.held.tree import HeldTree
from schemas.arrays import BoolArray, FloatArray, IntArray

WHOLE, WHOLE_DRIFT = 0.25, 0.01
"""Variance of the common factor before the watch has counted, and what it gains per step."""
CELL, CELL_DRIFT = 0.1, 0.002
"""The same, of the factor of a cell."""
MOST_DOUBT = 1.0
"""A factor is known at least so well: rates that go to nothing would else be doubted beyond measure."""
LEAST_FACTOR = 0.1
"""A factor is no nearer to 0, of either sign: a rate of 0 could not be corrected any more."""


def unknown(watch: Watch) -> FloatArray:
    """Return the variances before the watch has counted: `(1 + cells,)`, of the common factor and of each cell's."""
    return np.append(WHOLE, np.full(int(watch.there.sum()), CELL))


def follow(
    tree: HeldTree, watch: Watch, counts: IntArray, hot: BoolArray, doubts: FloatArray, *, now: int
) -> FloatArray:
    """Correct rates and forecasts of all leaves by what the watch counted in this step.

    Args:
        counts: `(cells,)` noisy counts of the cells that are there; released.
        hot: `(2**depth,)` cells to leave out, since what is in them is counted at once.
        doubts: `(1 + cells,)` variances of the factors after the step before.
    Returns: the variances now.
    """
    leaves, there = tree.leaves, np.flatnonzero(watch.there)
    # A part is a cell of the watch and its leaves, or a coarser leaf and its cells.
    begins, part = np.unique(tree.starts >> (tree.depth - watch.depth), return_inverse=True)
    part_of = np.searchsorted(begins, there, side="right") - 1
    cells = np.bincount(part_of)
    calm = np.bincount(part_of, hot[there]) == 0
    # Where nothing is expected nothing is learnt.
    expected = np.where(calm, np.bincount(part, tree.rate[leaves]), 0.0)
    seen = np.where(calm, np.bincount(part_of, counts), 0.0)
    noise = watch.variance * cells.astype(np.float64) + np.abs(expected)
    before: FloatArray = np.bincount(part_of, doubts[1:]) / cells
    # Seen from the whole domain, the factor of a cell is noise like that of its count.
    spread = noise + expected * expected * (before + CELL_DRIFT)
    evidence, surprise = expected * expected / spread, expected * (seen - expected) / spread
    whole, whole_past, doubt = _corrected(_sum(evidence), _sum(surprise), doubts[:1], WHOLE_DRIFT)
    expected = whole * expected
    evidence, surprise = expected * expected / noise, expected * (seen - expected) / noise
    each, each_past, after = _corrected(evidence, surprise, before, CELL_DRIFT)
    factor, past = (whole * each)[part], (whole_past * each_past)[part]
    # What was merged in this step has its forecast already.
    steps = np.maximum(now - tree.last[leaves] - 1, 0)
    tree.forecast[leaves] += tree.rate[leaves] * (past - factor) * steps
    tree.rate[leaves] *= factor
    tree.rate_variance[leaves] *= factor * factor
    return np.append(doubt, after[part_of])


def _sum(values: FloatArray) -> FloatArray:
    """Return `(1,)`: added up from the first on, where `np.sum` adds in an order of its own."""
    return np.cumsum(values)[-1:]


def _corrected(
    evidence: FloatArray, surprise: FloatArray, doubt: FloatArray, drift: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Correct factors that were held to be 1, `(factors,)` each.

    Args:
        evidence: of what was expected `e` with noise of variance `n`, the sum of `e e / n`. surprise: where `y` was
            seen, the sum of `e (y - e) / n`.
    Returns: factors of this step, those of steps before, and the variances of what is left.
    """
    prior = doubt + drift
    known = 1 + prior * evidence
    factor = 1 + prior * surprise / known
    factor = np.where(np.abs(factor) < LEAST_FACTOR, np.copysign(LEAST_FACTOR, factor), factor)
    return factor, 1 + doubt / prior * (factor - 1), np.minimum(prior / known / (factor * factor), MOST_DOUBT)
