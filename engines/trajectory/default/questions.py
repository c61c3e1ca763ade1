"""What `default` asks of a window's trips: twelve histograms, and the shares of a budget that they get.

Everything private of this mode passes through here. A trip that is added or removed changes each histogram by at most
one trip in total (`engines.trajectory.histograms.UNIT`), so the budget of a window is the sum of the shares.

| histogram | bins | weight of one trip |
|---|---|---|
| trips | 1 | 1 |
| starts, ends | cells | 1 |
| block pairs | start block x end block | 1 |
| cell pairs | cell pairs of blocks that the released block pairs chose | 1, or 0 outside of them |
| detours | hops from start to end, or nearer than a fine cell, x moves beyond them | 1 |
| lengths | moves x points per cell of the path | 1 |
| moves | cell x direction | 1/m for each of m moves |
| turns | eighths of a turn | 1/(m - 1) for each of m - 1 |
| points | group of points per cell of the path x cells | 1/t for each of t points |
| fine points | cells of a grid four times as fine | 1/t for each of t points |
| ends of dwell | first, last, other cells of the path | its share of the t points |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import sqrt

import numpy as np

from engines.core.noise import NoiseSource, aggregate
from engines.core.shares import PureShares, Shares
from engines.trajectory.grid import Blocks, CellPaths, Grid, paths_of
from engines.trajectory.histograms import UNIT, Histogram, Noisy, equal_shares, measure
from engines.trajectory.trips import Trips
from schemas.arrays import IntArray

COUNT_SHARE, COUNT_SQUARED = Fraction(2, 100), Fraction(12, 1000)
"""Share of a trip's epsilon, or of its mu^2, for the number of trips, which is measured first."""
FEW = 4000
"""Released trips times epsilon below which noise leaves little: then a coarser grid and fewer questions."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The questions to ask, once the number of trips is released. Public.

    Attributes:
        side: of the grid; a multiple of 4.
        shares: of a trip's epsilon, by histogram; with `COUNT_SHARE` they add up to one.
        squared: of a trip's mu^2, where the noise is Gaussian; with `COUNT_SQUARED` they add up to one.
        groups: lower ends of the groups of trips whose points are counted apart, among classes of points per cell.
        hops, detours, moves: lower ends of classes; the last one is open. Each class costs noise.
        spread: trips times epsilon that starts and ends are spread by (`estimates.spread`).
    """

    side: int
    shares: Mapping[str, Fraction]
    squared: Mapping[str, Fraction]
    groups: tuple[int, ...]
    hops: tuple[int, ...]
    detours: tuple[int, ...]
    moves: tuple[int, ...]
    spread: float = 0.0


def _parts(whole: int, **shares: int) -> Mapping[str, Fraction]:
    return {name.replace("_", " "): Fraction(share, whole) for name, share in shares.items()}


MANY_TRIPS = Plan(
    side=40,
    shares=_parts(
        100,
        starts=6,
        ends=6,
        block_pairs=5,
        cell_pairs=3,
        detours=5,
        lengths=6,
        moves=37,
        turns=1,
        points=24,
        fine_points=4,
        ends_of_dwell=1,
    ),
    squared=_parts(
        1000,
        starts=45,
        ends=45,
        block_pairs=36,
        cell_pairs=19,
        detours=36,
        lengths=45,
        moves=396,
        turns=5,
        points=329,
        fine_points=27,
        ends_of_dwell=5,
    ),
    groups=(0, 8, 12),
    hops=(0, 1, 2, 3, 4, 6, 9, 16, 21, 28),
    detours=(0, 1, 2, 3, 4, 6, 9, 13, 20),
    moves=(0, 1, 4, 12),
)
FEW_TRIPS = Plan(
    side=12,
    shares=_parts(100, starts=16, ends=13, detours=7, lengths=13, moves=21, points=18, fine_points=10),
    squared=_parts(1000, starts=158, ends=123, detours=59, lengths=123, moves=220, points=215, fine_points=90),
    groups=(0,),
    hops=(0, 1, 3, 6),
    detours=(0, 1, 3, 8),
    moves=(0, 1),
    spread=1100.0,
)


