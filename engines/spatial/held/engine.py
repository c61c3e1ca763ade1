"""Held leaf counters: a synthetic stream of points, under pure differential privacy for ever.

No budget is spent on finding a partition: it is refined and merged from released counts alone. A leaf's events are
HELD, as a private integer, until the public forecast of the leaf says that a measurement is worth its noise; then they
are counted, once. A watch over coarse cells, with a twentieth of the budget, finds bursts and has them released at
once.
Guarantee: epsilon-DP for one event, inserted or deleted, over the whole stream however long it lives: an event moves
    one count of the watch by one, when it arrives, and one leaf measurement by one, then or later.
Source: ours; proof in docs/notes/0030-held-leaf-counters.md. An insert's ttl is post-processing (`held.retire`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engines.core.accounting.budgets import Budgets
from engines.core.contract import Batch, Release, State
from engines.core.gathering import Gathered, check_batch
from engines.core.noise import NoiseSource
from engines.core.state import flag_of, head, numbers_of, reading
from engines.spatial.held.config import HeldConfig
from engines.spatial.held.estimate import Estimates, project
from engines.spatial.held.first import first_release
from engines.spatial.held.measure import MeasuredLeaves, spans
from engines.spatial.held.retire import Windows
from engines.spatial.held.step import StepWork
from engines.spatial.held.tree import HeldTree
from engines.spatial.points import difference
from schemas.arrays import FloatArray
from schemas.guarantee import Guarantee, Mechanism

STATE_FORMAT = 1


class HeldLeaves:
    """See the module; implements `engines.core.contract.Engine`.

    >>> from fractions import Fraction
    >>> from engines.core.noise import seeded
    >>> from engines.spatial.domain import BoxDomain
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
        self._rules = config.rules
        self._next = 0
        self._started = False
        # An event is once in the watch, at its step, and once in a leaf measurement, then or later.
        self._budgets = Budgets.of(self.guarantee())
        self._tree = HeldTree.full(config.domain, 0)
        self._average: FloatArray = np.zeros(0)
        self._windows = Windows.none()
        self._gathered = Gathered.nothing()

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
        return StepWork(self._rules, now, self._tree.copy(), self._average, self._windows, noise)

    def _released(self, work: StepWork, budgets: Budgets, *, hot: int, beyond: float) -> Release:
        tree, domain = work.tree, self.config.domain
        estimates = work.estimates().with_more(beyond)
        tree.counts = project(tree, estimates, placement=self._rules.placement)
        after = tree.released()
        added, removed = difference(domain, self._rules.placement, before=self._tree.released(), after=after)
        self._tree, self._average, self._windows = tree, work.average, work.windows
        self._gathered, self._started, self._next = Gathered.nothing(), True, work.now + 1
        self._budgets = budgets
        return Release(
            step=work.now,
            added=added,
            removed=removed,
            measurements=self._measurements(work.measured, estimates),
            total=after.total,
            notes={
                "leaves": len(tree.leaves),
                "depth": int(tree.depths[-1]),
                "measured": sum(len(measured.nodes) for measured in work.measured),
                "hot": hot,
            },
            spans=spans(work.measured, now=work.now),
        )

    def _measurements(self, measured: Sequence[MeasuredLeaves], estimates: Estimates) -> list[dict[str, Any]]:
        """One object for each measurement of this step, see `Release.measurements`.

        `increment` is the noisy number of inserts minus deletes of steps `since` + 1 to this one, `variance` that of
        its noise; the first release and hot cells are looked at in several rounds. `estimate` is the cell's released
        count, `standard_error` what measurements leave open of it.
        """
        nodes = np.concatenate([part.nodes for part in measured])
        at = np.searchsorted(self._tree.nodes, nodes)
        depths = self._tree.depths[at]
        columns = zip(
            depths.tolist(),
            np.repeat(np.arange(len(measured)), [len(part.nodes) for part in measured]).tolist(),
            np.concatenate([part.since for part in measured]).tolist(),
            np.concatenate([part.increments for part in measured]).tolist(),
            self._tree.counts[at].tolist(),
            np.sqrt(estimates.variances[at]).tolist(),
            strict=True,
        )
        names = ("depth", "round", "since", "increment", "estimate", "standard_error")
        places = self.config.domain.described(nodes, depths)
        variance = {"variance": self._rules.counter.variance}
        return [
            place | dict(zip(names, row, strict=True)) | variance for place, row in zip(places, columns, strict=True)
        ]

    def state(self) -> State:
        """See `engines.core.contract.Engine.state`. O(leaves), plus measurements that are alive under a ttl."""
        return {
            **head(STATE_FORMAT, self.config.identity, self._next, self._started),
            **self._tree.arrays(),
            "watch/average": self._average.copy(),
            **self._windows.arrays(),
            **self._gathered.arrays(),
            **self._budgets.arrays(),
        }

    def restore(self, state: State) -> None:
        """See `engines.core.contract.Engine.restore`."""
        step, started = numbers_of(state, STATE_FORMAT, self.config.identity, count=2)
        with reading():
            average = np.array(state["watch/average"], np.float64)
        tree = HeldTree.of(self.config.domain, state)
        windows, gathered, budgets = Windows.of(state), Gathered.of(state), self._budgets.restored(state)
        self._next, self._started = step, flag_of(started)
        self._tree, self._average, self._windows, self._gathered = tree, average, windows, gathered
        self._budgets = budgets

    def guarantee(self) -> Guarantee:
        """See `engines.core.contract.Engine.guarantee`. Pure; the two mechanisms add up to epsilon exactly."""
        watch, counter = self._rules.watch, self._rules.counter
        return Guarantee(
            epsilon=self.config.epsilon,
            mechanisms=(
                Mechanism(
                    name="watch over coarse cells (one count of a step's events each)",
                    distribution="discrete Laplace",
                    l1_sensitivity=1,
                    scale=watch.scale,
                    epsilon=watch.epsilon,
                    account="watch",
                ),
                Mechanism(
                    name="held event counts of the leaves",
                    distribution="discrete Laplace",
                    l1_sensitivity=1,
                    scale=counter.scale,
                    epsilon=counter.epsilon,
                    account="leaves",
                ),
            ),
            note="An event is used at two steps: by the watch when it arrives, and in the one measurement of the leaf "
            "that holds it." + (" Expiry by ttl is post-processing." if self.config.ttl_steps is not None else ""),
        )
