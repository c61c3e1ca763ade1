"""Exact privacy loss of PrivTree's decisions along one root-to-leaf path, the only ones that an event can change.

The outcomes there are "split at levels 0 .. k - 1, stop at k", or split at every level. The loss of an outcome is the
logarithm of the ratio of its probabilities under neighbouring scores, computed with logarithms throughout: exact to
float64 rounding in the tails too. The search is over what hangs off the path at each level (what the last release held
there, inserts, deletes), because that is what an adversary controls; it bounds the true loss from below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from engines.auditor.exact import log_probabilities
from engines.noise import NoiseSource, laplace_exceeds
from engines.spatial.partition import Changes
from engines.spatial.split import UNIT, SplitRule
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.blocks import Folded

LEVELS = 20


@dataclass(frozen=True, slots=True, eq=False)
class TreePaths:
    """Subtrees that hang off a path, `(paths, levels)` int64 each; the last column is the path's own leaf.

    Attributes:
        held: events there in the last release, as measured (a sum of noisy counts may be negative).
        inserted, deleted: events of this step.
    """

    held: IntArray
    inserted: IntArray
    deleted: IntArray

    def with_event(self, *, deleted: bool) -> TreePaths:
        """The neighbour: one event more in the path's leaf."""
        inserts, deletes = self.inserted.copy(), self.deleted.copy()
        (deletes if deleted else inserts)[:, -1] += 1
        return TreePaths(self.held, inserts, deletes)


class PathScores:
    """Scores of the nodes on a path as the engine makes them. Cheats override one of the two parts."""

    def prior(self, held: IntArray) -> IntArray:
        """What the last release says of each node: non-negative and consistent, so no child is above its parent."""
        return _from_below(np.maximum(held, 0))

    def moves(self, paths: TreePaths) -> IntArray:
        """What `Changes` counts in each node; by the engine's own code, on keys of a deep path to the right."""
        levels = paths.held.shape[1]
        # A subtree that hangs off level l of the path of all ones is the left child there.
        cells = [((1 << (levels - 1)) - 1) ^ (1 << (levels - 2 - level)) for level in range(levels - 1)]
        cells.append((1 << (levels - 1)) - 1)
        keys = np.array([cell << 1 | operation for cell in cells for operation in (0, 1)], np.uint64).reshape(-1, 1)
        first = np.array([(1 << (levels - 1)) - (1 << (levels - 1 - level)) for level in range(levels)])
        moves = np.zeros_like(paths.held)
        for row, (inserted, deleted) in enumerate(zip(paths.inserted, paths.deleted, strict=True)):
            counts = np.stack([inserted, deleted], axis=1).reshape(-1)
            there = counts > 0
            changes = Changes.of(Folded.of(keys[there], counts[there]))
            moves[row] = changes.moves[-1] - changes.moves[np.searchsorted(changes.codes, first)]
        return moves

    def scores(self, paths: TreePaths) -> IntArray:
        """`(paths, levels)`, root first."""
        return self.prior(paths.held) + self.moves(paths)


def _from_below(values: IntArray) -> IntArray:
    sums: IntArray = np.cumsum(values[:, ::-1], axis=1)[:, ::-1]
    return sums


def margins(rule: SplitRule, scores: IntArray, *, threshold: int = 0) -> IntArray:
    """What the noise must exceed at each node of each path, by the rule's own code, in `UNIT`s."""
    columns = [rule.margins(scores[:, depth], depth=depth, threshold=threshold) for depth in range(scores.shape[1])]
    return np.stack(columns, axis=1)


def path_losses(without: FloatArray, with_event: FloatArray) -> FloatArray:
    """Largest absolute loss of any outcome, `(paths,)`, from margins `(paths, levels)` in scales of the noise."""
    split_0, stop_0 = log_probabilities(without)
    split_1, stop_1 = log_probabilities(with_event)
    splits = np.cumsum(split_1 - split_0, axis=1)
    stops = stop_1 - stop_0
    stops[:, 1:] += splits[:, :-1]
    largest: FloatArray = np.maximum(np.abs(stops).max(axis=1), np.abs(splits[:, -1]))
    return largest


