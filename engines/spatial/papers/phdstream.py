"""PHDStream, the papers' synthetic stream of points in the plane, made private: mode `paper`.

Each step: a partition of the domain (`split`), noisy counts of the events in its leaves (`NodeCounters`), consistent
counts of the whole tree (`papers.tree`), and the points that this adds and removes (`points`).
Guarantee: epsilon-DP for one event, inserted or deleted, over the whole stream however long it lives: an event is in
    the split bits and in one leaf's counter of its own step, and everything else there is computed from releases
    before. The leaves' counters cost what one counter costs, however many cells there are: an event is counted at its
    own step, by the one leaf that holds it (selective counting: [kumar2024], algorithm 11, theorem 3.5.1;
    `engines.core.counters.selective` has the two conditions). Which leaves there are depends on releases, so the
    counter must be private under adaptive continual release; one that is not is refused.
Source: [kumar2024], chapter 3, corrected as docs/guarantee.md says in sections 4 and 9; docs/notes/0003-deletes-add.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from engines.core.accounting.budgets import Budgets
from engines.core.contract import Batch, Release, State
from engines.core.counters import Counter, CounterState, Recipe, concatenate, select
from engines.core.counters.by_name import COUNTERS
from engines.core.noise import NoiseSource
from engines.core.state import (
    Expiry,
    check_batch,
    flag_of,
    head,
    identity_of,
    loaded,
    merged,
    numbers_of,
    reading,
    stored,
    with_expired,
)
from engines.spatial.changes import Changes
from engines.spatial.domain.base import SpatialDomain
from engines.spatial.papers.tree import Tree, counted, descend, measured
from engines.spatial.points import Counts, Placement, change, node_depths
from engines.spatial.split import SplitRule
from schemas.arrays import FloatArray, IntArray, below, under
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from schemas.guarantee import Guarantee, Mechanism

_STATES, _NODES = "counters/state/", "counters/of"


@dataclass(frozen=True, slots=True, eq=False)
class NodeCounters:
    """Counters by cell. A value: `count` returns the next one.

    Attributes:
        counter: the same for all. nodes: `(cells,)` int64 heap numbers of cells that were ever a leaf, ascending.
        state: their states, PRIVATE: they may hold noise that is still to be used.
    """

    counter: Counter
    nodes: IntArray
    state: CounterState

    @staticmethod
    def none(counter: Counter) -> NodeCounters:
        return NodeCounters(counter, np.zeros(0, np.int64), counter.initial(0))

    def count(self, leaves: IntArray, values: IntArray, noise: NoiseSource) -> tuple[IntArray, NodeCounters]:
        """Activate the counters of these leaves.

        Args:
            leaves: heap numbers, ascending. values: `(leaves,)` net events of this step alone; private.
        Returns: `(leaves,)` noisy increments, in events / `counter.resolution`; and the next counters.
        Raises: EngineInputError if one was activated as often as its horizon allows; nothing is drawn then.
        """
        if np.array_equal(leaves, self.nodes):
            increments, state = self.counter.step(values, self.state, noise)
            return increments, NodeCounters(self.counter, leaves, state)
        known = np.isin(leaves, self.nodes, assume_unique=True)
        rest = ~np.isin(self.nodes, leaves, assume_unique=True)
        old, new = leaves[known], leaves[~known]
        states = concatenate([select(self.state, np.searchsorted(self.nodes, old)), self.counter.initial(len(new))])
        order = np.argsort(np.concatenate([old, new]))
        increments, stepped = self.counter.step(values, select(states, order), noise)
        nodes = np.concatenate([self.nodes[rest], leaves])
        order = np.argsort(nodes)
        return increments, NodeCounters(
            self.counter, nodes[order], select(concatenate([select(self.state, rest), stepped]), order)
        )

    def variances(self, nodes: IntArray) -> FloatArray:
        """Return the variances of the noise in what these cells' counters released, `(nodes,)`; 0 for none."""
        result = np.zeros(len(nodes))
        if len(self.nodes):
            at = np.minimum(np.searchsorted(self.nodes, nodes), len(self.nodes) - 1)
            activations = np.where(self.nodes[at] == nodes, self.counter.activations(self.state)[at], 0)
            times, which = np.unique(activations, return_inverse=True)
            result = np.array([self.counter.variance(t) for t in times.tolist()])[which]
        return result

    def arrays(self) -> State:
        return {_NODES: self.nodes.copy()} | under(_STATES, {name: a.copy() for name, a in self.state.items()})

    def restored(self, arrays: Mapping[str, np.ndarray]) -> NodeCounters:
        """Return stored counters. Raises: EngineInputError if arrays are missing or are of another counter or cost."""
        state = {name: array.copy() for name, array in below(_STATES, arrays).items()}
        with reading():
            nodes = np.array(arrays[_NODES], np.int64)
        if self.counter.activations(state).shape != nodes.shape:
            raise EngineInputError("the state's counters do not fit their cells")
        return NodeCounters(self.counter, nodes, state)


