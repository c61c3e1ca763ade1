"""Small two-way tables: margins first, then the part of the residuals from independence that is more than noise.

Post-processing: sees released values only. Units: trips.
"""

from __future__ import annotations

import numpy as np

from engines.core.noise import NoiseSource
from engines.trajectory.chance import choices
from engines.trajectory.default.shrinkage import onto_simplex
from schemas.arrays import FloatArray, IntArray

NOISE_CUT = 0.5
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
    clear = np.where(projected < NOISE_CUT * deviation, 0.0, projected)
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
