"""PHDStream, the papers' synthetic stream of points in the plane, made private: mode `paper`.

Each step: a partition of the domain (`split`), noisy counts of the events in its leaves (`node_counters`), consistent
counts of the whole tree (`tree_counts`), and the points that this adds and removes (`points`).
Guarantee: epsilon-DP for one event, inserted or deleted, over the whole stream however long it lives: an event is in
    the split bits and in one leaf's counter of its own step, and everything else there is computed from releases
    before.
Source: [kumar2024], chapter 3, corrected as docs/guarantee.md says in sections 4 and 9; docs/notes/0003-deletes-add.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engines.core.accounting.budgets import Budgets
from engines.core.contract import Batch, Release, State
from engines.core.expiry import Expiry
from engines.core.gathering import check_batch, merged
from engines.core.noise import NoiseSource
from engines.core.state import flag_of, head, numbers_of, reading
from engines.spatial import partition
from engines.spatial.papers import guarantee as phdstream_guarantee
from engines.spatial.papers.config import PHDStreamConfig
from engines.spatial.papers.node_counters import NodeCounters
from engines.spatial.papers.tree_counts import Counted, counted, measured
from engines.spatial.partition import Changes
from engines.spatial.placement import Placement
from engines.spatial.points import Counts, difference, node_depths
from engines.spatial.tree import Tree
from schemas.arrays import IntArray
from schemas.blocks import Folded
from schemas.guarantee import Guarantee

STATE_FORMAT = 2


class PHDStream:
    """See the module; implements `engines.core.contract.Engine`.

    >>> from fractions import Fraction
    >>> from engines.core.noise import seeded
    >>> from engines.spatial.domain import BoxDomain
    >>> box = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth=8)
    >>> engine = PHDStream(PHDStreamConfig(name="docs", domain=box, epsilon=Fraction(1)))
    >>> events = Folded(np.array([[12], [14]], np.uint64), np.array([500, 300]))
    >>> release = engine.step(Batch(0, events), seeded(1))
    >>> release.total == len(release.added), abs(release.total - 800) < 100
    (True, True)
    """

    def __init__(self, config: PHDStreamConfig) -> None:
        self.config = config
        self._placement = Placement(config.name, config.domain)
        self._rule = config.rule
        self._next = 0
        self._started = False
        self._tree = Tree.root()
        self._counters = NodeCounters.none(config.leaf_counter)
        self._budgets = Budgets.of(self.guarantee())
        self._released = Counts.nothing()
        self._pending = Folded.empty(1)
        self._expiry = Expiry.empty()

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        """See `engines.core.contract.Engine.step`. Draws no noise while gathering."""
        config = self.config
        check_batch(batch, step=self._next, depth=config.domain.depth)
        events = batch.events
        expiry = self._expiry
        if config.ttl_steps is not None:
            expiry = expiry.scheduled(events, due=batch.step + config.ttl_steps)
            expired, expiry = expiry.taken(batch.step)
            events = merged(events, expired)
        events = merged(self._pending, events)
        if not self._started and batch.step < config.initial_steps - 1:
            self._pending, self._expiry, self._next = events, expiry, batch.step + 1
            return Release(step=batch.step, added=(), removed=(), measurements=(), total=0, gathered=True)
        # Raises BudgetError if an event of this step would cost more than it has; then no noise is drawn.
        budgets = self._budgets.charged(self.guarantee(), "event", step=batch.step)
        cells = partition.descend(
            Changes.of(events),
            self._tree,
            depth=config.domain.depth,
            threshold=config.threshold,
            rule=self._rule,
            placement=self._placement,
            noise=noise,
        )
        nodes, depths = cells.leaf_nodes()
        increments, counters = self._counters.count(nodes, cells.net, noise.child("counts"))
        # From here on nothing is private: the partition's cells and the increments are released.
        tree = measured(self._tree, cells, increments, step=batch.step)
        result = self._counted(tree, counters, batch.step)
        added, removed = difference(config.domain, self._placement, before=self._released, after=result.released)
        measurements = self._measurements(nodes, depths, increments, result)
        self._tree, self._released, self._counters = result.tree, result.released, counters
        self._pending, self._expiry = Folded.empty(1), expiry
        first, self._started = not self._started, True
        self._next, self._budgets = batch.step + 1, budgets
        return Release(
            step=batch.step,
            added=added,
            removed=removed,
            measurements=measurements,
            total=result.released.total,
            notes={
                "leaves": len(nodes),
                "depth": int(depths.max()),
                "cells": len(result.released.nodes),
            },
            spans=[(-1, 1.0)] if first else [],
        )

    def _counted(self, tree: Tree, counters: NodeCounters, step: int) -> Counted:
        """Consistent counts on this step's cells."""
        return counted(
            tree,
            tree.seen == step,
            counters.variances(tree.nodes),
            placement=self._placement,
            depth=self.config.domain.depth,
            resolution=counters.counter.resolution,
        )

    def _measurements(
        self, nodes: IntArray, depths: IntArray, increments: IntArray, result: Counted
    ) -> list[dict[str, Any]]:
        """One object for each leaf of this step's partition, see `Release.measurements`.

        `increment` is what is new in the noisy count of the cell's counter (its first noisy count, the first time),
        `estimate` the cell's consistent count, `standard_error` that of the noise in it before it was made consistent.
        With the simple counter all noise is independent, and `variance` is that of one increment.
        """
        variance = self._counters.counter.variance(1)
        resolution = self._counters.counter.resolution
        at = np.searchsorted(result.tree.nodes, nodes)
        columns = zip(
            depths.tolist(),
            (increments / resolution if resolution > 1 else increments).tolist(),
            result.tree.counts[at].tolist(),
            np.sqrt(result.variances[at]).tolist(),
            strict=True,
        )
        places = self.config.domain.described(nodes, depths)
        return [
            {
                **place,
                "depth": depth,
                "increment": increment,
                "estimate": estimate,
                "standard_error": error,
                "variance": variance,
            }
            for place, (depth, increment, estimate, error) in zip(places, columns, strict=True)
        ]

    def state(self) -> State:
        """See `engines.core.contract.Engine.state`. O(cells), plus events gathered or yet to expire."""
        return {
            **head(STATE_FORMAT, self.config.identity, self._next, self._started),
            **self._tree.arrays(),
            **self._counters.arrays(),
            "released/nodes": self._released.nodes.copy(),
            "released/counts": self._released.counts.copy(),
            "pending/keys": self._pending.keys.copy(),
            "pending/counts": self._pending.counts.copy(),
            **self._expiry.arrays(),
            **self._budgets.arrays(),
        }

    def restore(self, state: State) -> None:
        """See `engines.core.contract.Engine.restore`."""
        step, started = numbers_of(state, STATE_FORMAT, self.config.identity, count=2)
        with reading():
            nodes = np.array(state["released/nodes"], np.int64)
            released = Counts(nodes, node_depths(nodes), np.array(state["released/counts"], np.int64))
            keys, counts = np.array(state["pending/keys"], np.uint64), np.array(state["pending/counts"], np.int64)
        tree, expiry, budgets = Tree.of(state), Expiry.of(state), self._budgets.restored(state)
        counters = self._counters.restored(state)
        self._next, self._started = step, flag_of(started)
        self._tree, self._released, self._expiry, self._budgets = tree, released, expiry, budgets
        self._counters = counters
        self._pending = Folded(keys.reshape(-1, 1), counts)

    def guarantee(self) -> Guarantee:
        """See `engines.core.contract.Engine.guarantee`. Pure; `papers.guarantee` has the split."""
        return phdstream_guarantee.of(self.config, self._rule, self._counters.counter)
