"""The first release of held leaf counters: a partition that fits what was gathered, and one good count of each part.

A sixteenth of the events says how many there are, and how deep to begin. Three further parts, each as large as all
before it, are counted only where a cell may yet be divided; everywhere else events wait for the last round, which
counts every leaf. So most leaves are counted once, with most of the events, and their share of what was counted before
in larger cells is learnt from that.
Guarantee: each event is in one group (`held.groups`), held in one leaf, and counted once (`held.measure`). Which leaves
    are counted or divided follows from released values and public constants.
Source: ours; docs/notes/0030-held-leaf-counters.md.
"""

from __future__ import annotations

import numpy as np

from engines.spatial.held.groups import grouped
from engines.spatial.held.measure import SPLIT, divide, hold
from engines.spatial.held.step import StepWork
from schemas.arrays import BoolArray
from schemas.blocks import Folded

ROUNDS = (1, 1, 2, 4, 8)
"""Sizes of the groups, in sixteenths of the events."""
FILL = 0.6
"""Standard deviations of a measurement that cells of the first depth hold on average, at least."""
EARLY_RATE = 0.05
"""Standard deviation of the first belief in a leaf's rate, as a share of its count, and of 5 events at least."""


def first_release(work: StepWork, events: Folded, *, after: int) -> None:
    """Release what was gathered; `work.tree` is the whole domain as one cell.

    Args:
        after: all events came after this step.
    """
    tree, now, most, unit = work.tree, work.now, work.leaves(8), work.rules.counter.variance
    for index, changes in enumerate(grouped(events, sizes=ROUNDS, placement=work.rules.placement)):
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
            divide(tree, at, work.estimates(), unit=unit, now=time, max_leaves=most, rest=most)
    leaves = tree.leaves
    # From here on a rate is per step, and nothing is known of it but that it is a small share of what is there.
    tree.rate[leaves] = 0.0
    early = EARLY_RATE * np.maximum(work.estimates().values[leaves], 5.0)
    tree.rate_variance[leaves] = early * early


def _begin(work: StepWork) -> None:
    """Divide the domain evenly into cells that hold enough to be looked at, but no smaller than those of the watch."""
    tree, rules = work.tree, work.rules
    seen = max(int(tree.measured[0]), 0)
    tree.rate[0], tree.rate_variance[0] = seen / ROUNDS[0], (seen / 2 + rules.counter.variance) / ROUNDS[0] ** 2
    enough, total = FILL * np.sqrt(rules.counter.variance), work.estimates().values[0]
    for _ in range(rules.watch.depth):
        at = np.sort(tree.leaves)
        if total < 2 * enough * len(at):
            return
        tree.split(at[tree.room(at) > 0], np.ones(int((tree.room(at) > 0).sum()), np.int64), now=int(tree.last[0]))


def _of_use(work: StepWork) -> BoolArray:
    """`(leaves,)` in the order of the domain: whether one may be divided once it is counted; by released values."""
    tree, at = work.tree, work.tree.leaves
    deviation = np.sqrt(work.rules.counter.variance * (tree.parts[at] + 1))
    hopeful: BoolArray = work.estimates().values[at] > SPLIT * deviation
    return hopeful
