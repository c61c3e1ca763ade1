"""The method of the paper, read so that it is private: cells by PrivTree, transitions, a tree over pairs, lengths.

Guarantee: epsilon-DP for one trip: 3/10 for the cells, 4/10 for transitions, 3/10 for pairs.
Source: [kumar2024], algorithms 16 to 21. Read otherwise: transitions are count plus noise (algorithm 17
drops the count, then uses the raw one), negative ones 0, rows without mass uniform; exponential weights favour the
ENDS of a trip (equation 5.10 has the sign inverted); lengths have mean mode / ln 2 and are at least the hops; a cell
is stayed in with probability 0.97 at most; walks are conditioned on their end without powers of the matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from engines.core.noise import NoiseSource, aggregate
from engines.core.shares import Shares
from engines.spatial.split import SplitRule
from engines.trajectory.chance import uniforms
from engines.trajectory.engine import Limits, Synthesis
from engines.trajectory.histograms import UNIT, Histogram, Noisy, counted, equal_shares, measure
from engines.trajectory.papers.hierarchy import Hierarchy, codes_of, discretised
from engines.trajectory.papers.pair_tree import pair_counts, sampled
from engines.trajectory.trips import Trips
from engines.trajectory.walks import Errands, Onward, walk
from schemas.arrays import FloatArray, IntArray
from schemas.guarantee import Mechanism

SHARES = {"cells": Fraction(3, 10), "transitions": Fraction(4, 10), "pairs": Fraction(3, 10)}
STAYING = 0.97
_SOURCES = 128
"""Start cells whose most probable paths are looked for at once."""


def end_weighted_shares(transitions: IntArray, rank: IntArray) -> IntArray:
    """Return weights of a trip's transitions in units of 2**-20 trips, halved with each step away from the nearer end.

    Args: transitions, rank: of each transition, how many its trip has and which of them it is, from 0.
    Powers below 2**-40 of the largest count as 0; integer division keeps a trip's sum at 2**20 or less.

    >>> end_weighted_shares(np.array([3, 3, 3]), np.array([0, 1, 2])).tolist()
    [419430, 209715, 419430]
    """
    away = np.minimum(rank, transitions - 1 - rank)
    powers = np.where(away <= 40, np.int64(1) << np.maximum(40 - away, 0), 0)
    # A trip's sum in closed form: twice that of one half, and the middle one where there is one.
    half = np.minimum(transitions // 2, 41)
    sums = 2 * ((np.int64(1) << 41) - (np.int64(1) << (41 - half)))
    middle = (transitions % 2 == 1) & (transitions // 2 <= 40)
    sums = sums + np.where(middle, np.int64(1) << np.maximum(40 - transitions // 2, 0), 0)
    # 2**40 * 2**20 fits into int64, and so does every smaller power.
    shares: IntArray = powers * UNIT // sums
    return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """See the module; implements `engines.trajectory.engine.TripMode`.

    Args: spread: how a trip's weight is spread over its transitions; "exponential" favours its ends.
    """

    written_as: ClassVar[str] = "Paper"
    note: ClassVar[str] = ""

    spread: Literal["uniform", "exponential"] = "uniform"

    def mechanisms(self, shares: Shares) -> tuple[Mechanism, ...]:
        epsilon = shares.whole
        halves = epsilon * SHARES["pairs"] / 2
        return (
            SplitRule(epsilon=epsilon * SHARES["cells"], fanout=2).mechanism("cells (one bit for each)", "windows"),
            counted("transitions", shares, epsilon * SHARES["transitions"]),
            SplitRule(epsilon=halves, fanout=4).mechanism("pairs of cells (one bit for each)", "windows"),
            counted("pairs", shares, halves),
        )

    def synthesise(
        self, trips: Trips, *, shares: Shares, limits: Limits, noise: NoiseSource, records: bool = True
    ) -> Synthesis:
        budget = {name: shares.whole * share for name, share in SHARES.items()}
        drawn, chance = noise.child("noise"), noise.child("chance")
        cells = discretised(trips, epsilon=budget["cells"], noise=drawn.child("cells"))
        edges = cells.adjacent()
        law = shares.cells(budget["transitions"], UNIT)
        transitions = measure(self._transitions(trips, cells, edges), law=law, noise=drawn)
        pairs, first, halvings = pair_counts(trips, cells, epsilon=budget["pairs"], noise=drawn.child("pairs"))
        del trips
        # From here on nothing private is in reach.
        notes = {"cells": len(cells), "pair_leaves": len(pairs.values)}
        if not records:
            return Synthesis(Trips.none(), (transitions, pairs), notes)
        weights, staying = _probabilities(transitions, edges, len(cells))
        starts, ends = sampled(pairs, first, halvings, cells, chance.child("pairs"))
        synthetic = Trips.none()
        if len(starts):
            moves = _lengths(starts, ends, weights, limits, chance.child("lengths"))
            synthetic = _with_points(Errands(starts, ends, moves), weights, staying, cells, limits, chance)
        return Synthesis(synthetic, (transitions, pairs), {"trips": len(synthetic), **notes})

    @aggregate
    def _transitions(self, trips: Trips, cells: Hierarchy, edges: tuple[IntArray, IntArray]) -> Histogram:
        """Count the transitions of each pair of touching cells; those between others are dropped."""
        leaves, count = cells.leaves_of(codes_of(trips.x, trips.y)), len(cells)
        inside = trips.owners[1:] == trips.owners[:-1]
        pairs = (leaves[:-1] * count + leaves[1:])[inside]
        number = np.repeat(trips.sizes - 1, trips.sizes)[:-1][inside]
        if self.spread == "exponential":
            rank = (np.arange(len(leaves)) - np.repeat(trips.offsets[:-1], trips.sizes))[:-1][inside]
            weights = end_weighted_shares(number, rank)
        else:
            weights = equal_shares(number)
        known = edges[0] * count + edges[1]
        at = np.minimum(np.searchsorted(known, pairs), len(known) - 1)
        hit = known[at] == pairs
        return Histogram.of("transitions", at[hit], size=len(known), weights=weights[hit])


def _probabilities(noisy: Noisy, edges: tuple[IntArray, IntArray], count: int) -> tuple[csr_matrix, FloatArray]:
    """Return the probabilities of moves between different cells, and of staying in each."""
    source, target = edges
    values = _shares(np.maximum(noisy.values, 0.0), source, count)
    staying = np.minimum(values[source == target], STAYING)
    moving = source != target
    source, target = source[moving], target[moving]
    values = _shares(values[moving], source, count)
    matrix = csr_matrix((np.maximum(values, 1e-9), (source, target)), (count, count))
    matrix.sort_indices()
    return matrix, staying


def _shares(values: FloatArray, source: IntArray, count: int) -> FloatArray:
    """Return the share of each move in all that begin in its cell; the same for all where they have no values."""
    sums, degrees = np.bincount(source, values, minlength=count), np.bincount(source, minlength=count)
    return np.where(sums[source] > 0, values / np.maximum(sums[source], 1e-300), 1.0 / degrees[source])


def _lengths(starts: IntArray, ends: IntArray, weights: csr_matrix, limits: Limits, noise: NoiseSource) -> IntArray:
    """Draw each trip's moves: exponential, the most probable path's as median, and the hops at least."""
    costs = weights.copy()
    costs.data = np.maximum(-np.log(np.minimum(weights.data, 1.0)), 1e-9)
    likely, hops = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
    sources, where = np.unique(starts, return_inverse=True)
    for begin in range(0, len(sources), _SOURCES):
        chunk = sources[begin : begin + _SOURCES]
        members = np.flatnonzero((where >= begin) & (where < begin + _SOURCES))
        rows = where[members] - begin
        _, before = dijkstra(costs, indices=chunk, return_predecessors=True)
        far = dijkstra(costs, indices=chunk, unweighted=True)
        hops[members] = np.minimum(far[rows, ends[members]], limits.moves)
        at = ends[members]
        while (going := at != starts[members]).any():
            at = np.where(going, before[rows, at], at)
            likely[members] += going
            # A cell that can not be reached has no predecessor.
            at = np.where(at < 0, starts[members], at)
    chance = uniforms(len(starts), noise)
    moves = np.ceil(-np.log(chance) * np.maximum(likely, 1) / np.log(2)).astype(np.int64)
    moves = np.minimum(np.maximum(moves, hops), limits.moves)
    return np.where((starts == ends) & (moves < 2), 0, moves)


@dataclass(frozen=True, slots=True, eq=False)
class SparseGraph:
    """A graph whose cells have few or many moves. Implements `engines.trajectory.walks.Graph`.

    Attributes:
        matrix: `(cells, cells)` weights of moves, canonical.
    """

    matrix: csr_matrix

    def moved(self, at: IntArray, last: IntArray, onward: Onward, chance: FloatArray) -> tuple[IntArray, IntArray]:
        begin, degrees = self.matrix.indptr[at].astype(np.int64), np.diff(self.matrix.indptr)[at].astype(np.int64)
        if not degrees.sum():
            return at, last
        before = np.cumsum(degrees) - degrees
        rows = np.repeat(np.arange(len(at)), degrees)
        moves = np.arange(len(rows)) - np.repeat(before - begin, degrees)
        options = self.matrix.indices[moves].astype(np.int64)
        weights = self.matrix.data[moves] * onward(rows, options)
        # Sums run on over all walks, so that one search serves them: each walk has to weigh about the same.
        largest = np.zeros(len(at))
        np.maximum.at(largest, rows, weights)
        sums = np.append(0.0, np.cumsum(weights / np.where(largest > 0, largest, 1.0)[rows]))
        low, high = sums[before], sums[before + degrees]
        picked = np.searchsorted(sums, low + chance * (high - low), side="right") - 1
        picked = np.clip(picked, 0, len(options) - 1)
        led = largest > 0
        return np.where(led, options[picked], at), np.where(led, moves[picked], last)


def _with_points(
    errands: Errands, weights: csr_matrix, staying: FloatArray, cells: Hierarchy, limits: Limits, chance: NoiseSource
) -> Trips:
    walked = walk(errands, SparseGraph(weights), chance.child("walks"))
    # Points in a cell: one, and more while staying succeeds.
    drawn = uniforms(len(walked), chance.child("staying"))
    stays = np.floor(np.log(drawn) / np.log(np.maximum(staying[walked], 1e-300))).astype(np.int64)
    points = 1 + np.where(staying[walked] > 0, stays, 0)
    x, y = cells.points(np.repeat(walked, points), chance.child("positions"))
    totals = np.append(0, np.cumsum(points))
    return Trips(x, y, totals[errands.offsets]).first(limits.points)
