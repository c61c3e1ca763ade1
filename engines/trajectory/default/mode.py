"""Synthetic trips from twelve noisy histograms: the trajectory engine's own way.

Start and end of each trip come from a pair matrix, its moves from a walk conditioned on them, its points from rates
of dwelling (`pairs`, `walks`, `points`). After `questions` everything is post-processing.
Guarantee: one trip of the window costs what it may spend; the histograms' shares add up to that.
Source: ours, on the outline of [kumar2024], chapter 5; formulas in docs/engines/trajectory.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from engines.core.noise import NoiseSource
from engines.core.shares import Shares
from engines.trajectory.chance import systematic, uniforms
from engines.trajectory.default.estimates import Maps, drawn, maps_of, shrunk, spread, table_of
from engines.trajectory.default.pairs import PairFit
from engines.trajectory.default.points import drawn_visits, fitted, positioned, shared_out, sizes_of
from engines.trajectory.default.questions import (
    FINE,
    MANY_TRIPS,
    RATES,
    SLOWEST,
    Plan,
    Questions,
    ask,
    classes,
    count,
    parts_of,
    plan_for,
    pure_epsilon,
)
from engines.trajectory.engine import Limits, Synthesis
from engines.trajectory.grid import Blocks, Grid
from engines.trajectory.histograms import UNIT, Noisy, counted
from engines.trajectory.trips import Trips
from engines.trajectory.walks import Errands, EvenGraph, walk
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.guarantee import Mechanism

if TYPE_CHECKING:
    from engines.trajectory.ground import Ground

CORRECTIONS = 6
"""Times at most that walks are drawn and the weights of moves corrected by what they did."""
WORTH = 0.98
"""Part of the distance between the moves of walks and the measured ones that a correction may leave, at most: where it
leaves more, what was followed is noise, and no other one comes."""
SAMPLE = 20_000
"""Walks that suffice for a correction."""
CLEAR = 3.0
"""Deviations of noise above which a class of lengths has trips for sure."""
MOST_MOVES = 0.9
"""Quantile of a class's moves that tells how many points its trips have at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """See the module; implements `engines.trajectory.engine.TripMode`.

    Args: side: of the grid, a multiple of 4. ground: a map that trips keep to; None for none.
    """

    written_as: ClassVar[str] = "Default"
    note: ClassVar[str] = (
        " The split is that of many trips; where the released number of trips is small, the same total is split over "
        "fewer histograms."
    )

    side: int = 40
    ground: Ground | None = field(default=None, repr=False, compare=False)

    def mechanisms(self, shares: Shares) -> tuple[Mechanism, ...]:
        return tuple(counted(name, shares, part) for name, part in parts_of(MANY_TRIPS, shares).items())

    def synthesise(
        self, trips: Trips, *, shares: Shares, limits: Limits, noise: NoiseSource, records: bool = True
    ) -> Synthesis:
        drawn_from = noise.child("noise")
        counted = count(trips, shares=shares, noise=drawn_from)
        plan = plan_for(float(counted.values[0]), shares, side=self.side)
        grid, blocks = Grid(plan.side), Blocks(Grid(plan.side))
        there = np.ones(grid.size, np.bool_)
        if self.ground is not None:
            there, trips = self.ground.over(grid).there, self.ground.moved(trips, grid)
        questions = Questions.of(trips, plan, max_moves=limits.moves)
        noisy = {"trips": counted} | ask(questions.histograms(blocks), plan, shares=shares, noise=drawn_from)
        if not records and "block pairs" not in plan.shares:
            return Synthesis(Trips.none(), tuple(noisy.values()), {"side": plan.side, "heavy_block_pairs": 0})
        maps = spread(maps_of(noisy, grid, there), plan.spread / pure_epsilon(shares))
        detours = _table(noisy["detours"], (1 + len(plan.hops), len(plan.detours)), maps.total)
        by_hops = detours.sum(axis=1)
        fit = PairFit.of(maps, np.append(by_hops[0] + by_hops[1], by_hops[2:]), blocks, lower=plan.hops)
        pairs, heavy = fit.first(), np.zeros(0, np.int64)
        if "block pairs" in plan.shares:
            pairs = fit.with_blocks(pairs, noisy["block pairs"])
            heavy = fit.heavy(pairs, deviation=sqrt(shares.cells(parts_of(plan, shares)["cell pairs"], UNIT).variance))
        if len(heavy):
            noisy |= ask([questions.cell_pairs(blocks, heavy)], plan, shares=shares, noise=drawn_from)
            pairs = fit.with_cells(pairs, heavy, noisy["cell pairs"])
        del questions, trips
        # From here on nothing private is in reach.
        notes = {"side": plan.side, "heavy_block_pairs": len(heavy)}
        if not records:
            return Synthesis(Trips.none(), tuple(noisy.values()), notes)
        chance = noise.child("chance")
        starts, ends = fit.sample(pairs, maps.count, chance.child("pairs"))
        if not len(starts):
            return Synthesis(Trips.none(), tuple(noisy.values()), notes | {"trips": 0})
        # Those that end in their first cell, and also in its fine cell.
        uniform = uniforms(len(starts), chance.child("together"))
        together = (starts == ends) & (uniform * (by_hops[0] + by_hops[1]) < by_hops[0])
        rows = np.where(together, 0, 1 + classes(grid.hops(starts, ends), plan.hops))
        columns = drawn(detours, rows, deviation=noisy["detours"].deviation, noise=chance.child("detours"))
        moves = _moves(grid.hops(starts, ends), columns, plan, limits, chance.child("moves"))
        moves = np.maximum(moves, _least_moves(starts, ends, grid, there, limits))
        errands = Errands(starts, ends, moves)
        cells = walk(errands, _graph(errands, maps, noisy, grid, there, chance), chance.child("walks"))
        synthetic = _with_points(errands, together, cells, maps, noisy, plan, limits, chance)
        places = None if self.ground is None else self.ground.placed(synthetic, grid)
        return Synthesis(synthetic, tuple(noisy.values()), notes | {"trips": len(synthetic)}, places)


def _table(noisy: Noisy, shape: tuple[int, int], total: float) -> FloatArray:
    return table_of(noisy.values.reshape(*shape), deviation=noisy.deviation, total=total)


def _moves(hops: IntArray, columns: IntArray, plan: Plan, limits: Limits, noise: NoiseSource) -> IntArray:
    """Draw each trip's moves: the hops, and a detour of the class `columns`, in which small ones are likelier."""
    lower = np.array(plan.detours)
    low, high = lower[columns], np.append(lower[1:], 100)[columns]
    chance = uniforms(len(hops), noise)
    extra = np.floor(low / (1 - chance * (1 - low / high))).astype(np.int64)
    moves = np.minimum(hops + extra, np.maximum(limits.moves, hops))
    # Nobody returns to a cell by one move.
    return np.where((hops == 0) & (moves == 1), 2, moves)


