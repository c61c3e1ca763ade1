"""Estimates of noisy maps by a quadtree: sums from the top, children pulled towards a public share of their parent.

Post-processing: sees released values only.
Units: trips. Maps are `(rows, columns, layers)`: one cell has `layers` values, each with a quadtree of its own.
Method: going down, a child's expected value is its prior share of the parent's estimate. How much the children of a
level really differ from that is estimated by moments over the whole level (empirical Bayes), and each noisy residual
is kept by that much; then the four are projected onto non-negative values that add up to the parent's estimate.
"""

from __future__ import annotations

import numpy as np

from schemas.arrays import FloatArray

_TINY = 1e-300


def onto_simplex(values: FloatArray, totals: FloatArray) -> FloatArray:
    """Rows projected (least squares) onto non-negative rows that add up to `totals`; `values` is `(rows, columns)`.

    >>> onto_simplex(np.array([[3.0, 1.0, -1.0]]), np.array([2.0])).tolist()
    [[2.0, 0.0, 0.0]]
    """
    ordered = -np.sort(-values, axis=1)
    excess = np.cumsum(ordered, axis=1) - totals[:, None]
    active = (ordered * np.arange(1, values.shape[1] + 1) > excess).sum(axis=1)
    last = np.maximum(active - 1, 0)
    shift = np.take_along_axis(excess, last[:, None], axis=1) / (last + 1)[:, None]
    projected: FloatArray = np.where(totals[:, None] > 0, np.maximum(values - shift, 0.0), 0.0)
    return projected


def _parents(cells: FloatArray) -> FloatArray:
    """Sums of 2 x 2 cells; odd maps are padded with zeros."""
    rows, columns, layers = cells.shape
    padded = np.zeros((rows + rows % 2, columns + columns % 2, layers))
    padded[:rows, :columns] = cells
    sums: FloatArray = padded.reshape(padded.shape[0] // 2, 2, padded.shape[1] // 2, 2, layers).sum(axis=(1, 3))
    return sums


def _quads(cells: FloatArray) -> FloatArray:
    """`(parents, 4)`: the children of each parent and layer; odd maps are padded with zeros."""
    rows, columns, layers = cells.shape
    padded = np.zeros((rows + rows % 2, columns + columns % 2, layers))
    padded[:rows, :columns] = cells
    blocks = padded.reshape(padded.shape[0] // 2, 2, padded.shape[1] // 2, 2, layers)
    return blocks.transpose(0, 2, 4, 1, 3).reshape(-1, 4)


def shrunk(noisy: FloatArray, *, deviation: float, prior: FloatArray) -> FloatArray:
    """See the module.

    Args:
        noisy, prior: `(rows, columns, layers)`; the prior is non-negative, only its shares matter.
        deviation: of the noise of each value; a sum of four has twice of it.
    Returns: `(rows, columns, layers)`, non-negative.
    """
    levels = [(noisy, prior)]
    while max(levels[-1][0].shape[:2]) > 1:
        levels.append((_parents(levels[-1][0]), _parents(levels[-1][1])))
    estimate = np.maximum(levels[-1][0], 0.0)
    for level in range(len(levels) - 2, -1, -1):
        values, shares = levels[level]
        rows, columns, layers = values.shape
        estimate = _children(
            _quads(values), _quads(shares), estimate.reshape(-1), variance=(deviation * 2.0**level) ** 2
        )
        blocks = estimate.reshape((rows + 1) // 2, (columns + 1) // 2, layers, 2, 2).transpose(0, 3, 1, 4, 2)
        estimate = blocks.reshape(rows + rows % 2, columns + columns % 2, layers)[:rows, :columns]
    return estimate


def _children(noisy: FloatArray, prior: FloatArray, totals: FloatArray, *, variance: float) -> FloatArray:
    """`(parents, 4)` estimates of children with noise of this variance, that add up to `totals`, `(parents,)`."""
    mass = prior.sum(axis=1, keepdims=True)
    expected = np.where(mass > 0, prior / np.maximum(mass, _TINY), 0.0) * totals[:, None]
    residual = noisy - expected
    spread = (expected * expected).sum()
    factor = max(((residual * residual - variance) * expected).sum() / max(spread, _TINY), 0.0)
    kept = factor * expected / np.maximum(factor * expected + variance, _TINY)
    return onto_simplex(expected + kept * residual, totals)


def shrunk_over_shifts(noisy: FloatArray, *, deviation: float, prior: FloatArray) -> FloatArray:
    """Mean of `shrunk` over four positions of the quadtree on the map: its block edges leave fewer marks."""
    rows, columns, layers = noisy.shape
    total = np.zeros_like(noisy)
    for across in (0, 4):
        for down in (0, 4):
            shape = (rows + 8, columns + 8, layers)
            values, shares = np.zeros(shape), np.zeros(shape)
            window = (slice(across, across + rows), slice(down, down + columns))
            values[window], shares[window] = noisy, prior
            total += shrunk(values, deviation=deviation, prior=shares)[window]
    return total / 4
