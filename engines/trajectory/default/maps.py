"""Estimates of how many trips there are, and of where they are, start, end and move: from released histograms only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from engines.trajectory.default.shrinkage import shrunk_over_shifts
from engines.trajectory.grid import Grid
from engines.trajectory.histograms import Noisy
from schemas.arrays import BoolArray, FloatArray

NOISE_CUT, MASS_CUT = 1.0, 0.2
"""A cell with less activity than one deviation of it counts as empty, while that empties a fifth of all at most."""
FLOOR = 0.0003
"""Share of trips that priors spread evenly over all cells: nothing is impossible."""


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """Trips per cell, `(cells,)` each, non-negative; starts and ends add up to `total`.

    Attributes:
        count: estimated number of trips, at least 0; `total` is at least 1, so that shares of it mean something.
        prior: where trips are at all.
        points: `(groups, cells)` shares of points, by group of points per cell of the path.
        moves: `(cells, 8)` by direction.
    """

    count: float
    prior: FloatArray
    points: FloatArray
    starts: FloatArray
    ends: FloatArray
    moves: FloatArray

    @property
    def total(self) -> float:
        return max(self.count, 1.0)


def spread(maps: Maps, trips: float) -> Maps:
    """Starts and ends as if some more trips had been anywhere, evenly over the cells where trips can be.

    Where few places hold most starts, noise that takes one of them for its neighbour errs by all its trips at once. So
    the more the starts and the ends are concentrated, the more is spread: all of `trips` if they are in one cell each.
    """
    shares = [side / side.sum() for side in (maps.starts, maps.ends)]
    trips *= float(np.prod([np.sqrt((share * share).sum()) for share in shares]))
    even = (maps.prior > 0) / np.count_nonzero(maps.prior)
    starts, ends = ((maps.total * share + trips * even) * (maps.total / (maps.total + trips)) for share in shares)
    return replace(maps, starts=starts, ends=ends)


def count_of(noisy: Mapping[str, Noisy]) -> float:
    """Inverse-variance mean of the totals of the histograms in which each trip weighs one."""
    sums = [(noisy[name].values.sum(), noisy[name].variance * len(noisy[name].values)) for name in _TOTALS]
    mean = sum(value / variance for value, variance in sums) / sum(1 / variance for _, variance in sums)
    return max(float(mean), 0.0)


_TOTALS = ("trips", "detours", "lengths")


def maps_of(noisy: Mapping[str, Noisy], grid: Grid, there: BoolArray) -> Maps:
    """See `Maps`; nothing is, starts, ends or moves in cells that are not `there`, `(cells,)`."""
    count = count_of(noisy)
    total = max(count, 1.0)
    neighbours = grid.neighbours()
    inside = (neighbours >= 0) & there[:, None] & there[neighbours]
    moves = np.where(inside, noisy["moves"].shaped(grid.size, 8), 0.0)
    arrivals = np.bincount(neighbours[inside], moves[inside], minlength=grid.size)
    groups = np.where(there, noisy["points"].shaped(-1, grid.size), 0.0)
    counted = {name: np.where(there, noisy[name].values, 0.0) for name in ("starts", "ends")}
    looks = [
        (groups.sum(axis=0), len(groups) * noisy["points"].variance),
        (counted["starts"], noisy["starts"].variance),
        (counted["ends"], noisy["ends"].variance),
        # Half of sixteen noisy values.
        ((moves.sum(axis=1) + arrivals) / 2, 4 * noisy["moves"].variance),
    ]
    precision = sum(1 / variance for _, variance in looks)
    activity = _scaled(
        sum(values / variance for values, variance in looks) / precision,
        grid,
        deviation=precision**-0.5,
        prior=there.astype(np.float64),
        total=total,
    )
    prior = _without_specks(activity, deviation=precision**-0.5) + FLOOR * total / there.sum() * there
    starts, ends = (
        _scaled(counted[name], grid, deviation=noisy[name].deviation, prior=prior, total=total)
        for name in ("starts", "ends")
    )
    together = np.sqrt(len(groups)) * noisy["points"].deviation
    every = _scaled(groups.sum(axis=0), grid, deviation=together, prior=prior, total=total)
    cube = (grid.side, grid.side, len(groups))
    each = np.repeat(every[:, None], len(groups), axis=1).reshape(cube)
    points = (
        shrunk_over_shifts(groups.T.reshape(cube), deviation=noisy["points"].deviation, prior=each)
        .reshape(grid.size, -1)
        .T
    )
    both = np.where(inside, np.sqrt(prior[:, None] * prior[np.maximum(neighbours, 0)]), 0.0)
    cube = (grid.side, grid.side, 8)
    flows = shrunk_over_shifts(moves.reshape(cube), deviation=noisy["moves"].deviation, prior=both.reshape(cube))
    points = np.where(there, points, 0.0)
    return Maps(count, prior, points, starts, ends, np.where(inside, flows.reshape(grid.size, 8), 0.0))


def _scaled(values: FloatArray, grid: Grid, *, deviation: float, prior: FloatArray, total: float) -> FloatArray:
    """Shrunk, and scaled to `total`; the prior where nothing is left."""
    cube = (grid.side, grid.side, 1)
    estimate = shrunk_over_shifts(values.reshape(cube), deviation=deviation, prior=prior.reshape(cube)).reshape(-1)
    # Where the prior is nought nothing is, whatever a projection left there.
    estimate = np.where(prior > 0, estimate, 0.0)
    if estimate.sum() <= 0:
        estimate = prior
    scaled: FloatArray = estimate * (total / estimate.sum())
    return scaled


def _without_specks(activity: FloatArray, *, deviation: float) -> FloatArray:
    ordered = np.sort(activity)
    below = min(int(np.searchsorted(np.cumsum(ordered), MASS_CUT * activity.sum())), len(ordered) - 1)
    return np.where(activity < min(NOISE_CUT * deviation, ordered[below]), 0.0, activity)
