"""Hierarchical heavy hitters that are not private: one draw for the whole tree, or exact counts on the way down.

A tree of prefixes is reported as deep as counts reach a threshold; one event is counted in every prefix of its path.
`one_draw`: one Laplace draw is added to every count of the tree. Known counts around the threshold then tell what the
draw was, up to one event, and with it whether a count on the audited path is one larger: the loss is infinite on
outcomes that are about as likely as not. The authors of [biswas2024] say this of their scheme without a stream. Fresh
noise for each prefix, calibrated for a whole path, is private.
`exact_descent`: only the counts that are released have noise, and which prefixes these are is decided by exact counts;
so is whether there is another below. Choosing what to measure is a measurement.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from engines.auditor.cases import Case, Claim, Neighbours
from engines.auditor.observations import FOCUS, Observations
from engines.noise import NoiseSource, laplace_mechanism
from schemas.arrays import IntArray

EPSILON = Fraction(1)
LEVELS = 8
THRESHOLD = 50
BRANCHES = 3
"""Of the root: the audited one, and two whose counts everybody knows."""


class FreshNoise:
    """Descends each branch while noisy counts reach the threshold; each count has noise for all of a path."""

    def depths(self, counts: IntArray, runs: int, source: NoiseSource) -> IntArray:
        """`(runs, branches)` prefixes reported of each branch, of counts `(branches, levels)`."""
        return _reached(self.noisy(counts, runs, source))

    def noisy(self, counts: IntArray, runs: int, source: NoiseSource) -> IntArray:
        """`(runs, branches, levels)`."""
        drawn = laplace_mechanism(np.tile(counts.ravel(), runs), LEVELS / EPSILON, source)
        return drawn.reshape(runs, *counts.shape)

    def last(self, counts: IntArray, depths: IntArray, source: NoiseSource) -> IntArray:
        """`(runs,)` a count that goes out with the audited branch; none here, as it has no budget of its own."""
        return np.zeros(len(depths), np.int64)


class OneDraw(FreshNoise):
    """The same noise on every count."""

    def noisy(self, counts: IntArray, runs: int, source: NoiseSource) -> IntArray:
        drawn = laplace_mechanism(np.zeros(runs, np.int64), 1 / EPSILON, source)
        return counts + drawn[:, None, None]


class ExactDescent(FreshNoise):
    """Exact counts decide, and the last one that reached the threshold is released with noise."""

    def noisy(self, counts: IntArray, runs: int, source: NoiseSource) -> IntArray:
        return np.broadcast_to(counts, (runs, *counts.shape))

    def last(self, counts: IntArray, depths: IntArray, source: NoiseSource) -> IntArray:
        return laplace_mechanism(counts[0][depths[:, 0] - 1], 1 / EPSILON, source)


def _reached(noisy: IntArray) -> IntArray:
    """How many levels come before the first count below the threshold."""
    return np.cumprod(noisy >= THRESHOLD, axis=2).sum(axis=2)


def _counts(side: int) -> IntArray:
    """Counts fall by two a level; on the known branches they lie between those of the audited one."""
    falling = THRESHOLD + LEVELS - 2 * np.arange(LEVELS)
    return np.stack([falling + side - 1, falling - 1, falling])


def _case(name: str, scheme: FreshNoise) -> Case:
    def run(side: int, runs: int, source: NoiseSource) -> Observations:
        counts = _counts(side)
        depths = scheme.depths(counts, runs, source.child("depths"))
        last = scheme.last(counts, depths, source.child("last"))
        columns = {f"branch {index}": depths[:, index] for index in range(BRANCHES)}
        beyond = {f"{FOCUS}beyond branch {index}": depths[:, 0] - depths[:, index] for index in (1, 2)}
        return Observations.of_arrays(**columns, **beyond, last=last)

    return Case(name, "mechanism", Claim(EPSILON), neighbours=(Neighbours("one event more", run),))


def one_draw() -> Case:
    return _case("one draw for a tree of prefixes", OneDraw())


def exact_descent() -> Case:
    return _case("exact counts decide which prefixes are measured", ExactDescent())


def honest() -> Case:
    return _case("fresh noise for each prefix", FreshNoise())