def worst_path(rule: SplitRule, scores: PathScores) -> tuple[float, TreePaths, bool]:
    """The largest loss found, the path, and whether the event was a delete."""
    paths = adversarial(rule)
    unit = np.float64(UNIT / rule.scale)
    before = margins(rule, scores.scores(paths)) * unit
    found: tuple[float, int, bool] = (0.0, 0, False)
    for deleted in (False, True):
        after = margins(rule, scores.scores(paths.with_event(deleted=deleted))) * unit
        losses = path_losses(before, after)
        at = int(np.argmax(losses))
        found = max(found, (float(losses[at]), at, deleted))
    loss, at, deleted = found
    one = slice(at, at + 1)
    return loss, TreePaths(paths.held[one], paths.inserted[one], paths.deleted[one]), deleted


def adversarial(rule: SplitRule) -> TreePaths:
    """Paths that press: scores that fall as slowly as the decay, jump onto it, stay equal; noisy negative siblings;
    deletes in siblings that the last release saw empty. Each from many starts.
    """
    decay = float(rule.decay_units * UNIT)
    held: list[Any] = []
    deleted: list[Any] = []

    def add(path: Any, deletes: Any = 0) -> None:
        held.append(np.broadcast_to(np.round(np.asarray(path, float)).astype(np.int64), (LEVELS,)))
        deleted.append(np.broadcast_to(np.asarray(deletes, np.int64), (LEVELS,)))

    leaf = np.arange(LEVELS) == LEVELS - 1
    for start in np.unique(np.round(np.linspace(0, 4 * decay + 200, 60))):
        add(leaf * start)
        for fall in (decay / 2, decay / 8, 1):
            left = np.maximum(0, start - fall * np.arange(LEVELS))
            add(np.append(left[:-1] - left[1:], left[-1]))
        for cut in (1, 3, 7, 12):
            add((np.arange(LEVELS) == cut) * start)
        halves = np.floor(start / 2.0 ** np.arange(LEVELS))
        add(np.append(halves[:-1] - halves[1:], halves[-1]))
    for start in np.linspace(-decay, decay, 21):
        # Siblings at -decay: each node on the path lies above its parent by what the decay takes off.
        add(np.where(leaf, start + decay * (LEVELS - 1), -decay))
        for half in (10, 15):
            add(np.where(np.arange(LEVELS) == half, start + decay * half, -decay * (np.arange(LEVELS) < half)))
    for start in (40, 80, 120, 200):
        for gone in (2, 4, 8):
            add(leaf * start, np.where(leaf, 0, gone))
    paths = np.stack(held)
    return TreePaths(paths, np.zeros_like(paths), np.stack(deleted))


def stops(rule: SplitRule, scores: IntArray, *, runs: int, source: NoiseSource) -> IntArray:
    """Level at which each of `runs` draws of one path's decisions stops, by the sampler itself; `levels` if nowhere."""
    level_margins = margins(rule, scores)[0]
    stopped = np.full(runs, len(level_margins), np.int64)
    going: BoolArray = np.ones(runs, np.bool_)
    for level, margin in enumerate(level_margins.tolist()):
        rows = np.flatnonzero(going)
        thresholds = np.full(rows.size, margin, np.int64)
        bits = laplace_exceeds(thresholds, unit=UNIT, scale=rule.scale, source=source.child("level", level))
        stopped[rows[~bits]] = level
        going[rows[~bits]] = False
    return stopped


def worst_loss(rule: SplitRule, scores: PathScores) -> Callable[[], float]:
    """For `cases.Exact`."""
    return lambda: worst_path(rule, scores)[0]


def epsilons() -> tuple[Fraction, ...]:
    """Budgets at which the path loss is computed; small ones are the tightest."""
    return (Fraction(1, 20), Fraction(1, 2), Fraction(1), Fraction(2))
