"""Held leaf counters: a synthetic stream of points, under pure differential privacy for ever.

No budget is spent on finding a partition: it is refined and merged from released counts alone. A leaf's events are
HELD, as a private integer, until the public forecast of the leaf says that a measurement is worth its noise; then they
are counted, once. A watch over coarse cells, with a twentieth of the budget, counts each step as it comes: forecasts
follow it (`held/pace.py`), and where it sees a burst everything is counted at once. Which cells are measured, divided
or merged follows from released values and public constants; `hold` and `measure` are the only functions that touch
pending events, and the watch the only other one that sees any.

The first release is a partition that fits what was gathered, and one good count of each part. A sixteenth of the events
says how many there are, and how deep to begin. Three further parts, each as large as all before it, are counted only
where a cell may yet be divided, as deep at once as even shares would be worth it; everywhere else events wait for the
last round, which counts every leaf. So most leaves are counted once, with most of the events, and their share of what
was counted before in larger cells is learnt from that. The next steps are expected to bring as much as the gathered
ones did, as far as noise lets that be believed.
Guarantee: epsilon-DP for one event, inserted or deleted, over the whole stream however long it lives: an event moves
    one count of the watch by one, when it arrives, and one leaf measurement by one, then or later. The budgets of watch
    and leaves add up to epsilon exactly.
Source: ours; proof in docs/notes/0030-held-leaf-counters.md. An insert's ttl is post-processing (`Windows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from engines.core.accounting.budgets import Budgets
from engines.core.contract import Batch, Release, State
from engines.core.noise import NoiseSource, aggregate
from engines.core.state import Gathered, check_batch, flag_of, head, identity_of, loaded, numbers_of, reading, stored
from engines.spatial.changes import Changes, grouped
from engines.spatial.domain.base import SpatialDomain, first_codes, nodes_to
from engines.spatial.held.estimate import Estimates, estimate, project
from engines.spatial.held.measure import (
    SPLIT,
    LeafCounter,
    MeasuredLeaves,
    Watch,
    Windows,
    divide,
    due,
    hold,
    measure,
    spans,
    unite,
)
from engines.spatial.held.pace import follow, unknown
from engines.spatial.held.tree import HeldTree
from engines.spatial.points import Placement, change, node_depths
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from schemas.guarantee import Guarantee

WATCH_SHARE = Fraction(1, 20)
"""Share of the budget that the watch has."""
START_DEPTH = 6
"""The watch counts in cells of this depth, where `max_leaves` allows."""
LONGEST = 12
"""Steps that an event is held at most, or half of its ttl if that is less."""


@dataclass(frozen=True, kw_only=True)
class HeldConfig:
    """The configuration of held leaf counters. All of it is public.

    Args:
        name: of the stream; decides where synthetic points lie.
        domain: what events are.
        epsilon: of ONE event, over the whole stream.
        initial_steps: steps 0 .. initial_steps - 1 are gathered into the release of step initial_steps - 1.
        max_leaves: of the tree; work and memory of a step are proportional to it.
        ttl_steps: steps after which an insert is gone by itself, at no further cost. A delete fades after it, too.
        weighted: synthetic records are weighted ones of cells, in place of points.
    """

    name: str
    domain: SpatialDomain
    epsilon: Fraction
    initial_steps: int = 1
    max_leaves: int = 4096
    ttl_steps: int | None = None
    weighted: bool = False

    @property
    def start_depth(self) -> int:
        """Depth of the watch's cells: an eighth of `max_leaves` at most, or the whole domain."""
        return max(0, min(START_DEPTH, self.domain.depth, self.max_leaves.bit_length() - 4))

    @cached_property
    def watch(self) -> Watch:
        depth = self.start_depth
        nodes = nodes_to(self.domain, depth)
        # A finest cell above stands at the first of the places below it.
        first = first_codes(nodes, node_depths(nodes), depth)
        missing = np.setdiff1d(np.arange(1 << depth), first)
        epsilon = self.epsilon * WATCH_SHARE
        return Watch(epsilon=epsilon, depth=depth, domain_depth=self.domain.depth, missing=tuple(missing.tolist()))

    @cached_property
    def counter(self) -> LeafCounter:
        longest = LONGEST if self.ttl_steps is None else min(LONGEST, max(1, self.ttl_steps // 2))
        return LeafCounter(epsilon=self.epsilon - self.watch.epsilon, longest=longest)

    @cached_property
    def placement(self) -> Placement:
        return Placement(self.name, self.domain)

    @property
    def identity(self) -> np.ndarray:
        return identity_of(repr(("spatial", "held", self.name, *self.domain.identity, self.start_depth)))


GROUPS = 8
"""Parts in which the events of hot cells are looked at."""
NEWS = 0.25
"""Share of a leaf's released count that a burst must bring for the leaf to be divided at once."""
MERGE_EVERY = 5
"""Steps between two looks for leaves to merge."""


@dataclass(slots=True)
class StepWork:
    """The work on the release of step `now`. `tree` is its own copy; the rest is replaced, never changed."""

    config: HeldConfig
    now: int
    tree: HeldTree
    average: FloatArray
    doubts: FloatArray
    windows: Windows
    noise: NoiseSource
    measured: list[MeasuredLeaves] = field(default_factory=list)

    def later(self, events: Folded) -> int:
        """Release any other step. Returns the number of hot cells."""
        tree, now, config = self.tree, self.now, self.config
        if config.ttl_steps is not None:
            self.windows = self.windows.retired(tree, now=now, ttl=config.ttl_steps)
        if now % MERGE_EVERY == 0:
            merged = unite(tree, self.estimates(), unit=config.counter.variance, now=now, most=self.leaves(8))
            self.windows = self.windows.moved(merged)
        watch, seen = config.watch, Changes.of(events)
        hot, self.average, counts = watch.step(seen, self.average, self.noise.child("watch"))
        self.doubts = follow(tree, watch, counts, hot, self.doubts, now=now)
        calm, burst = self._apart(events, hot)
        hold(tree, Changes.of(calm))
        which = due(tree, config.counter, now=now) & ~self._hot_leaves(hot)
        at = self.measure(which, time=now, learn=True, label=0)
        self.divide(at, time=now, most=self.leaves(16))
        if hot.any():
            for index, changes in enumerate(grouped(burst, sizes=(1,) * GROUPS, placement=config.placement)):
                hold(tree, changes)
                at = self.measure(self._hot_leaves(hot), time=now, learn=False, label=index + 1)
                # Only leaves to which the burst is news are divided for it: most of a hot cell may be full and calm.
                news = GROUPS * np.abs(self.measured[-1].increments) > NEWS * tree.counts[at]
                self.divide(at[news], time=now, most=config.max_leaves)
        return int(hot.sum())

    def estimates(self) -> Estimates:
        """Return the estimates of all nodes after step `now`."""
        return estimate(self.tree, now=self.now, unit=self.config.counter.variance)

    @aggregate
    def _apart(self, events: Folded, hot: BoolArray) -> tuple[Folded, Folded]:
        """Split events into those outside and inside of hot cells, each by its own cell; private."""
        shift = np.uint64(self.tree.depth - self.config.watch.depth + 1)
        inside = hot[(events.keys[:, 0] >> shift).astype(np.int64)]
        return Folded(events.keys[~inside], events.counts[~inside]), Folded(events.keys[inside], events.counts[inside])

    def _hot_leaves(self, hot: BoolArray) -> BoolArray:
        """Tell which leaves are in a hot cell or hold one, `(leaves,)` in the order of the domain."""
        shift = self.tree.depth - self.config.watch.depth
        before = np.append(0, np.cumsum(hot))
        last = np.append(self.tree.starts[1:], np.int64(1) << self.tree.depth) - 1
        leaves: BoolArray = before[(last >> shift) + 1] > before[self.tree.starts >> shift]
        return leaves

    def measure(self, which: BoolArray, *, time: int, learn: bool, label: int) -> IntArray:
        """Measure leaves, and note it; returns their positions."""
        noise = self.noise.child("leaves", label)
        measured = measure(self.tree, which, self.config.counter, now=time, learn=learn, noise=noise)
        self.measured.append(measured)
        if self.config.ttl_steps is not None:
            self.windows = self.windows.with_measured(measured, self.tree, now=self.now, ttl=self.config.ttl_steps)
        return measured.at

    def divide(self, at: IntArray, *, time: int, most: int) -> None:
        unit = self.config.counter.variance
        estimates = estimate(self.tree, now=time, unit=unit)
        rest = self.leaves(8) if most < self.config.max_leaves else most
        divide(self.tree, at, estimates, unit=unit, now=time, max_leaves=most, rest=rest, deep=0)

    def leaves(self, share: int) -> int:
        """Return how many leaves are all but one in `share`: a part of the tree is kept free for bursts."""
        return self.config.max_leaves - self.config.max_leaves // share


ROUNDS = (1, 1, 2, 4, 8)
"""Sizes of the groups, in sixteenths of the events."""
FILL = 0.6
"""Standard deviations of a measurement that cells of the first depth hold on average, at least."""
EARLY_RATE = 0.05
"""Standard deviation of a new leaf's rate, at least: as a share of the leaf's count, and of 5 events at least."""
SPREAD = 1.0
"""The same, as a share of the rate."""
UNBELIEVED = 0.3
"""The same, as a share of what of the leaf's count per step is not believed: so what may well be there is counted soon,
where a rate next to 0 that passed for known would hold it for a dozen steps."""
TRUST = 25.0
"""A new leaf's rate is half of its count per step where the count's square is so many variances of its noise: where
the count is 5 standard deviations. Of counts far above it is all, of counts far below next to nothing."""


def first_release(work: StepWork, events: Folded, *, after: int) -> None:
    """Release what was gathered; `work.tree` is the whole domain as one cell.

    Args:
        after: all events came after this step.
    """
    tree, now, most, unit = work.tree, work.now, work.leaves(8), work.config.counter.variance
    for index, changes in enumerate(grouped(events, sizes=ROUNDS, placement=work.config.placement)):
        # A sixteenth of the events plays one step, and the last one now: a rate is events per sixteenth, and an
        # estimate for `now` one of all that was gathered.
        time = now - sum(ROUNDS[index + 1 :])
        hold(tree, changes)
        tree.since[:] = after
        which = _of_use(work) if index > 0 and time < now else np.ones(len(tree.leaves), np.bool_)
        at = work.measure(which, time=time, learn=index > 0, label=index)
        if index == 0:
            _begin(work)
        else:
            divide(tree, at, work.estimates(), unit=unit, now=time, max_leaves=most, rest=most, deep=most // 4)
    leaves = tree.leaves
    # From here on a rate is per step: that of the gathered steps, as far as noise lets it be believed.
    counts = work.estimates().values[leaves]
    squares = counts * counts
    tree.rate[leaves] = counts * squares / (squares + TRUST * unit * tree.parts[leaves]) / (now - after)
    early = np.maximum(EARLY_RATE * np.maximum(counts, 5.0), SPREAD * np.abs(tree.rate[leaves]))
    early = np.maximum(early, UNBELIEVED * (counts / (now - after) - tree.rate[leaves]))
    tree.rate_variance[leaves] = early * early


def _begin(work: StepWork) -> None:
    """Divide the domain evenly into cells that hold enough to be looked at, but no smaller than those of the watch."""
    tree, config = work.tree, work.config
    seen = max(int(tree.measured[0]), 0)
    tree.rate[0], tree.rate_variance[0] = seen / ROUNDS[0], (seen / 2 + config.counter.variance) / ROUNDS[0] ** 2
    enough, total = FILL * np.sqrt(config.counter.variance), work.estimates().values[0]
    for _ in range(config.watch.depth):
        at = np.sort(tree.leaves)
        if total < 2 * enough * len(at):
            return
        tree.split(at[tree.room(at) > 0], np.ones(int((tree.room(at) > 0).sum()), np.int64), now=int(tree.last[0]))


def _of_use(work: StepWork) -> BoolArray:
    """Tell by released values which leaves may be divided once counted, `(leaves,)` in the order of the domain."""
    tree, at = work.tree, work.tree.leaves
    deviation = np.sqrt(work.config.counter.variance * (tree.parts[at] + 1))
    hopeful: BoolArray = work.estimates().values[at] > SPLIT * deviation
    return hopeful


STATE_FORMAT = 1


class HeldLeaves:
    """See the module; implements `engines.core.contract.Engine`.

    >>> from fractions import Fraction
    >>> from engines.core.noise import seeded
    >>> from engines.spatial.domain.box import BoxDomain
    >>> from schemas.blocks import Folded
    >>> box = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth=8)
    >>> engine = HeldLeaves(HeldConfig(name="docs", domain=box, epsilon=Fraction(1)))
    >>> events = Folded(np.array([[12], [14]], np.uint64), np.array([500, 300]))
    >>> release = engine.step(Batch(0, events), seeded(1))
    >>> release.total == len(release.added), abs(release.total - 800) < 100
    (True, True)
    """

    def __init__(self, config: HeldConfig) -> None:
        self.config = config
        self._next = 0
        self._started = False
        # An event is once in the watch, at its step, and once in a leaf measurement, then or later.
        self._budgets = Budgets.from_guarantee(self.guarantee())
        self._tree = HeldTree.full(config.domain, 0)
        self._average: FloatArray = np.zeros(0)
        self._doubts = unknown(config.watch)
        self._windows = Windows.none()
        self._gathered = Gathered.empty()

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        """See `engines.core.contract.Engine.step`. Draws no noise while gathering."""
        config, now = self.config, batch.step
        check_batch(batch, step=self._next, depth=config.domain.depth)
        if self._started:
            budgets = self._budgets.charged(self.guarantee(), "watch", "leaves", step=now)
            work = self._work(now, noise)
            return self._released(work, budgets, hot=work.later(batch.events), beyond=batch.beyond)
        gathered = self._gathered.with_batch(batch, ttl=config.ttl_steps)
        if now < config.initial_steps - 1:
            self._gathered, self._next = gathered, now + 1
            return Release(step=now, added=(), removed=(), measurements=(), total=0, gathered=True)
        budgets = self._budgets.charged(self.guarantee(), "leaves", step=now)
        work = self._work(now, noise)
        first_release(work, gathered.all(), after=-1 if config.ttl_steps is None else max(-1, now - config.ttl_steps))
        return self._released(work, budgets, hot=0, beyond=batch.beyond)

    def _work(self, now: int, noise: NoiseSource) -> StepWork:
        return StepWork(self.config, now, self._tree.copy(), self._average, self._doubts, self._windows, noise)

    def _released(self, work: StepWork, budgets: Budgets, *, hot: int, beyond: float) -> Release:
        tree = work.tree
        estimates = work.estimates().with_more(beyond)
        tree.counts = project(tree, estimates, placement=self.config.placement)
        changed = change(
            self.config.domain,
            self.config.placement,
            before=self._tree.released(),
            after=tree.released(),
            weighted=self.config.weighted,
        )
        self._tree, self._average, self._doubts, self._windows = tree, work.average, work.doubts, work.windows
        self._gathered, self._started, self._next = Gathered.empty(), True, work.now + 1
        self._budgets = budgets
        return Release(
            step=work.now,
            added=changed.added,
            removed=changed.removed,
            measurements=self._measurements(work.measured, estimates),
            total=changed.total,
            notes={
                "leaves": len(tree.leaves),
                "depth": int(tree.depths[-1]),
                "measured": sum(len(measured.nodes) for measured in work.measured),
                "hot": hot,
            },
            spans=spans(work.measured, now=work.now),
            weight=changed.weight,
        )

    def _measurements(self, measured: Sequence[MeasuredLeaves], estimates: Estimates) -> list[dict[str, Any]]:
        """Return one object for each measurement of this step, see `Release.measurements`.

        `increment` is the noisy number of inserts minus deletes of steps `since` + 1 to this one, `variance` that of
        its noise; the first release and hot cells are looked at in several rounds. `estimate` is the cell's released
        count, `standard_error` what measurements leave open of it.
        """
        nodes = np.concatenate([part.nodes for part in measured])
        at = np.searchsorted(self._tree.nodes, nodes)
        depths = self._tree.depths[at]
        variance = self.config.counter.variance
        columns = zip(
            self.config.domain.described(nodes, depths),
            depths.tolist(),
            np.repeat(np.arange(len(measured)), [len(part.nodes) for part in measured]).tolist(),
            np.concatenate([part.since for part in measured]).tolist(),
            np.concatenate([part.increments for part in measured]).tolist(),
            self._tree.counts[at].tolist(),
            np.sqrt(estimates.variances[at]).tolist(),
            strict=True,
        )
        return [
            {
                **place,
                "depth": depth,
                "round": round_,
                "since": since,
                "increment": increment,
                "estimate": count,
                "standard_error": error,
                "variance": variance,
            }
            for place, depth, round_, since, increment, count, error in columns
        ]

    def state(self) -> State:
        """See `engines.core.contract.Engine.state`. O(leaves), plus measurements that are alive under a ttl."""
        return {
            **head(STATE_FORMAT, self.config.identity, self._next, self._started),
            **stored("tree", self._tree),
            "watch/average": self._average.copy(),
            "watch/doubts": self._doubts.copy(),
            **stored("windows", self._windows),
            **stored("pending", self._gathered),
            **self._budgets.arrays(),
        }

    def restore(self, state: State) -> None:
        step, started = numbers_of(state, STATE_FORMAT, self.config.identity, count=2)
        with reading():
            average, doubts = (np.array(state[f"watch/{name}"], np.float64) for name in ("average", "doubts"))
        if doubts.shape != self._doubts.shape:
            raise EngineInputError("the state's doubts are not one for the domain and one for each cell of the watch")
        tree, budgets = HeldTree.of(self.config.domain, state), self._budgets.restored(state)
        windows = Windows(**loaded(Windows, "windows", state))
        gathered = Gathered(**loaded(Gathered, "pending", state))
        self._next, self._started = step, flag_of(started)
        self._tree, self._average, self._doubts, self._windows = tree, average, doubts, windows
        self._gathered, self._budgets = gathered, budgets

    def guarantee(self) -> Guarantee:
        """See `engines.core.contract.Engine.guarantee`. Pure; the two mechanisms add up to epsilon exactly."""
        watch, counter = self.config.watch, self.config.counter
        return Guarantee(
            epsilon=self.config.epsilon,
            mechanisms=(
                watch.mechanism("watch over coarse cells (one count of a step's events each)", "watch"),
                counter.mechanism("held event counts of the leaves", "leaves"),
            ),
            note="An event is used at two steps: by the watch when it arrives, and in the one measurement of the leaf "
            "that holds it." + (" Expiry by ttl is post-processing." if self.config.ttl_steps is not None else ""),
        )
