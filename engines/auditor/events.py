"""Events: which outputs to count. Chosen on some runs, bounded on others, so choosing costs no confidence.

Statistics: runs of both inputs are cut in three, in the order in which they were made: a quarter teaches the scores, a
    quarter chooses `EVENTS` events, half bounds epsilon. Each event is bounded in both directions, so there are
    2 * EVENTS bounds of two one-sided Clopper-Pearson limits each; by Bonferroni's inequality every one gets
    alpha / (2 * EVENTS), and their maximum exceeds the true epsilon with probability at most alpha. Holds for any
    mechanism, provided that runs are independent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engines.auditor.bounds import epsilon_below
from engines.auditor.observations import Observations, with_low_bits
from engines.auditor.scores import Scores
from schemas.errors import EngineInputError

FloatArray = npt.NDArray[np.float64]

EVENTS = 4
SMALLEST = 40
_THRESHOLDS = 160


@dataclass(frozen=True, slots=True)
class Event:
    """The outputs whose score is at least (or below) a threshold."""

    score: str
    index: int
    threshold: float
    above: bool

    def hits(self, scores: list[FloatArray]) -> int:
        reached = int((scores[self.index] >= self.threshold).sum())
        return reached if self.above else scores[self.index].size - reached

    def __str__(self) -> str:
        return f"{self.score} {'>=' if self.above else '<'} {self.threshold:.6g}"


@dataclass(frozen=True, slots=True)
class Bound:
    """Epsilon is at least `epsilon`, shown by `event`, except with probability `alpha`."""

    epsilon: float
    event: str
    alpha: float
    runs: int


def bound(zero: Observations, one: Observations, *, alpha: float, delta: float = 0.0) -> Bound:
    """Bound epsilon from below by runs on two neighbouring inputs.

    Args:
        zero, one: equally many runs, at least `SMALLEST`.
        alpha: probability that the result is above the true epsilon.
    Raises: EngineInputError if the numbers of runs differ or are too small.
    """
    runs = zero.runs
    if runs != one.runs or runs < SMALLEST:
        raise EngineInputError(f"both inputs need equally many runs, at least {SMALLEST}")
    zero, one = with_low_bits(zero), with_low_bits(one)
    learn, choose = runs // 4, runs // 2
    scores = Scores.learnt(zero.part(0, learn), one.part(0, learn))
    if not scores.names:
        return Bound(0.0, "nothing is released", alpha, runs)
    each = alpha / (2 * EVENTS)
    chosen = _chosen(
        scores,
        [scores.apply(side.part(learn, choose)) for side in (zero, one)],
        alpha=each,
        delta=delta,
        bounding=runs - choose,
    )
    held = [scores.apply(side.part(choose, runs)) for side in (zero, one)]
    best = Bound(0.0, str(chosen[0]), alpha, runs)
    for event in chosen:
        hits = [event.hits(side) for side in held]
        for more, less in (hits, hits[::-1]):
            epsilon = float(epsilon_below(more, less, runs=runs - choose, alpha=each, delta=delta))
            if epsilon > best.epsilon:
                best = Bound(epsilon, str(event), alpha, runs)
    return best


def _chosen(scores: Scores, sides: list[list[FloatArray]], *, alpha: float, delta: float, bounding: int) -> list[Event]:
    """The most promising event of each score and direction, of these the best `EVENTS`."""
    found: list[tuple[float, Event]] = []
    for index, name in enumerate(scores.names):
        zero, one = np.sort(sides[0][index]), np.sort(sides[1][index])
        thresholds = _thresholds(np.concatenate([zero, one]))
        reached = [side.size - np.searchsorted(side, thresholds) for side in (zero, one)]
        for above in (True, False):
            hits = [count if above else side.size - count for count, side in zip(reached, (zero, one), strict=True)]
            # Counts as they would be among the runs that bound.
            grown = [count * (bounding / zero.size) for count in hits]
            for more, less in (grown, grown[::-1]):
                epsilon = epsilon_below(more, less, runs=bounding, alpha=alpha, delta=delta)
                at = int(np.argmax(epsilon))
                found.append((float(epsilon[at]), Event(name, index, float(thresholds[at]), above)))
    found.sort(key=lambda each: -each[0])
    distinct = list(dict.fromkeys(event for _, event in found))
    return distinct[:EVENTS]


def _thresholds(values: FloatArray) -> FloatArray:
    """Values to cut at: all where they are few, else evenly by rank and closer together in both tails."""
    distinct = np.unique(values)
    if distinct.size <= _THRESHOLDS:
        return distinct
    tail = np.logspace(-4, -1, _THRESHOLDS // 4)
    ranks = np.concatenate([np.linspace(0, 1, _THRESHOLDS // 2), tail, 1 - tail])
    return np.unique(np.quantile(values, ranks, method="nearest"))