def _least_moves(starts: IntArray, ends: IntArray, grid: Grid, there: BoolArray, limits: Limits) -> IntArray:
    """Return the least moves of a way through cells that are there, `(trips,)`; 0 where none is in the limits."""
    if there.all():
        return np.zeros(len(starts), np.int64)
    targets = grid.neighbours()
    rows, moves = np.nonzero((targets >= 0) & there[:, None] & there[targets])
    graph = csr_matrix((np.ones(len(rows)), (rows, targets[rows, moves])), (grid.size, grid.size))
    sources, where = np.unique(starts, return_inverse=True)
    away = dijkstra(graph, indices=sources, unweighted=True, limit=limits.moves)[where, ends]
    return np.where(np.isfinite(away), away, 0).astype(np.int64)


def _graph(
    errands: Errands, maps: Maps, noisy: Mapping[str, Noisy], grid: Grid, there: BoolArray, chance: NoiseSource
) -> EvenGraph:
    """Fit weights of moves under which walks, conditioned on start, end and length, move as the histogram says."""
    targets = grid.neighbours()
    inside = (targets >= 0) & there[:, None] & there[targets]
    likely = np.where(inside, np.sqrt(maps.prior[:, None] * maps.prior[np.maximum(targets, 0)]), 0.0)
    weights = maps.moves + 0.02 * likely * (max(maps.moves.sum(), 1.0) / likely.sum()) + 1e-12 * inside
    turns = _turns(noisy["turns"]) if "turns" in noisy else None
    some = errands
    if len(errands.moves) > SAMPLE:
        share = np.full(len(errands.moves), SAMPLE / len(errands.moves))
        chosen = systematic(share, chance.child("some")) > 0
        some = Errands(errands.starts[chosen], errands.ends[chosen], errands.moves[chosen])
    factor, deviation = len(errands.moves) / max(len(some.moves), 1), noisy["moves"].deviation
    each = np.repeat(1.0 / np.maximum(some.moves, 1), some.moves) * factor
    source = np.ones(int(some.offsets[-1]), bool)
    source[some.offsets[1:] - 1] = False
    gap = inf
    for turn in range(CORRECTIONS):
        weights = _shares(weights)
        cells = walk(some, EvenGraph(targets, weights, turns), chance.child("correction", turn))
        places = np.flatnonzero(source)
        hopped = np.maximum(grid.hops(cells[places], cells[places + 1]), 1) == 1
        directions = grid.directions(cells[places][hopped], cells[places + 1][hopped])
        at = cells[places][hopped] * 8 + directions
        found = np.bincount(at[directions >= 0], each[hopped][directions >= 0], minlength=grid.size * 8)
        found = found.reshape(-1, 8)
        before, gap = gap, float(np.abs(found - maps.moves).sum())
        if gap > WORTH * before:
            break
        error = (maps.moves + 0.5 * deviation) / (found + 0.5 * deviation)
        weights = weights * np.clip(error, 0.2, 5.0) ** 0.7
    return EvenGraph(targets, _shares(weights), turns)


