"""One release of held leaf counters, from private events to the tree it leaves behind.

Which cells are measured, divided or merged here follows from released values; `hold` and `measure` are the only
functions that touch pending events, and the watch the only other one that sees any.
Source: ours; docs/notes/0030-held-leaf-counters.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engines.core.noise import NoiseSource, aggregate
from engines.spatial.held.estimate import Estimates, estimate
from engines.spatial.held.groups import grouped
from engines.spatial.held.measure import LeafCounter, MeasuredLeaves, divide, due, hold, measure, unite
from engines.spatial.held.retire import Windows
from engines.spatial.held.tree import HeldTree
from engines.spatial.held.watch import Watch
from engines.spatial.partition import Changes
from engines.spatial.placement import Placement
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.blocks import Folded

GROUPS = 8
"""Parts in which the events of hot cells are looked at."""
NEWS = 0.25
"""Share of a leaf's released count that a burst must bring for the leaf to be divided at once."""
MERGE_EVERY = 5
"""Steps between two looks for leaves to merge."""


@dataclass(frozen=True, slots=True)
class Rules:
    """All public constants that a release needs. See `config.HeldConfig` for the units."""

    counter: LeafCounter
    watch: Watch
    placement: Placement
    max_leaves: int
    ttl: int | None


@dataclass(slots=True)
class StepWork:
    """The release of step `now` in the making. `tree` is its own copy; the rest is replaced, never changed."""

    rules: Rules
    now: int
    tree: HeldTree
    average: FloatArray
    windows: Windows
    noise: NoiseSource
    measured: list[MeasuredLeaves] = field(default_factory=list)

    def later(self, events: Folded) -> int:
        """Release any other step. Returns the number of hot cells."""
        tree, now, rules = self.tree, self.now, self.rules
        if rules.ttl is not None:
            self.windows = self.windows.retired(tree, now=now, ttl=rules.ttl)
        if now % MERGE_EVERY == 0:
            merged = unite(tree, self.estimates(), unit=rules.counter.variance, now=now, most=self.leaves(8))
            self.windows = self.windows.moved(merged)
        hot, self.average = rules.watch.step(Changes.of(events), self.average, self.noise.child("watch"))
        calm, burst = self._apart(events, hot)
        hold(tree, Changes.of(calm))
        which = due(tree, rules.counter, now=now) & ~self._hot_leaves(hot)
        at = self.measure(which, time=now, learn=True, label=0)
        self.divide(at, time=now, most=self.leaves(16))
        if hot.any():
            for index, changes in enumerate(grouped(burst, sizes=(1,) * GROUPS, placement=rules.placement)):
                hold(tree, changes)
                at = self.measure(self._hot_leaves(hot), time=now, learn=False, label=index + 1)
                # Only leaves to which the burst is news are divided for it: most of a hot cell may be full and calm.
                news = GROUPS * np.abs(self.measured[-1].increments) > NEWS * tree.counts[at]
                self.divide(at[news], time=now, most=rules.max_leaves)
        return int(hot.sum())

    def estimates(self) -> Estimates:
        """Of all nodes after step `now`."""
        return estimate(self.tree, now=self.now, unit=self.rules.counter.variance)

    @aggregate
    def _apart(self, events: Folded, hot: BoolArray) -> tuple[Folded, Folded]:
        """Events outside and inside of hot cells; private, each event in one of both by its own cell."""
        shift = np.uint64(self.tree.depth - self.rules.watch.depth + 1)
        inside = hot[(events.keys[:, 0] >> shift).astype(np.int64)]
        return Folded(events.keys[~inside], events.counts[~inside]), Folded(events.keys[inside], events.counts[inside])

    def _hot_leaves(self, hot: BoolArray) -> BoolArray:
        """`(leaves,)` in the order of the domain: in a hot cell, or with one inside."""
        shift = self.tree.depth - self.rules.watch.depth
        before = np.append(0, np.cumsum(hot))
        last = np.append(self.tree.starts[1:], np.int64(1) << self.tree.depth) - 1
        leaves: BoolArray = before[(last >> shift) + 1] > before[self.tree.starts >> shift]
        return leaves

    def measure(self, which: BoolArray, *, time: int, learn: bool, label: int) -> IntArray:
        """Measure leaves, and note it; returns their positions."""
        noise = self.noise.child("leaves", label)
        measured = measure(self.tree, which, self.rules.counter, now=time, learn=learn, noise=noise)
        self.measured.append(measured)
        if self.rules.ttl is not None:
            self.windows = self.windows.with_measured(measured, self.tree, now=self.now, ttl=self.rules.ttl)
        return measured.at

    def divide(self, at: IntArray, *, time: int, most: int) -> None:
        unit = self.rules.counter.variance
        estimates = estimate(self.tree, now=time, unit=unit)
        rest = self.leaves(8) if most < self.rules.max_leaves else most
        divide(self.tree, at, estimates, unit=unit, now=time, max_leaves=most, rest=rest)

    def leaves(self, share: int) -> int:
        """All leaves but one in `share`: a part of the tree is kept free for bursts."""
        return self.rules.max_leaves - self.rules.max_leaves // share
