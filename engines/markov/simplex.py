"""Counts that cannot be negative and add up to a declared total: the nearest ones, and the likeliest ones.

Post-processing of released values: costs no privacy.
Source: the Euclidean projection onto a simplex by sorting ([held1974]). It also solves the maximum
    likelihood problem under Laplace noise of [cao2023]'s comparator ([lee2015]), min |y - r|_1 with
    r >= 0 and sum r = n, whose solution is not unique: every entry moves the same way as the sum has to, or from below
    zero up to zero, so no smaller L1 distance is possible.
Units: counts, in users.
"""

from __future__ import annotations

import numpy as np

from schemas.arrays import BoolArray, FloatArray


def project(values: FloatArray, total: float) -> FloatArray:
    """The point of {r >= 0, sum r = total} nearest to `values`, `(..., cells)`; rows are projected each by itself.

    >>> project(np.array([5.0, 1.0, -3.0]), 4.0)
    array([4., 0., 0.])
    """
    ordered = -np.sort(-values, axis=-1)
    above = (np.cumsum(ordered, axis=-1) - total) / np.arange(1, values.shape[-1] + 1)
    kept = np.maximum((ordered > above).sum(axis=-1), 1)
    shift = np.take_along_axis(above, kept[..., None] - 1, axis=-1)
    nearest: FloatArray = np.maximum(values - shift, 0.0)
    return nearest


def project_onto(values: FloatArray, total: float, possible: BoolArray) -> FloatArray:
    """As `project`, with zeros where `possible` is False: a structural zero stays one."""
    nearest = np.zeros(values.shape)
    nearest[..., possible] = project(values[..., possible], total)
    return nearest


def likeliest(noisy: FloatArray, total: float, *, unseen: bool) -> FloatArray:
    """Maximum likelihood counts under Laplace noise; where people may be unseen, what is missing to `total` is theirs.

    Args:
        noisy: `(states,)` counts with noise. unseen: append the count of those who are in no state.
    Returns: `(states,)`, or `(states + 1,)` with the unseen ones last.
    """
    if not unseen:
        return project(noisy, total)
    clipped = np.maximum(noisy, 0.0)
    seen = clipped if clipped.sum() <= total else project(noisy, total)
    return np.append(seen, total - seen.sum())
