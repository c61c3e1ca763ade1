"""Estimates from released histograms: of maps by a quadtree, of small tables, and of how many trips are where.

Post-processing: sees released values only. Units: trips. Maps are `(rows, columns, layers)`: one cell has `layers`
values, each with a quadtree of its own. Several maps of one shape are worked out together, `(maps, ...)`.
Method of the quadtree: sums from the top, children pulled towards a public share of their parent. Going down, a child's
expected value is its prior share of the parent's estimate. How much the children of a level really differ from that is
estimated by moments over the whole level (empirical Bayes), and each noisy residual is kept by that much; then the four
are projected onto non-negative values that add up to the parent's estimate.
Method of tables: margins first, then the part of the residuals from independence that is more than noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engines.core.noise import NoiseSource
from engines.trajectory.chance import choices
from engines.trajectory.grid import Grid
from engines.trajectory.histograms import Noisy
from schemas.arrays import BoolArray, FloatArray, IntArray

_TINY = 1e-300


def onto_simplex(values: FloatArray, totals: FloatArray) -> FloatArray:
    """Project rows (least squares) onto non-negative rows that add up to `totals`; `values` is `(rows, columns)`.

    >>> onto_simplex(np.array([[3.0, 1.0, -1.0]]), np.array([2.0])).tolist()
    [[2.0, 0.0, 0.0]]
    """
    ordered = -np.sort(-values, axis=1)
    excess = np.cumsum(ordered, axis=1) - totals[:, None]
    active = (ordered * np.arange(1, values.shape[1] + 1) > excess).sum(axis=1)
    last = np.maximum(active - 1, 0)
    shift = (excess[np.arange(len(last)), last] / (last + 1))[:, None]
    projected: FloatArray = np.where(totals[:, None] > 0, np.maximum(values - shift, 0.0), 0.0)
    return projected


def _blocks(cells: FloatArray) -> FloatArray:
    """`(maps, rows, 2, columns, 2, layers)`: blocks of 2 x 2 cells; odd maps are padded with zeros."""
    maps, rows, columns, layers = cells.shape
    if rows % 2 or columns % 2:
        padded = np.zeros((maps, rows + rows % 2, columns + columns % 2, layers))
        padded[:, :rows, :columns] = cells
        cells = padded
    return cells.reshape(maps, (rows + 1) // 2, 2, (columns + 1) // 2, 2, layers)


def _quads(cells: FloatArray) -> FloatArray:
    """`(maps, parents, 4)`: the children of each parent and layer."""
    return _blocks(cells).transpose(0, 1, 3, 5, 2, 4).reshape(len(cells), -1, 4)


def shrunk(noisy: FloatArray, *, deviation: FloatArray, prior: FloatArray) -> FloatArray:
    """See the module.

    Args:
        noisy, prior: `(maps, rows, columns, layers)`; the prior is non-negative, only its shares matter.
        deviation: `(maps,)` of the noise of each value; a sum of four has twice of it.
    Returns: `(maps, rows, columns, layers)`, non-negative.
    """
    levels = [np.stack([noisy, prior])]
    while max(levels[-1].shape[2:4]) > 1:
        below = levels[-1]
        sums = _blocks(below.reshape(-1, *below.shape[2:])).sum(axis=(2, 4))
        levels.append(sums.reshape(2, -1, *sums.shape[1:]))
    estimate: FloatArray = np.maximum(levels[-1][0], 0.0)
    for level in range(len(levels) - 2, -1, -1):
        values, shares = levels[level]
        maps, rows, columns, layers = values.shape
        estimate = _children(
            _quads(values), _quads(shares), estimate.reshape(maps, -1), variance=(deviation * 2.0**level) ** 2
        )
        above = ((rows + 1) // 2, (columns + 1) // 2)
        blocks = estimate.reshape(maps, *above, layers, 2, 2).transpose(0, 1, 4, 2, 5, 3)
        estimate = blocks.reshape(maps, 2 * above[0], 2 * above[1], layers)[:, :rows, :columns]
    return estimate


def _children(noisy: FloatArray, prior: FloatArray, totals: FloatArray, *, variance: FloatArray) -> FloatArray:
    """`(maps, parents, 4)` estimates of children with noise of this variance `(maps,)`, that add up to `totals`,
    `(maps, parents)`.
    """
    maps, wide = len(noisy), variance[:, None, None]
    mass = prior.sum(axis=2, keepdims=True)
    expected = np.where(mass > 0, prior / np.maximum(mass, _TINY), 0.0) * totals[:, :, None]
    residual = noisy - expected
    # Each map by itself, however many there are.
    spread = (expected * expected).reshape(maps, -1).sum(axis=1)
    excess = ((residual * residual - wide) * expected).reshape(maps, -1).sum(axis=1)
    likely = np.maximum(excess / np.maximum(spread, _TINY), 0.0)[:, None, None] * expected
    kept = likely / np.maximum(likely + wide, _TINY)
    return onto_simplex((expected + kept * residual).reshape(-1, 4), totals.reshape(-1)).reshape(noisy.shape)


def shrunk_over_shifts(noisy: FloatArray, *, deviation: FloatArray, prior: FloatArray) -> FloatArray:
    """Mean of `shrunk` over four positions of the quadtree on the map: its block edges leave fewer marks."""
    maps, rows, columns, layers = noisy.shape
    shifts = [(slice(x, x + rows), slice(y, y + columns)) for x in (0, 4) for y in (0, 4)]
    values, shares = np.zeros((2, len(shifts), maps, rows + 8, columns + 8, layers))
    for shift, window in enumerate(shifts):
        values[shift, :, *window], shares[shift, :, *window] = noisy, prior
    one = (-1, *values.shape[2:])
    found = shrunk(values.reshape(one), deviation=np.tile(deviation, len(shifts)), prior=shares.reshape(one))
    found = found.reshape(values.shape)
    total = np.zeros_like(noisy)
    for shift, window in enumerate(shifts):
        total += found[shift, :, *window]
    return total / 4


MARGIN_CUT = 0.5
"""Deviations below which a margin counts as nothing."""
BORROWED = 0.02
"""Deviations of noise that a row borrows from the margin over all rows when it is drawn from."""


def table_of(noisy: FloatArray, *, deviation: float, total: float) -> FloatArray:
    """`(rows, columns)` non-negative estimate that adds up to `total`."""
    rows = _margin(noisy.sum(axis=1), deviation * noisy.shape[1] ** 0.5, total)
    columns = _margin(noisy.sum(axis=0), deviation * noisy.shape[0] ** 0.5, total)
    expected = np.outer(rows, columns) / total
    residual, variance = noisy - expected, deviation * deviation
    spread = max(((residual * residual - variance) * expected).sum() / max((expected * expected).sum(), 1e-12), 0.0)
    kept = spread * expected / (spread * expected + variance)
    return onto_simplex((expected + kept * residual).reshape(1, -1), np.array([total])).reshape(noisy.shape)


def _margin(noisy: FloatArray, deviation: float, total: float) -> FloatArray:
    """Classes rise to one peak and fall, as far as what speaks against that is no more than noise."""
    smooth = one_peak(noisy)
    residual, variance = noisy - smooth, deviation * deviation
    spread = max(float((residual * residual).mean()) - variance, 0.0)
    projected = onto_simplex((smooth + spread / (spread + variance) * residual)[None, :], np.array([total]))[0]
    clear = np.where(projected < MARGIN_CUT * deviation, 0.0, projected)
    if clear.sum() <= 0:
        clear = np.where(projected == projected.max(), 1.0, 0.0)
    margin: FloatArray = clear * (total / clear.sum())
    return margin


def one_peak(values: FloatArray) -> FloatArray:
    """The closest vector (least squares) that rises up to the largest of sums of three neighbours, and falls after it.

    >>> one_peak(np.array([0.0, 5.0, 4.0, 0.0, 2.0])).tolist()
    [0.0, 5.0, 4.0, 1.0, 1.0]
    """
    padded = np.concatenate([[0.0], values, [0.0]])
    middle = int(np.argmax(padded[:-2] + padded[1:-1] + padded[2:]))
    peak = max(range(max(middle - 1, 0), min(middle + 2, len(values))), key=lambda at: values[at])
    return np.concatenate([_rising(values[: peak + 1])[:-1], _rising(values[peak:][::-1])[::-1]])


def _rising(values: FloatArray) -> FloatArray:
    """Isotonic regression by pooling adjacent violators."""
    pools: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, size = value, 1
        while pools and pools[-1][0] > mean:
            last, count = pools.pop()
            mean, size = (mean * size + last * count) / (size + count), size + count
        pools.append((mean, size))
    return np.repeat([mean for mean, _ in pools], [size for _, size in pools])


def drawn(table: FloatArray, rows: IntArray, *, deviation: float, noise: NoiseSource) -> IntArray:
    """`(rows,)` columns, each drawn from its row of the table; a poor row borrows from the margin."""
    margin = table.sum(axis=0) / table.sum()
    columns = np.zeros(len(rows), np.int64)
    for row in range(len(table)):
        members = np.flatnonzero(rows == row)
        if len(members):
            weights = table[row] + BORROWED * deviation * margin
            columns[members] = choices(weights, len(members), noise.child(row))
    return columns


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


_TOTALS = ("trips", "detours", "lengths")
"""Histograms in which each trip weighs one."""


def maps_of(noisy: Mapping[str, Noisy], grid: Grid, there: BoolArray) -> Maps:
    """See `Maps`; nothing is, starts, ends or moves in cells that are not `there`, `(cells,)`."""
    # The inverse-variance mean of the totals.
    sums = [(noisy[name].values.sum(), noisy[name].variance * len(noisy[name].values)) for name in _TOTALS]
    mean = sum(value / variance for value, variance in sums) / sum(1 / variance for _, variance in sums)
    count = max(float(mean), 0.0)
    total = max(count, 1.0)
    neighbours = grid.neighbours()
    inside = (neighbours >= 0) & there[:, None] & there[neighbours]
    moves = np.where(inside, noisy["moves"].values.reshape(grid.size, 8), 0.0)
    arrivals = np.bincount(neighbours[inside], moves[inside], minlength=grid.size)
    groups = np.where(there, noisy["points"].values.reshape(-1, grid.size), 0.0)
    counted = {name: np.where(there, noisy[name].values, 0.0) for name in ("starts", "ends")}
    looks = [
        (groups.sum(axis=0), len(groups) * noisy["points"].variance),
        (counted["starts"], noisy["starts"].variance),
        (counted["ends"], noisy["ends"].variance),
        # Half of sixteen noisy values.
        ((moves.sum(axis=1) + arrivals) / 2, 4 * noisy["moves"].variance),
    ]
    precision = sum(1 / variance for _, variance in looks)
    (activity,) = _scaled(
        [(sum(values / variance for values, variance in looks) / precision, precision**-0.5)],
        grid,
        prior=there.astype(np.float64),
        total=total,
    )
    ordered = np.sort(activity)
    below = min(int(np.searchsorted(np.cumsum(ordered), MASS_CUT * activity.sum())), len(ordered) - 1)
    specks = activity < min(NOISE_CUT * precision**-0.5, ordered[below])
    prior = np.where(specks, 0.0, activity) + FLOOR * total / there.sum() * there
    together = np.sqrt(len(groups)) * noisy["points"].deviation
    starts, ends, every = _scaled(
        [*((counted[name], noisy[name].deviation) for name in counted), (groups.sum(axis=0), together)],
        grid,
        prior=prior,
        total=total,
    )
    each = np.repeat(every[:, None], len(groups), axis=1)
    points = _one(groups.T, grid, deviation=noisy["points"].deviation, prior=each).T
    both = np.where(inside, np.sqrt(prior[:, None] * prior[np.maximum(neighbours, 0)]), 0.0)
    flows = _one(moves, grid, deviation=noisy["moves"].deviation, prior=both)
    points = np.where(there, points, 0.0)
    return Maps(count, prior, points, starts, ends, np.where(inside, flows, 0.0))


def _one(values: FloatArray, grid: Grid, *, deviation: float, prior: FloatArray) -> FloatArray:
    """One map, shrunk; all are `(cells, layers)`."""
    cube = (1, grid.side, grid.side, values.shape[1])
    deviations = np.array([deviation])
    return shrunk_over_shifts(values.reshape(cube), deviation=deviations, prior=prior.reshape(cube)).reshape(
        values.shape
    )


def _scaled(
    measured: Sequence[tuple[FloatArray, float]], grid: Grid, *, prior: FloatArray, total: float
) -> list[FloatArray]:
    """Maps shrunk, each scaled to `total`; the prior where nothing is left.

    Args: measured: the values of each, `(cells,)`, and the deviation of their noise. prior: of all of them, `(cells,)`.
    """
    cube = (len(measured), grid.side, grid.side, 1)
    values = np.stack([values for values, _ in measured]).reshape(cube)
    deviations = np.array([deviation for _, deviation in measured])
    shares = np.broadcast_to(prior.reshape(cube[1:]), cube)
    found = []
    for shrunken in shrunk_over_shifts(values, deviation=deviations, prior=shares).reshape(len(measured), -1):
        # Where the prior is nought nothing is, whatever a projection left there.
        estimate = np.where(prior > 0, shrunken, 0.0)
        if estimate.sum() <= 0:
            estimate = prior
        found.append(estimate * (total / estimate.sum()))
    return found
