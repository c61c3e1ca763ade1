"""The two mechanisms of held leaf counters, what a measurement teaches, and how it is taken back when it grows old.

The watch counts a step's events in coarse cells. Forecasts of leaves follow its counts (`held/pace.py`), and they find
bursts where leaves are held: a cell is hot where its count leaves its moving average by more than noise and habit
explain. A leaf is measured when its public forecast says
that it is worth the noise. Its rate follows a scalar Kalman filter (random walk observed through sums over held steps).
A time to live is post-processing: a measurement of the events of steps a+1 .. b is gone after step b + ttl, and in
between as if they had come evenly; in whole numbers, so that nothing is left over. No expiry is ever measured: an
insert with a ttl is one event.
Guarantee: epsilon-DP for one event, inserted or deleted, over the whole stream, for either mechanism: an event is in
    one cell of one step's counts of the watch; and it is in one pending count until that count is measured once, with
    discrete Laplace noise of scale 1/epsilon, and then set to zero. Which leaves are measured follows from released
    values. Proof: docs/notes/0030-held-leaf-counters.md.
Source: ours.
Units: counts are events, rates events per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.noise import LEAST_VARIANCE, DiscreteLaplace, NoiseSource, laplace_mechanism, private_like, scale_for
from engines.core.state import arrays_of
from engines.spatial.changes import Changes
from engines.spatial.domain.base import children_of
from engines.spatial.held.estimate import Estimates
from engines.spatial.held.tree import HeldTree
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.guarantee import Mechanism

ALARM = 8
"""Scales of noise by which a count must leave its average, at least."""
MEMORY = 0.3
"""Weight of the newest count in the average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoisyCounts:
    """Public constants of a mechanism; may be printed and logged.

    Args:
        epsilon: of one event, over all its counts (there is one).
    """

    epsilon: Fraction

    @property
    def scale(self) -> Fraction:
        return scale_for(1, self.epsilon)

    @property
    def variance(self) -> float:
        """Variance of one count's noise, `LEAST_VARIANCE` at least."""
        return max(LEAST_VARIANCE, DiscreteLaplace(self.scale).variance)

    def mechanism(self, name: str, account: str) -> Mechanism:
        """Return what a guarantee says of it."""
        return Mechanism(
            name=name,
            distribution="discrete Laplace",
            l1_sensitivity=1,
            scale=self.scale,
            epsilon=self.epsilon,
            account=account,
        )

    def noisy(self, values: IntArray, noise: NoiseSource) -> IntArray:
        """Add noise to private counts, `(cells,)` int64: the one way in which events leave."""
        return laplace_mechanism(values, self.scale, noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch(_NoisyCounts):
    """One noisy count of a step's events per coarse cell.

    Args:
        depth: of the cells. domain_depth: of the finest cells.
        missing: numbers of cells of `depth` that the domain has not, since a finest cell lies above; never counted.
    """

    depth: int
    domain_depth: int
    missing: tuple[int, ...] = ()

    @property
    def there(self) -> BoolArray:
        """Whether the domain has the cell of each number, `(2**depth,)`."""
        there = np.ones(1 << self.depth, np.bool_)
        there[list(self.missing)] = False
        return there

    def step(self, changes: Changes, average: FloatArray, noise: NoiseSource) -> tuple[BoolArray, FloatArray, IntArray]:
        """Count a step's events.

        Args:
            average: float64 moving averages of the cells that are there, or `(0,)` before the first count; released.
        Returns: `(2**depth,)` True where a cell is hot, the averages now, and the noisy counts of the cells that are
            there; safe to publish.
        """
        starts = np.arange((1 << self.depth) + 1) << (self.domain_depth - self.depth)
        there = self.there
        events = changes.net_between(starts)
        counts = self.noisy(events[there], noise)
        hot = np.zeros(len(there), np.bool_)
        if not len(average):
            return hot, counts.astype(np.float64), counts
        habit = np.abs(average)
        allowed = ALARM * float(self.scale) + np.maximum(habit, 4 * np.sqrt(habit))
        hot[there] = np.abs(counts - average) > allowed
        return hot, average + MEMORY * (counts - average), counts


WORTH = 0.5
"""A leaf is measured when the variance of what is pending reaches this share of the variance of what was measured."""
SPLIT = 3.0
"""Standard deviations above zero at which a leaf's estimate makes it be divided; four times that: into four."""
MERGE = 0.75
"""Standard deviations below which the estimates of two leaves together make them be merged."""
PRICE = 4.0
"""A leaf of a full tree is divided if it holds so many times what the next pair to be merged holds."""
WORN = 6
"""Measurements that two leaves must have cost, together, before they are merged."""
DRIFT, DRIFT_FLOOR = 0.02, 0.0004
"""Variance that a rate gains per step: a share of its square, and a constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafCounter(_NoisyCounts):
    """The measurements of leaves.

    Args:
        longest: steps after which a leaf is measured whatever is expected in it.
    """

    longest: int


def hold(tree: HeldTree, changes: Changes) -> None:
    """Add a step's events to the pending counts of the leaves that they lie in."""
    arrived = changes.net_between(np.append(tree.starts, np.int64(1) << tree.depth))
    tree.pending = private_like(tree.pending, arrived)
    tree.pending[tree.leaves] += arrived


def due(tree: HeldTree, counter: LeafCounter, *, now: int) -> BoolArray:
    """Tell by released values which leaves are worth their noise now, `(leaves,)` in the order of the domain."""
    at = tree.leaves
    steps = now - tree.last[at]
    variance = tree.rate_variance[at]
    arrivals = np.maximum(np.abs(tree.rate[at]), np.sqrt(variance) / 2)
    expected = arrivals * steps + steps * steps * variance + tree.doubt[at]
    return (expected >= WORTH * counter.variance * tree.parts[at]) | (steps >= counter.longest)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredLeaves:
    """The result of measuring some leaves. Public.

    Attributes: `(leaves,)` int64 each.
        nodes: heap numbers; at: their positions in the tree when they were measured.
        since: the events measured arrived after this step.
        increments: noisy sums of the pending events.
    """

    nodes: IntArray
    at: IntArray
    since: IntArray
    increments: IntArray


def spans(measured: Sequence[MeasuredLeaves], *, now: int) -> list[tuple[int, float]]:
    """See `Release.spans`: how many events were counted in all leaves that were last measured in one step. What a burst
    adds to a leaf that was measured before in this very step `now` came in it."""
    since = np.minimum(np.concatenate([part.since for part in measured]), now - 1)
    begins, index = np.unique(since, return_inverse=True)
    sums = np.zeros(len(begins), np.int64)
    np.add.at(sums, index, np.concatenate([part.increments for part in measured]))
    return list(zip(begins.tolist(), sums.astype(float).tolist(), strict=True))


def measure(
    tree: HeldTree, which: BoolArray, counter: LeafCounter, *, now: int, learn: bool, noise: NoiseSource
) -> MeasuredLeaves:
    """Measure some leaves, and forget their pending events.

    Args:
        which: `(leaves,)` in the order of the domain; from released values only.
        learn: whether rates follow; not where the events are a part of a step's.
    """
    at = np.sort(tree.leaves[which])
    increments = counter.noisy(tree.pending[at], noise)
    # From here on nothing is private: these events have left.
    tree.pending[at] = 0
    surprise = increments - tree.forecast[at]
    result = MeasuredLeaves(tree.nodes[at], at, tree.since[at], increments)
    if learn:
        steps = np.maximum(now - tree.last[at], 1)
        rate, variance = tree.rate[at], tree.rate_variance[at]
        variance = variance + steps * (DRIFT / 2 * rate * rate + DRIFT_FLOOR / 2)
        error = (counter.variance + np.maximum(np.abs(rate), 0.01) * steps) / (steps * steps)
        gain = variance / (variance + error)
        tree.rate[at] = rate + gain * (surprise / steps - rate)
        tree.rate_variance[at] = (1 - gain) * variance
    tree.measured[at] += increments
    tree.parts[at] += 1
    tree.last[at] = tree.since[at] = now
    tree.forecast[at] = tree.doubt[at] = 0.0
    return result


def divide(
    tree: HeldTree, at: IntArray, estimates: Estimates, *, unit: float, now: int, max_leaves: int, rest: int, deep: int
) -> None:
    """Divide leaves that were measured just now and hold enough for it, those first that hold most for their noise.

    Args:
        max_leaves: of the tree afterwards. rest: leaves from which on room is dear, since pairs are merged for it.
        deep: leaves up to which parts are divided at once as if each held its even share; 0: they are measured first.
    """
    values = np.maximum(estimates.values, 0.0)
    urgency = values[at] / (SPLIT * np.sqrt(unit * (tree.parts[at] + 1)))
    if len(tree.leaves) >= rest:
        # What the pair of leaves holds that would be merged for the room.
        (_, left), rank = tree.sibling_leaves(), max_leaves // 16
        pairs = np.sort(values[left] + values[left + 1])
        price = PRICE * float(pairs[min(rank, len(pairs) - 1)]) if len(pairs) else 0.0
        worth = estimates.values[at] > price
        at, urgency = at[worth], urgency[worth]
    most = max_leaves
    while len(at) and len(tree.leaves) < most:
        room = tree.room(at)
        order = np.argsort(-urgency, kind="stable")
        order = order[((urgency > 1.0) & (room > 0))[order]]
        halvings: IntArray = np.minimum(np.where(urgency >= 2.0, 2, 1), room)
        fits = np.cumsum((1 << halvings[order]) - 1) <= most - len(tree.leaves)
        chosen = np.sort(order[fits])
        quartered = chosen[halvings[chosen] > 1]
        parts = children_of(children_of(tree.nodes[at[quartered]]))
        tree.split(at[chosen], halvings[chosen], now=now)
        at, urgency, most = np.searchsorted(tree.nodes, parts), np.repeat(urgency[quartered] / 4, 4), deep


def unite(tree: HeldTree, estimates: Estimates, *, unit: float, now: int, most: int) -> IntArray:
    """Merge pairs of leaves that hold little for the noise they have cost.

    Where more than `most` leaves would stay, further pairs are merged, those first that hold least: a full tree must
    have room for what comes. Returns: the parents' heap numbers, ascending.
    """
    parents, left = tree.sibling_leaves()
    values = np.maximum(estimates.values, 0.0)
    parts = tree.parts[left] + tree.parts[left + 1]
    urgency = (values[left] + values[left + 1]) / np.sqrt(unit * parts)
    merged: BoolArray = (urgency < MERGE) & (parts > WORN)
    excess = len(tree.leaves) - int(merged.sum()) - most
    if excess > 0:
        order = np.argsort(np.where(merged, np.inf, values[left] + values[left + 1]), kind="stable")
        merged[order[: min(excess, int((~merged).sum()))]] = True
    names: IntArray = tree.nodes[parents[merged]]
    tree.merge(parents[merged], left[merged], now=now)
    return names


_MOST = 24
"""Windows per node of the tree, on average, before neighbouring ones are joined."""


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Measurements that are still alive. Attributes, `(windows,)` int64 each:

    nodes: heap numbers of the nodes whose `measured` holds them.
    after, until: the events measured came in steps after+1 .. until.
    increments: noisy sums, as measured. parts: how many measurements it is.
    """

    nodes: IntArray
    after: IntArray
    until: IntArray
    increments: IntArray
    parts: IntArray

    @staticmethod
    def none() -> Windows:
        return Windows(*(np.zeros(0, np.int64) for _ in arrays_of(Windows)))

    def _gone(self, oldest: int) -> IntArray:
        """Return the part of each increment that is gone when steps up to `oldest` are too old."""
        length = self.until - self.after
        return self.increments * np.clip(oldest - self.after, 0, length) // length

    def with_measured(self, measured: MeasuredLeaves, tree: HeldTree, *, now: int, ttl: int) -> Windows:
        """Remember a measurement just made at `tree`, where a part that came too long ago is gone at once."""
        after = np.minimum(measured.since, now - 1)
        new = Windows(measured.nodes, after, np.full(len(after), now), measured.increments, np.ones_like(after))
        tree.measured[measured.at] -= new._gone(now - ttl)
        both = Windows(*(np.concatenate([getattr(self, name), getattr(new, name)]) for name in arrays_of(Windows)))
        return both if len(both.nodes) <= _MOST * len(tree.nodes) else both._joined(now=now, ttl=ttl)

    def _joined(self, *, now: int, ttl: int) -> Windows:
        """Join windows of one node that end in the same sixteenth of the ttl and have not begun to go."""
        order = np.lexsort((self.until, self.nodes))
        rows = self._select(order)
        period = rows.until // max(ttl // 16, 1)
        first = np.ones(len(order), np.bool_)
        first[1:] = (np.diff(rows.nodes) != 0) | (np.diff(period) != 0)
        old = rows.after < now - ttl
        first |= old
        first[1:] |= old[:-1]
        starts = np.flatnonzero(first)
        return Windows(
            rows.nodes[starts],
            np.minimum.reduceat(rows.after, starts),
            np.maximum.reduceat(rows.until, starts),
            np.add.reduceat(rows.increments, starts),
            np.add.reduceat(rows.parts, starts),
        )

    def retired(self, tree: HeldTree, *, now: int, ttl: int) -> Windows:
        """Take back from `tree` what grows too old in step `now`; once a step, before anything is measured."""
        oldest = now - ttl
        ageing = np.flatnonzero(self.after < oldest)
        due = self._select(ageing)
        at = np.searchsorted(tree.nodes, due.nodes)
        np.subtract.at(tree.measured, at, due._gone(oldest) - due._gone(oldest - 1))
        over = due.until <= oldest
        np.subtract.at(tree.parts, at[over], due.parts[over])
        tree.parts[tree.leaves] = np.maximum(tree.parts[tree.leaves], 1)
        tree.parts[tree.inner] = 0
        keep = np.ones(len(self.nodes), np.bool_)
        keep[ageing[over]] = False
        return self._select(keep)

    def moved(self, parents: IntArray) -> Windows:
        """Follow a merge: windows of the children of `parents`, ascending heap numbers, become theirs."""
        if not len(parents):
            return self
        up = self.nodes >> 1
        merged = parents[np.minimum(np.searchsorted(parents, up), len(parents) - 1)] == up
        return Windows(np.where(merged, up, self.nodes), self.after, self.until, self.increments, self.parts)

    def _select(self, which: IntArray | BoolArray) -> Windows:
        return Windows(*(getattr(self, name)[which] for name in arrays_of(Windows)))
