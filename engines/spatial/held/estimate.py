"""From held measurements to counts: learnt shares, forecasts, and the projection to integers that add up.

A leaf's estimate is C_a + X + F + rate * steps: its share of what was measured at its ancestors, what was measured at
itself, and what is expected among its pending events. An ancestor's measurements are shared in proportion to what was
measured below since, smoothed by its noise, instead of by area.
Privacy: released values only, so all of it is free. Floats are added, multiplied, divided and square-rooted one by
    one, in a fixed order: IEEE 754 gives every machine the same bits.
Source: ours, after the consistent extension of [kumar2024] (equations 3.8 and 3.9).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.spatial.held.tree import HeldTree
from engines.spatial.points import Placement
from schemas.arrays import FloatArray, IntArray

SHARE_SMOOTHING_SD = 0.6
"""Standard deviations of what was measured below by which each child's share is smoothed."""


HYSTERESIS_SD = 0.1
"""Standard deviations by which a released count may lag behind its estimate, if that keeps points where they are."""

SPLIT_HYSTERESIS_SD = 1.5
"""The same, of how what was measured in a cell before it was divided is shared between its parts."""

MAX_MOVE = (0.1, 2048)
"""Standard deviations by which old points at most go from a cell to its sibling in a step, and the points of both up to
which it is more, in proportion. Where cells have ten thousands of points, one new event would else move hundreds.
"""

EMPTY_CELL_VARIANCES = (2.0, 4.0)
"""Variances of noise that the emptier of two cells gives up, each divided by its count: at least, and at most."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """Sums over each node and what is below it, `(nodes,)` float64 each.

    Attributes:
        values: events, of either sign.
        variances: of leaves, as the projection weighs them.
        unsure: `(inner nodes,)`, variance of how an inner node's own measurements are shared between its children.
    """

    values: FloatArray
    variances: FloatArray
    unsure: FloatArray

    def with_more(self, events: float) -> Estimates:
        """Scale up by so many events whose places are unknown: they are taken to lie as the known ones do."""
        if events <= 0:
            return self
        factor = 1 + events / max(float(self.values[0]), 1.0)
        square = factor * factor
        return Estimates(self.values * factor, self.variances * square, self.unsure * square)


def estimate(tree: HeldTree, *, now: int, unit: float) -> Estimates:
    """Estimate every node's events after step `now`.

    Args:
        unit: variance of one measurement.
    """
    steps = now - tree.last
    coming = tree.rate * steps
    own_noise = unit * tree.parts
    sums = np.stack([tree.measured, tree.forecast + coming, own_noise, own_noise + np.abs(coming)], axis=1)
    for first, end in reversed(tree.levels):
        below = sums[2 * first + 1 : 2 * end + 1].reshape(-1, 2, 4)
        sums[tree.inner[first:end]] += below[:, 0] + below[:, 1]
    measured, noise = sums[:, 0], sums[:, 2]
    positive = np.maximum(measured, 0.0)
    # The children of the i-th inner node are the nodes 2i + 1 and 2i + 2, of all levels.
    (left_noise, right_noise), (left_seen, right_seen) = ((each[1::2], each[2::2]) for each in (noise, positive))
    smooth = SHARE_SMOOTHING_SD * np.sqrt(left_noise + right_noise) + 0.5
    seen = left_seen + right_seen + 2 * smooth
    # What nothing was measured in is shared by measure.
    share = (left_seen + 2 * tree.shares * smooth) / seen
    doubt = (1 - share) ** 2 * (left_noise + left_seen) + share**2 * (right_noise + right_seen)
    from_above, shared = np.zeros(len(sums)), tree.measured[tree.inner].astype(np.float64)
    for first, end in tree.levels:
        part = shared[first:end]
        part += from_above[tree.inner[first:end]]
        left = part * share[first:end]
        from_above[2 * first + 1 : 2 * end : 2] = left
        from_above[2 * first + 2 : 2 * end + 1 : 2] = part - left
    unsure = shared * shared * np.minimum(doubt / (seen * seen), 0.25)
    return Estimates(from_above + measured + sums[:, 1], sums[:, 3], unsure)


def emptied(first: FloatArray, total: IntArray, doubt: FloatArray) -> FloatArray:
    """Return the first of two cells' counts when the emptier one gives up `doubt` / its count to the other one.

    Args:
        first, total: `(cells,)`. doubt: `(..., cells)`, of several answers each.
    Source: positive-part James-Stein shrinkage ([baranchik1964]), here of one number at a time.

    >>> emptied(np.array([6.0, 2.0, 97.0]), np.array([100, 100, 100]), np.array([12.0, 12.0, 12.0])).tolist()
    [4.0, 0.0, 100.0]
    """
    second = total - first
    less = np.minimum(first, second)
    given = np.maximum(np.minimum(less, doubt / np.maximum(less, 1.0)), 0.0)
    return np.where(first <= second, first - given, first + given)


def project(tree: HeldTree, estimates: Estimates, *, placement: Placement) -> IntArray:
    """Return non-negative integer counts of all nodes that add up, `(nodes,)` int64, from the root down.

    Children's estimates are moved to add up to their parent's count, each in proportion to its variance, and rounded.
    The emptier one gives up what its noise explains (`emptied`), so that empty land stays empty: cut at zero only, the
    noise of many empty cells would add up to points. Where that leaves a choice, or differs from the counts released
    last by less than `HYSTERESIS_SD` standard deviations, the fewest points possible come and go; and where old points
    must move, no more of them in a step than `MAX_MOVE` says. Of a new cell, the last counts are where its points lay.
    """
    counts = np.zeros(len(tree.nodes), np.int64)
    counts[0] = max(int(np.rint(estimates.values[0])), 0)
    was = tree.counts.copy()
    (left_value, right_value), (left_variance, right_variance) = (
        (each[1::2], each[2::2]) for each in (estimates.values, estimates.variances)
    )
    part = left_variance / (left_variance + right_variance)
    spread = part * right_variance
    doubts = np.multiply.outer(EMPTY_CELL_VARIANCES, spread)
    slacks = HYSTERESIS_SD * np.sqrt(spread) + SPLIT_HYSTERESIS_SD * np.sqrt(estimates.unsure) + 0.5
    most_moved = MAX_MOVE[0] * np.sqrt(spread)
    for first, end in tree.levels:
        rows, at = slice(first, end), tree.inner[first:end]
        left, right = slice(2 * first + 1, 2 * end, 2), slice(2 * first + 2, 2 * end + 1, 2)
        total, before, slack = counts[at], was[at], slacks[rows]
        new = was[left] < 0
        if new.any():
            cells = at[new]
            was[left][new] = placement.first_of(tree.nodes[cells], tree.depths[cells], before[new])
        was[right] = before - was[left]
        wanted = left_value[rows] + (total - left_value[rows] - right_value[rows]) * part[rows]
        some, most = emptied(wanted, total, doubts[:, rows])
        kept, moved = was[left], total - was[right]
        low, high = np.minimum(kept, moved), np.maximum(kept, moved)
        near = np.clip((some + most) / 2, low, high)
        near = np.clip(near, np.minimum(some, most) - slack, np.maximum(some, most) + slack)
        room = most_moved[rows] * (1 + MAX_MOVE[1] / np.maximum(total, 1))
        near = np.clip(near, low - room, high + room)
        counts[left] = np.clip(np.rint(near), 0, total).astype(np.int64)
        counts[right] = total - counts[left]
    return counts