def parts_of(plan: Plan, shares: Shares) -> Mapping[str, Fraction]:
    """Return what each histogram may spend; the parts add up to `shares.whole` under either plan."""
    pure = isinstance(shares, PureShares)
    count, rest = (COUNT_SHARE, plan.shares) if pure else (COUNT_SQUARED, plan.squared)
    return {name: shares.whole * share for name, share in {"trips": count, **rest}.items()}


def pure_epsilon(shares: Shares) -> float:
    """Return the epsilon that pure noise as large as this would cost a trip, over all histograms of many trips."""
    if isinstance(shares, PureShares):
        return float(shares.epsilon)
    return sum(sqrt(2 * part) for part in parts_of(MANY_TRIPS, shares).values())


def plan_for(trips: float, shares: Shares, *, side: int) -> Plan:
    """Return the plan for this RELEASED number of trips; `side` is the finest grid that is wanted."""
    plan = FEW_TRIPS if trips * pure_epsilon(shares) < FEW else MANY_TRIPS
    return replace(plan, side=min(plan.side, side))


RATES, SLOWEST = 18, -6
"""Classes of points per cell of the path: half octaves, the first of them ends at 2**(-6/2 + 1/2) and is open."""
FINE = 4
"""Cells of the fine grid along the side of a cell."""


def classes(values: IntArray, lower: tuple[int, ...]) -> IntArray:
    """Return the class of each value: the last one that begins at or below it."""
    return np.searchsorted(lower, values, side="right") - 1