def _shares(weights: FloatArray) -> FloatArray:
    """Return each cell's moves as shares of its own; nought where it has none."""
    shares: FloatArray = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
    return shares


def _turns(noisy: Noisy) -> FloatArray:
    """Return the factors of a direction after another one, `(8, 8)`."""
    turning = np.maximum(noisy.values, 0.0) + 0.002 * max(noisy.values.sum(), 1.0)
    directions = np.arange(8)
    turns: FloatArray = (turning / turning.mean())[(directions[None, :] - directions[:, None]) % 8]
    return turns


def _with_points(
    errands: Errands,
    together: BoolArray,
    cells: IntArray,
    maps: Maps,
    noisy: Mapping[str, Noisy],
    plan: Plan,
    limits: Limits,
    chance: NoiseSource,
) -> Trips:
    """Make trips along the walks: how many points each has, in which of its cells, and where in them."""
    grid = Grid(plan.side)
    lengths = _table(noisy["lengths"], (len(plan.moves), RATES), maps.total)
    rows = classes(errands.moves, plan.moves)
    clear = _clear(lengths, rows, errands.moves, deviation=noisy["lengths"].deviation)
    most = min(limits.points, clear)
    rates = drawn(lengths, rows, deviation=noisy["lengths"].deviation, noise=chance.child("rates"))
    rates = _fitting(rates, rows, cells, errands.offsets, maps.points, chance.child("fitting"))
    per_cell = _per_cell(errands.moves + 1, rates, uniforms(len(rates), chance.child("sizes")))
    groups = classes(rates, plan.groups)
    visits = drawn_visits(cells, errands.offsets, groups=groups, grid=grid, noise=chance.child("luck"))
    found = fitted(
        per_cell,
        visits,
        wanted=maps.points.reshape(-1),
        deviation=noisy["points"].deviation,
        ends=np.maximum(noisy["ends of dwell"].values, 0.0) if "ends of dwell" in noisy else None,
        most=most,
    )
    weights = found.weights(visits)
    sizes = sizes_of(per_cell, visits, most=most)
    points = shared_out(sizes, weights, visits, chance.child("points"))
    offsets = errands.offsets
    fine = _fine(noisy["fine points"], grid) if "fine points" in noisy else np.ones((grid.size, 1))
    return positioned(cells, offsets, points, together, shares=fine, grid=grid, noise=chance.child("positions"))


def _clear(lengths: FloatArray, rows: IntArray, moves: IntArray, *, deviation: float) -> int:
    """Points of the longest trips of which there are clearly some: a few that are but noise would have most points."""
    most = 2.0
    for row in np.unique(rows):
        clear = np.flatnonzero(lengths[row] > CLEAR * deviation)
        if len(clear):
            cells = 1 + float(np.quantile(moves[rows == row], MOST_MOVES))
            most = max(most, cells * 2.0 ** ((int(clear[-1]) + SLOWEST + 1) / 2))
    return int(np.ceil(most))


def _fitting(
    rates: IntArray, rows: IntArray, cells: IntArray, offsets: IntArray, points: FloatArray, noise: NoiseSource
) -> IntArray:
    """Swap rates within classes of moves: those that dwell are likelier where dwelling was counted."""
    if len(points) == 1:
        return rates
    rank = np.arange(len(points))
    along = np.add.reduceat((points * rank[:, None]).sum(axis=0)[cells], offsets[:-1])
    mass = np.add.reduceat(points.sum(axis=0)[cells], offsets[:-1])
    part = np.clip(along / np.maximum(mass, 1e-12) / rank[-1], 1e-3, 1 - 1e-3)
    chance = uniforms(len(rows), noise)
    score = np.log(part / (1 - part)) + np.log(chance / (1 - chance))
    swapped = np.empty_like(rates)
    swapped[np.lexsort((score, rows))] = rates[np.lexsort((rates, rows))]
    return swapped


def _per_cell(lengths: IntArray, rates: IntArray, chance: FloatArray) -> FloatArray:
    """Draw points per cell of the path, by class: whole numbers of points, of which small ones are likelier."""
    low = np.ceil(lengths * 2.0 ** ((rates + SLOWEST) / 2))
    high = np.maximum(np.ceil(lengths * 2.0 ** ((rates + SLOWEST + 1) / 2)), low + 1)
    per_cell: FloatArray = np.floor(low * (high / low) ** chance) / lengths
    return per_cell


def _fine(noisy: Noisy, grid: Grid) -> FloatArray:
    """Estimate the fine grid cell by cell, `(cells, FINE * FINE)`."""
    side = grid.side * FINE
    cube = (1, side, side, 1)
    fine = shrunk(noisy.values.reshape(cube), deviation=np.array([noisy.deviation]), prior=np.ones(cube))
    return fine.reshape(grid.side, FINE, grid.side, FINE).transpose(0, 2, 1, 3).reshape(grid.size, FINE * FINE)
