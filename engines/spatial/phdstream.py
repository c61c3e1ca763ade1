"""PHDStream: the papers' synthetic stream of points in the plane, made private. Mode `paper`; `held` is the default.

Each step: a private partition of the domain from the last release and this step's events (`split`), noisy counts of the
events in its leaves (`counters.simple`), consistent counts of the whole tree (`consistency`), and the points that this
adds and removes (`points`).
Guarantee: epsilon-DP for one event, inserted or deleted, over the whole stream however long it lives: an event is in
    one release, and everything else there is computed from releases before.
Source: paper 000, chapter 3, corrected as algorithms.md section 3 says; docs/notes/0003.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from engines.contract import Batch, Release, State
from engines.counters import SimpleConfig, SimpleCounter
from engines.noise import IntArray, NoiseSource
from engines.spatial import consistency
from engines.spatial.budgets import Budgets
from engines.spatial.domain import BoxDomain
from engines.spatial.expiry import Expiry
from engines.spatial.gathering import check_batch
from engines.spatial.partition import Changes, Partition, descend
from engines.spatial.placement import Placement
from engines.spatial.points import Counts, difference, node_depths
from engines.spatial.split import SplitRule
from engines.spatial.tree import UNRELEASED, Levels, Tree
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from schemas.guarantee import Guarantee, Mechanism

STATE_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PHDStreamConfig:
    """The recipe. All of it is public.

    Args:
        name: of the stream; decides where synthetic points lie.
        domain: what events are.
        epsilon: of ONE event, over the whole stream.
        split: share of epsilon that decides the partition; the rest counts.
        initial_steps: steps 0 .. initial_steps - 1 are gathered into the release of step initial_steps - 1.
        threshold: events above which a cell is divided.
        ttl_steps: steps after which an insert is deleted by itself; the delete is measured like any other.
    Raises: EngineInputError.
    """

    name: str
    domain: BoxDomain
    epsilon: Fraction
    split: Fraction = Fraction(1, 2)
    initial_steps: int = 1
    threshold: int = 0
    ttl_steps: int | None = None

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or not 0 < self.split < 1:
            raise EngineInputError("epsilon must be positive and split between 0 and 1")
        if self.initial_steps < 1 or self.threshold < 0:
            raise EngineInputError("initial_steps must be at least 1 and threshold at least 0")
        if self.ttl_steps is not None and self.ttl_steps < 1:
            raise EngineInputError("ttl_steps must be at least 1")

    @property
    def rule(self) -> SplitRule:
        return SplitRule(epsilon=self.epsilon * self.split)

    @property
    def counter(self) -> SimpleCounter:
        return SimpleConfig().calibrate(self.epsilon - self.epsilon * self.split)

    @property
    def identity(self) -> np.ndarray:
        """`(32,)` uint8: states of configurations with another one mean something else."""
        text = repr(("spatial", "paper", self.name, self.domain.bounds, self.domain.depth))
        return np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)


class PHDStream:
    """See the module; implements `engines.contract.Engine`.

    >>> from engines.noise import seeded
    >>> box = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth=8)
    >>> engine = PHDStream(PHDStreamConfig(name="docs", domain=box, epsilon=Fraction(1)))
    >>> events = Folded(np.array([[12], [14]], np.uint64), np.array([500, 300]))
    >>> release = engine.step(Batch(0, events), seeded(1))
    >>> release.total == len(release.added), abs(release.total - 800) < 100
    (True, True)
    """

    def __init__(self, config: PHDStreamConfig) -> None:
        self.config = config
        self._placement = Placement(config.name)
        self._rule = config.rule
        self._counter = config.counter
        self._next = 0
        self._budgets = Budgets.of(partition=self._rule.epsilon, counts=config.epsilon - self._rule.epsilon)
        self._tree = Tree.root()
        self._released = Counts.nothing()
        self._pending = Folded.empty(1)
        self._expiry = Expiry.empty()

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        """See `engines.contract.Engine.step`. Draws no noise while gathering."""
        config = self.config
        check_batch(batch, step=self._next, depth=config.domain.depth)
        events = batch.events
        expiry = self._expiry
        if config.ttl_steps is not None:
            expiry = expiry.scheduled(events, due=batch.step + config.ttl_steps)
            expired, expiry = expiry.taken(batch.step)
            events = events.merge(expired)
        events = self._pending.merge(events)
        if batch.step < config.initial_steps - 1:
            self._pending, self._expiry, self._next = events, expiry, batch.step + 1
            return Release(step=batch.step, added=(), removed=(), measurements=(), total=0, gathered=True)
        # Refused here, no noise is drawn.
        budgets = self._budgets.charged(step=batch.step, partition=self._rule.epsilon, counts=self._counter.epsilon)
        partition = descend(
            Changes.of(events),
            self._tree,
            depth=config.domain.depth,
            threshold=config.threshold,
            rule=self._rule,
            placement=self._placement,
            noise=noise,
        )
        net = partition.net
        increments, _ = self._counter.step(net, self._counter.initial(len(net)), noise.child("counts"))
        # From here on nothing is private: the partition's nodes and the increments are released.
        tree, after = self._counted(self._measured(partition, increments, batch.step), batch.step)
        added, removed = difference(config.domain, self._placement, before=self._released, after=after)
        nodes, depths = partition.leaf_nodes()
        counts = tree.counts[np.searchsorted(tree.nodes, nodes)]
        self._tree, self._released, self._expiry = tree, after, expiry
        self._pending, self._next, self._budgets = Folded.empty(1), batch.step + 1, budgets
        return Release(
            step=batch.step,
            added=added,
            removed=removed,
            measurements=self._measurements(nodes, depths, increments, counts),
            total=after.total,
            notes={
                "leaves": len(nodes),
                "depth": int(depths.max()),
                "cells": len(after.nodes),
            },
        )

    def _measured(self, partition: Partition, increments: IntArray, step: int) -> Tree:
        """The tree with this release's measurements."""
        visited = np.concatenate(partition.nodes)
        tree = self._tree.with_nodes(visited)
        at = np.searchsorted(tree.nodes, visited)
        own, seen = tree.own.copy(), tree.seen.copy()
        own[at[partition.flat_leaves()]] += increments
        seen[at] = step
        return Tree(tree.nodes, own, tree.below, tree.counts, seen)

    def _counted(self, tree: Tree, step: int) -> tuple[Tree, Counts]:
        """Consistent counts on the partition of this step, the next one's prior, and the counts of its leaves."""
        live = np.flatnonzero(tree.seen == step)
        levels = Levels.of(tree.nodes[live])
        own = levels.cut(tree.own[live])
        below = consistency.gathered_from_below(own, levels.cut(tree.below[live]), levels.splits)
        above = consistency.shared_from_above(own, levels.splits)
        estimates = [a + n + d for a, n, d in zip(above, own, below, strict=True)]
        first = [self._placement.first_child(nodes[i]) for nodes, i in zip(levels.nodes, levels.splits, strict=True)]
        new_below, counts = tree.below.copy(), np.full_like(tree.counts, UNRELEASED)
        new_below[live] = np.concatenate(below)
        counts[live] = np.concatenate(consistency.project(estimates, levels.splits, first))
        leaves = np.concatenate([leaf + start for leaf, start in zip(levels.leaves, levels.starts, strict=True)])
        nodes = tree.nodes[live][leaves]
        # The papers release the leaves' own estimates: floor plus a Bernoulli of the fraction, fixed per cell.
        raw = np.maximum(np.concatenate(estimates)[leaves], 0.0)
        whole = np.floor(raw)
        released = (whole + (self._placement.fractions(nodes) < raw - whole)).astype(np.int64)
        after = Counts.of(nodes, node_depths(nodes), released, depth=self.config.domain.depth)
        return Tree(tree.nodes, tree.own, new_below, counts, tree.seen), after

    def _measurements(
        self, nodes: IntArray, depths: IntArray, increments: IntArray, counts: IntArray
    ) -> list[dict[str, Any]]:
        """One object for each leaf of this step, see `Release.measurements`."""
        variance = self._counter.variance(1)
        corners = np.stack(self.config.domain.corners(nodes, depths), axis=1).tolist()
        columns = zip(corners, depths.tolist(), increments.tolist(), counts.tolist(), strict=True)
        return [
            {"cell": cell, "depth": depth, "increment": increment, "variance": variance, "estimate": count}
            for cell, depth, increment, count in columns
        ]

    def state(self) -> State:
        """See `engines.contract.Engine.state`. O(leaves), plus what is gathered or waits for its ttl."""
        return {
            "header": np.array([STATE_FORMAT, self._next], np.int64),
            "identity": self.config.identity.copy(),
            **self._tree.arrays(),
            "released/nodes": self._released.nodes.copy(),
            "released/counts": self._released.counts.copy(),
            "pending/keys": self._pending.keys.copy(),
            "pending/counts": self._pending.counts.copy(),
            **self._expiry.arrays(),
            **self._budgets.arrays(),
        }

    def restore(self, state: State) -> None:
        """See `engines.contract.Engine.restore`."""
        try:
            header, identity = state["header"], state["identity"]
            nodes = np.array(state["released/nodes"], np.int64)
            released = Counts(nodes, node_depths(nodes), np.array(state["released/counts"], np.int64))
            keys, counts = np.array(state["pending/keys"], np.uint64), np.array(state["pending/counts"], np.int64)
        except KeyError as error:
            raise EngineInputError(f"state lacks {error}") from None
        if header.shape != (2,) or int(header[0]) != STATE_FORMAT:
            raise EngineInputError("state is of another version")
        if not np.array_equal(identity, self.config.identity):
            raise EngineInputError("state is of another stream, mode or domain")
        tree, expiry, budgets = Tree.of(state), Expiry.of(state), self._budgets.restored(state)
        self._next = int(header[1])
        self._tree, self._released, self._expiry, self._budgets = tree, released, expiry, budgets
        self._pending = Folded(keys.reshape(-1, 1), counts)

    def guarantee(self) -> Guarantee:
        """See `engines.contract.Engine.guarantee`. Pure; the two mechanisms add up to epsilon exactly."""
        return Guarantee(
            epsilon=self.config.epsilon,
            mechanisms=(
                Mechanism(
                    name="partition of the domain (PrivTree, all levels of a step together)",
                    distribution="Laplace (one bit)",
                    l1_sensitivity=1,
                    scale=self._rule.scale,
                    epsilon=self._rule.epsilon,
                ),
                Mechanism(
                    name="event counts of the leaves",
                    distribution="discrete Laplace",
                    l1_sensitivity=self._counter.l1_sensitivity,
                    scale=self._counter.scale,
                    epsilon=self._counter.epsilon,
                ),
            ),
            note="One event is measured in one step. A ttl insert is two events: itself and its expiry."
            if self.config.ttl_steps is not None
            else "One event is measured in one step.",
        )