SIMPLE: Recipe = partial(COUNTERS["simple"], 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PHDStreamConfig:
    """The recipe of PHDStream. All of it is public.

    Args:
        name: of the stream; decides where synthetic points lie.
        domain: what events are.
        epsilon: of ONE event, over the whole stream.
        split: share of epsilon that decides the partition; the rest counts.
        initial_steps: steps 0 .. initial_steps - 1 are gathered into the release of step initial_steps - 1.
        threshold: events above which a cell is divided.
        ttl_steps: steps after which an insert is deleted by itself; the delete is measured like any other.
        counter: of each leaf, over the steps in which it is one.
        weighted: synthetic records are weighted ones of cells, in place of points.
    Raises: EngineInputError.
    """

    name: str
    domain: SpatialDomain
    epsilon: Fraction
    split: Fraction = Fraction(1, 2)
    initial_steps: int = 1
    threshold: int = 0
    ttl_steps: int | None = None
    counter: Recipe = SIMPLE
    weighted: bool = False

    def __post_init__(self) -> None:
        """Refuse a counter that a pure guarantee cannot rest on, as what was released decides when it is activated."""
        if self.leaf_counter.measure != "epsilon":
            raise EngineInputError("the counter adds Gaussian noise, which is never epsilon-DP: choose one of pure DP")
        if not self.leaf_counter.adaptive:
            raise EngineInputError(
                "the counter is not private where releases decide when it is activated: choose another"
            )

    @property
    def rule(self) -> SplitRule:
        """Rule by which PrivTree divides cells."""
        return SplitRule(epsilon=self.epsilon * self.split)

    @property
    def leaf_counter(self) -> Counter:
        """Counter of each leaf."""
        return self.counter(self.epsilon - self.rule.epsilon)

    @property
    def identity(self) -> np.ndarray:
        return identity_of(repr(("spatial", "paper", self.name, *self.domain.identity, "lambda", 2)))


STATE_FORMAT = 2


class PHDStream:
    """See the module; implements `engines.core.contract.Engine`.

    >>> from fractions import Fraction
    >>> from engines.core.noise import seeded
    >>> from engines.spatial.domain.box import BoxDomain
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
        self._budgets = Budgets.from_guarantee(self.guarantee())
        self._released = Counts.nothing()
        self._pending = Folded.empty(1)
        self._expiry = Expiry.empty()

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        """See `engines.core.contract.Engine.step`. Draws no noise while gathering."""
        config = self.config
        check_batch(batch, step=self._next, depth=config.domain.depth)
        events, expiry = with_expired(batch.events, self._expiry, step=batch.step, ttl=config.ttl_steps)
        events = merged(self._pending, events)
        if not self._started and batch.step < config.initial_steps - 1:
            self._pending, self._expiry, self._next = events, expiry, batch.step + 1
            return Release(step=batch.step, added=(), removed=(), measurements=(), total=0, gathered=True)
        # Raises BudgetError if an event of this step would cost more than it has; then no noise is drawn.
        budgets = self._budgets.charged(self.guarantee(), "event", step=batch.step)
        cells = descend(
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
        tree, released, variances = counted(
            tree,
            tree.seen == batch.step,
            counters.variances(tree.nodes),
            placement=self._placement,
            depth=config.domain.depth,
            resolution=counters.counter.resolution,
        )
        changed = change(
            config.domain, self._placement, before=self._released, after=released, weighted=config.weighted
        )
        at = np.searchsorted(tree.nodes, nodes)
        measurements = self._measurements(nodes, depths, increments, tree.counts[at], variances[at])
        self._tree, self._released, self._counters = tree, released, counters
        self._pending, self._expiry = Folded.empty(1), expiry
        first, self._started = not self._started, True
        self._next, self._budgets = batch.step + 1, budgets
        return Release(
            step=batch.step,
            added=changed.added,
            removed=changed.removed,
            measurements=measurements,
            total=changed.total,
            notes={
                "leaves": len(nodes),
                "depth": int(depths.max()),
                "cells": len(released.nodes),
            },
            spans=[(-1, 1.0)] if first else [],
            weight=changed.weight,
        )

    def _measurements(
        self, nodes: IntArray, depths: IntArray, increments: IntArray, estimates: IntArray, variances: FloatArray
    ) -> list[dict[str, Any]]:
        """Return one object for each leaf of this step's partition, see `Release.measurements`.

        `increment` is what is new in the noisy count of the cell's counter (its first noisy count, the first time),
        `estimate` the cell's consistent count, `standard_error` that of the noise in it before it was made consistent.
        With the simple counter all noise is independent, and `variance` is that of one increment.
        """
        variance = self._counters.counter.variance(1)
        resolution = self._counters.counter.resolution
        columns = zip(
            depths.tolist(),
            (increments / resolution if resolution > 1 else increments).tolist(),
            estimates.tolist(),
            np.sqrt(variances).tolist(),
            strict=True,
        )
        names = ("depth", "increment", "estimate", "standard_error")
        places = self.config.domain.described(nodes, depths)
        return [
            place | dict(zip(names, row, strict=True)) | {"variance": variance}
            for place, row in zip(places, columns, strict=True)
        ]

    def state(self) -> State:
        """See `engines.core.contract.Engine.state`. O(cells), plus events gathered or yet to expire."""
        return {
            **head(STATE_FORMAT, self.config.identity, self._next, self._started),
            **stored("tree", self._tree),
            **self._counters.arrays(),
            "released/nodes": self._released.nodes.copy(),
            "released/counts": self._released.counts.copy(),
            **stored("pending", self._pending),
            **self._expiry.arrays(),
            **self._budgets.arrays(),
        }

    def restore(self, state: State) -> None:
        step, started = numbers_of(state, STATE_FORMAT, self.config.identity, count=2)
        with reading():
            nodes = np.array(state["released/nodes"], np.int64)
            released = Counts(nodes, node_depths(nodes), np.array(state["released/counts"], np.int64))
        pending = Folded(**loaded(Folded, "pending", state))
        tree, expiry, budgets = Tree.of(state), Expiry.from_arrays(state), self._budgets.restored(state)
        counters = self._counters.restored(state)
        self._next, self._started = step, flag_of(started)
        self._tree, self._released, self._expiry, self._budgets = tree, released, expiry, budgets
        self._counters, self._pending = counters, pending

    def guarantee(self) -> Guarantee:
        """See `engines.core.contract.Engine.guarantee`. Pure; what one event meets adds up to epsilon exactly."""
        rule, counter = self._rule, self._counters.counter
        scale = max(counter.node_noise(1))
        return Guarantee(
            epsilon=self.config.epsilon,
            mechanisms=(
                rule.mechanism("partition of the domain (PrivTree, all levels of a step together)", "event"),
                # A counter's nodes as they are in its first release: how many one event is in, and the noise of each.
                Mechanism(
                    name="event counts of the leaves",
                    distribution="discrete Laplace",
                    l1_sensitivity=max(1, ceil(counter.cost * scale)),
                    scale=scale,
                    epsilon=counter.cost,
                    account="event",
                    # The scale is rounded up, so this may be a little above what one event is in.
                    shift=counter.cost * scale,
                ),
            ),
            note="One event is measured in one step."
            + ("" if self.config.ttl_steps is None else " A ttl insert is two events: itself and its expiry."),
        )