@dataclass(frozen=True, slots=True, eq=False)
class Questions:
    """The trips of one window, ready to be counted. PRIVATE.

    Attributes:
        paths: cut after `max_moves`; `cells` are those of all points.
    """

    plan: Plan
    grid: Grid
    trips: Trips
    paths: CellPaths
    cells: IntArray

    @staticmethod
    @aggregate
    def of(trips: Trips, plan: Plan, *, max_moves: int) -> Questions:
        grid = Grid(plan.side)
        paths = paths_of(trips, grid, max_moves=max_moves)
        return Questions(plan, grid, trips, paths, grid.cells(trips.x, trips.y))

    @property
    def starts(self) -> IntArray:
        return self.cells[self.trips.offsets[:-1]]

    @property
    def ends(self) -> IntArray:
        return self.cells[self.trips.offsets[1:] - 1]

    @aggregate
    def histograms(self, blocks: Blocks) -> list[Histogram]:
        """Count all histograms of the plan but the cell pairs."""
        size = self.grid.size
        pair = blocks.of(self.starts) * blocks.count + blocks.of(self.ends)
        asked = [
            Histogram.of("starts", self.starts, size=size),
            Histogram.of("ends", self.ends, size=size),
            Histogram.of("block pairs", pair, size=blocks.count**2),
            self._detours(),
            self._lengths(),
            *self._moves_and_turns(),
            *self._points(),
            self._ends_of_dwell(),
        ]
        return [histogram for histogram in asked if histogram.name in self.plan.shares]

    def _detours(self) -> Histogram:
        """Count detours. Row 0 is of trips that end in their first fine cell; the others are classes of hops."""
        plan, first, last = self.plan, self.trips.offsets[:-1], self.trips.offsets[1:] - 1
        hops = self.grid.hops(self.starts, self.ends)
        fine = Grid(self.grid.side * FINE).cells(self.trips.x, self.trips.y)
        rows = np.where(fine[first] == fine[last], 0, 1 + classes(hops, plan.hops))
        # A path that was cut may have fewer moves than hops.
        detours = np.maximum(self.paths.moves - hops, 0)
        bins = rows * len(plan.detours) + classes(detours, plan.detours)
        return Histogram.of("detours", bins, size=(1 + len(plan.hops)) * len(plan.detours))

    @property
    def _rates(self) -> IntArray:
        rates = np.floor(2 * np.log2(self.trips.sizes / (self.paths.moves + 1))).astype(np.int64) - SLOWEST
        clipped: IntArray = np.clip(rates, 0, RATES - 1)
        return clipped

    def _lengths(self) -> Histogram:
        bins = classes(self.paths.moves, self.plan.moves) * RATES + self._rates
        return Histogram.of("lengths", bins, size=len(self.plan.moves) * RATES)

    def _moves_and_turns(self) -> tuple[Histogram, Histogram]:
        cells, owners, moves = self.paths.cells, self.paths.owners, self.paths.moves
        inside = owners[1:] == owners[:-1]
        sources, owners = cells[:-1][inside], owners[:-1][inside]
        directions = self.grid.directions(sources, cells[1:][inside])
        weights = equal_shares(moves)[owners]
        turning = owners[1:] == owners[:-1]
        turns = (np.diff(directions) % 8)[turning]
        return (
            Histogram.of("moves", sources * 8 + directions, size=self.grid.size * 8, weights=weights),
            Histogram.of("turns", turns, size=8, weights=equal_shares(moves - 1)[owners[1:][turning]]),
        )

    def _points(self) -> tuple[Histogram, Histogram]:
        fine = Grid(self.grid.side * FINE)
        weights = np.repeat(equal_shares(self.trips.sizes), self.trips.sizes)
        groups = np.repeat(classes(self._rates, self.plan.groups), self.trips.sizes)
        groups_size = len(self.plan.groups) * self.grid.size
        return (
            Histogram.of("points", groups * self.grid.size + self.cells, size=groups_size, weights=weights),
            Histogram.of("fine points", fine.cells(self.trips.x, self.trips.y), size=fine.size, weights=weights),
        )

    def _ends_of_dwell(self) -> Histogram:
        offsets, sizes = self.paths.offsets, self.trips.sizes
        first = self.paths.points[offsets[:-1]]
        last = np.where(self.paths.moves > 0, self.paths.points[offsets[1:] - 1], 0)
        # Three weights of each trip, each rounded down: points of a trip times 2**20 fit into int64.
        shares = np.stack([first, last, sizes - first - last], axis=1) * UNIT // sizes[:, None]
        bins = np.tile(np.arange(3), len(sizes))
        return Histogram.of("ends of dwell", bins, size=3, weights=shares.reshape(-1))

    @aggregate
    def cell_pairs(self, blocks: Blocks, chosen: IntArray) -> Histogram:
        """Count pairs of cells in the chosen block pairs; `chosen` is `(pairs,)`, ascending, of RELEASED choice."""
        pair = blocks.of(self.starts) * blocks.count + blocks.of(self.ends)
        at = np.minimum(np.searchsorted(chosen, pair), max(len(chosen) - 1, 0))
        inside = chosen[at] == pair if len(chosen) else np.zeros(len(pair), bool)
        per = blocks.cells**2
        bins = at * per + blocks.within(self.starts) * blocks.cells + blocks.within(self.ends)
        return Histogram.of("cell pairs", bins[inside], size=len(chosen) * per)


def count(trips: Trips, *, shares: Shares, noise: NoiseSource) -> Noisy:
    """Measure how many trips there are: the first question decides on the plan and costs the same under either."""
    return ask([_number(trips)], MANY_TRIPS, shares=shares, noise=noise)["trips"]


@aggregate
def _number(trips: Trips) -> Histogram:
    return Histogram.of("trips", np.zeros(len(trips), np.int64), size=1)


def ask(histograms: list[Histogram], plan: Plan, *, shares: Shares, noise: NoiseSource) -> dict[str, Noisy]:
    """Measure each histogram with its part of the budget."""
    parts = parts_of(plan, shares)
    return {h.name: measure(h, law=shares.cells(parts[h.name], UNIT), noise=noise) for h in histograms}
