"""The papers' baselines of spatial streams, and a grid: what `benchmarks.spatial` compares the engine's modes with.

| in the tables | function | events counted at a step | partition | cells that keep what they counted |
|---|---|---|---|---|
| offline (not private) | `privtree` | all alive | PrivTree, each step | none: each step starts anew |
| offline-increments | `increments` | new | PrivTree, each step | all that ever were |
| fixed-tree | `fixed_tree` | new | PrivTree, at the first step | the first step's |
| grid | `fixed_tree` | new | cells of one depth | those |

Guarantee: epsilon-DP for one event, inserted or deleted, over the whole stream; one that a `ttl` deletes pays twice.
    `privtree` is epsilon-DP for ONE step: an event that is alive for T steps pays T times, and nothing bounds the sum.
Source: [kumar2024], section 3.6.6, baselines 1 to 3 ([kumar2024b], section 5.3), and algorithm 1 for the increments:
    their releases add up. (The papers' baseline 2 scales each step's release to the exact number alive, which is
    private.) Half of epsilon draws a partition and half counts, as in the engine's mode `paper`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

import numpy as np

from engines.core.counters import Recipe
from engines.core.counters.simple import SimpleCounter
from engines.core.noise import NoiseSource, laplace_mechanism, scale_for
from engines.core.state import Expiry, merged
from engines.spatial.changes import Changes
from engines.spatial.domain.base import SpatialDomain, nodes_to
from engines.spatial.papers.tree import Partition, Tree, counted, descend, measured
from engines.spatial.points import Counts, Placement, node_depths
from engines.spatial.split import SplitRule
from schemas.arrays import IntArray
from schemas.blocks import Folded

Noise = Callable[[int], NoiseSource]
"""The noise of each step."""
Released = Iterator[tuple[int, Counts]]
"""Each step with a release, and the counts of its leaves."""


def privtree(alive: Folded, placement: Placement, epsilon: Fraction, noise: NoiseSource) -> Counts:
    """Baseline 1 at one step: PrivTree on all that is alive, whatever was released before.

    Args: alive: inserts and deletes of all steps. placement: of the synthetic points; has the domain.
    """
    codes, where = np.unique(alive.keys[:, 0] >> np.uint64(1), return_inverse=True)
    net = np.zeros(len(codes), np.int64)
    np.add.at(net, where, alive.counts * (1 - 2 * (alive.keys[:, 0] & np.uint64(1)).astype(np.int64)))
    # One event moves one cell by one at most: where more was deleted than had come it moves nothing.
    there = Folded((codes[net > 0] << np.uint64(1)).reshape(-1, 1), net[net > 0])
    cells, found = _drawn(there, placement, epsilon, noise)
    return _released(*cells.leaf_nodes(), found, placement)


def increments(
    batches: Iterable[Folded],
    placement: Placement,
    epsilon: Fraction,
    noise: Noise,
    *,
    initial_steps: int = 1,
    ttl: int | None = None,
) -> Released:
    """Baseline 2, added up: PrivTree on the events of each step alone, consistent on all cells that ever were."""
    tree, domain = Tree.root(), _domain(placement)
    for step, events in _gathered(batches, initial_steps, ttl):
        cells, found = _drawn(events, placement, epsilon, noise(step))
        tree = measured(tree, cells, found, step=step)
        all_cells, nothing = np.ones(len(tree.nodes), np.bool_), np.zeros(len(tree.nodes))
        tree, released, _ = counted(tree, all_cells, nothing, placement=placement, depth=domain.depth, resolution=1)
        yield step, released


def fixed_tree(
    batches: Iterable[Folded],
    placement: Placement,
    epsilon: Fraction,
    noise: Noise,
    *,
    initial_steps: int = 1,
    ttl: int | None = None,
    counter: Recipe | None = None,
    grid: int | None = None,
) -> Released:
    """Baseline 3: a tree of the first release, then a counter in each leaf.

    An event of the first release pays half of epsilon for the tree and half for its count; an event of a later step
    meets the counter of its leaf alone, at epsilon.

    Args:
        counter: of each leaf; absent: the simple one.
        grid: the leaves are the cells of this depth, at no cost, and all events meet counters.
    """
    domain = _domain(placement)
    counting = counter(epsilon) if counter else SimpleCounter(epsilon=epsilon)
    nodes = np.zeros(0, np.int64)
    if grid is not None:
        every = nodes_to(domain, grid)
        nodes = every[~np.isin(2 * every, every)]
    depths, sums, state = node_depths(nodes), np.zeros(len(nodes), np.int64), counting.initial(len(nodes))
    for step, events in _gathered(batches, initial_steps, ttl):
        if len(nodes):
            changes, below = Changes.of(events), domain.depth - depths
            starts = (nodes << below) - (1 << domain.depth)
            net = changes.net(starts, starts + (np.int64(1) << below))
            found, state = counting.step(net, state, noise(step).child("counts"))
            sums = sums + found
        else:
            cells, found = _drawn(events, placement, epsilon, noise(step))
            nodes, depths = cells.leaf_nodes()
            sums, state = found * counting.resolution, counting.initial(len(nodes))
        yield step, _released(nodes, depths, sums / counting.resolution, placement)


def _drawn(events: Folded, placement: Placement, epsilon: Fraction, noise: NoiseSource) -> tuple[Partition, IntArray]:
    """A partition that knows of no release before, and the noisy counts of its leaves: half of epsilon each."""
    cells = descend(
        Changes.of(events),
        Tree.root(),
        depth=_domain(placement).depth,
        threshold=0,
        rule=SplitRule(epsilon=epsilon / 2),
        placement=placement,
        noise=noise,
    )
    return cells, laplace_mechanism(cells.net, scale_for(1, epsilon / 2), noise.child("counts"))


def _released(nodes: IntArray, depths: IntArray, counts: np.ndarray, placement: Placement) -> Counts:
    """Non-negative integers: a count's floor, and one more in the share of all cells that its fraction is."""
    raw = np.maximum(counts, 0.0)
    whole = np.floor(raw)
    rounded = (whole + (placement.fractions(nodes) < raw - whole)).astype(np.int64)
    return Counts.of(nodes, depths, rounded, depth=_domain(placement).depth)


def _gathered(batches: Iterable[Folded], initial_steps: int, ttl: int | None) -> Iterator[tuple[int, Folded]]:
    """Each step with a release, and its events: what expires is deleted, and the first steps are one."""
    expiry, waiting = Expiry.empty(), Folded.empty(1)
    for step, events in enumerate(batches):
        waiting = merged(waiting, events)
        if ttl is not None:
            expired, expiry = expiry.scheduled(events, due=step + ttl).taken(step)
            waiting = merged(waiting, expired)
        if step >= initial_steps - 1:
            yield step, waiting
            waiting = Folded.empty(1)


def _domain(placement: Placement) -> SpatialDomain:
    assert placement.domain is not None
    return placement.domain
