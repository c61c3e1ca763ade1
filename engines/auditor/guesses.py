"""Rules to guess by: chosen on some runs, bounded on others, so choosing costs no confidence.

Statistics: runs are cut in the order in which they were made. The first ones teach what to look at, then one rule is
    chosen, and the last half of the runs is guessed by it: `bounds.epsilon_shown` bounds epsilon by its right guesses,
    once, with probability `alpha` of being above the true one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.auditor.bounds import epsilon_shown
from engines.auditor.observations import Marked, aligned, with_low_bits
from engines.auditor.scores import Scores
from schemas.arrays import BoolArray, FloatArray
from schemas.errors import EngineInputError

SMALLEST = 40
"""Runs, at least."""
_ALIGN, _LEARN, _CHOOSE = 0.15, 0.32, 0.5
"""Shares of the runs at which one part ends and the next begins."""
_CUTS = 28


@dataclass(frozen=True, slots=True)
class Rule:
    """Guess 1 where a score is at least `high`, 0 where it is below `low`, else pass; or the other way round."""

    score: str
    index: int
    low: float
    high: float
    upwards: bool

    def guess(self, scores: list[FloatArray]) -> tuple[BoolArray, BoolArray]:
        """What is guessed, and where."""
        ones: BoolArray = scores[self.index] >= self.high
        made: BoolArray = ones | (scores[self.index] < self.low)
        return ones == self.upwards, made

    def __str__(self) -> str:
        first, second = ("in", "out") if self.upwards else ("out", "in")
        return f"{first} if {self.score} >= {self.high:.6g}, {second} if < {self.low:.6g}"


@dataclass(frozen=True, slots=True)
class Bound:
    """Epsilon is at least `epsilon`, shown by the rule `event`, except with probability `alpha`.

    Attributes:
        guesses: bits that could be guessed. made, right: those that were, and those of them that were right.
    """

    epsilon: float
    event: str
    alpha: float
    guesses: int
    made: int = 0
    right: int = 0


def guessed_of(runs: int, each: int = 1) -> int:
    """Bits of so many runs that are left to be guessed."""
    return (runs - int(_CHOOSE * runs)) * each


def bound(marked: Marked, *, alpha: float, delta: float = 0.0) -> Bound:
    """Bound epsilon from below.

    Args:
        alpha: probability that the result is above the true epsilon.
        delta: if not 0, every run must have one bit.
    Raises: EngineInputError if there are too few runs, or several bits in each beside a delta.
    """
    runs = marked.runs
    if runs < SMALLEST:
        raise EngineInputError(f"an audit needs at least {SMALLEST} runs")
    if delta and marked.each > 1:
        raise EngineInputError("beside a delta only one bit in each run can be guessed")
    marked = Marked(marked.bits, with_low_bits(marked.observed), marked.each)
    ends = [int(share * runs) for share in (_ALIGN, _LEARN, _CHOOSE)]
    begin = ends[0] if marked.each > 1 else 0
    marked = aligned(marked, ends[0])
    taught, chosen, held = (marked.part(*ends) for ends in ((begin, ends[1]), (ends[1], ends[2]), (ends[2], runs)))
    guesses = len(held.bits)
    sides = [taught.side(bit) for bit in (0, 1)]
    if min(side.runs for side in sides) < 2:
        return Bound(0.0, "the coins are all on one side", alpha, guesses)
    scores = Scores.learnt(*sides)
    if not scores.names:
        return Bound(0.0, "nothing is released", alpha, guesses)
    rule = _chosen(scores, chosen, guesses=guesses, alpha=alpha, delta=delta)
    said, made = rule.guess(scores.apply(held.observed))
    right = int((said == held.bits)[made].sum())
    epsilon = float(epsilon_shown(right, int(made.sum()), watched=guesses, alpha=alpha, delta=delta))
    return Bound(epsilon, str(rule), alpha, guesses, int(made.sum()), right)


def _chosen(scores: Scores, marked: Marked, *, guesses: int, alpha: float, delta: float) -> Rule:
    """The rule that promises most for as many guesses as will be made."""
    best: tuple[float, Rule] = (-1.0, Rule(scores.names[0], 0, 0.0, 0.0, True))
    grown = guesses / max(len(marked.bits), 1)
    for index, values in enumerate(scores.apply(marked.observed)):
        cuts = _cuts(values)
        sides = [np.sort(values[marked.bits == bit]) for bit in (False, True)]
        below = [np.searchsorted(side, cuts) for side in sides]
        above = [side.size - count for side, count in zip(sides, below, strict=True)]
        # Rows: where 1 is guessed from (the last: nowhere); columns: below which 0 is (the first: nowhere).
        order = np.tri(len(cuts) + 1, k=1, dtype=np.bool_)
        made = np.append(above[0] + above[1], 0)[:, None] + np.append(0, below[0] + below[1])[None, :]
        for upwards in (True, False):
            first, second = (above[1], below[0]) if upwards else (above[0], below[1])
            right = np.append(first, 0)[:, None] + np.append(0, second)[None, :]
            # Half a guess less is right than was: few that were all right promise less than many.
            share = np.maximum(right - 0.5, 0.0) / np.maximum(made, 1)
            promised = np.where(
                order, epsilon_shown(made * grown * share, made * grown, watched=guesses, alpha=alpha, delta=delta), -1
            )
            row, at = np.unravel_index(int(np.argmax(promised)), promised.shape)
            if promised[row, at] > best[0]:
                high = cuts[row] if row < len(cuts) else np.inf
                low = cuts[at - 1] if at else -np.inf
                best = float(promised[row, at]), Rule(scores.names[index], index, float(low), float(high), upwards)
    return best[1]


def _cuts(values: FloatArray) -> FloatArray:
    """Values to cut at: all where they are few, else evenly by rank and closer together in both tails."""
    distinct = np.unique(values)
    if distinct.size <= _CUTS:
        return distinct
    tail = np.logspace(-3, -1, _CUTS // 4)
    ranks = np.concatenate([np.linspace(0, 1, _CUTS // 2), tail, 1 - tail])
    return np.unique(np.quantile(values, ranks, method="nearest"))
