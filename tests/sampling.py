"""The black-box check of a claim: guess from what is released whether one protected unit was there, and bound epsilon
from below by how often that was right.

Coins decide in which runs the unit is in the input. Each run is given a score, any number that is made of its release.
The first half of the runs chooses a rule, the other half is guessed by it. If the mechanism is epsilon-DP, a guess is
right with probability p = e^epsilon / (1 + e^epsilon) at most, so that a Clopper-Pearson bound of p is one of epsilon.
Nothing needs to be known of the mechanism. A bound below a claim proves nothing: these scores showed no more.

>>> from fractions import Fraction
>>> from engines.core.noise import discrete_laplace, seeded
>>> there = coins(2000, seeded(1))
>>> released = there + discrete_laplace(2000, Fraction(1, 2), seeded(2))  # so epsilon is 2
>>> 1 < sampled(released, there).epsilon < 2
True

Statistics, pure: of `made` guesses, the right ones are stochastically at most Binomial(made, p). Given all releases and
    the coins before the i-th one, both values of the i-th coin were equally likely beforehand, and the likelihood ratio
    of what was released is at most e^epsilon either way. So a guess is right with probability p at most whatever the
    earlier ones were; which runs are guessed is a function of what was released.
Statistics, delta > 0: an (epsilon, delta)-DP mechanism on one coin is a function of: the coin itself with probability
    delta, else an answer that is right with probability p. At most `_leaks` of the runs gave their coin away, but for
    probability alpha / 2; without so many right guesses the rest is as above, at alpha / 2.
Source: [steinke2023], theorem 3.1 (pure); [kairouz2015] (one coin, with a delta); [clopper1934].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special
from scipy.stats import binom

from engines.core.noise import NoiseSource
from schemas.arrays import BoolArray, FloatArray
from schemas.errors import EngineInputError

ALPHA = 1e-6
"""Probability that a bound is above the true epsilon."""
FEWEST = 40
"""Runs, at least."""
_CUTS = 32


def coins(count: int, source: NoiseSource) -> BoolArray:
    """Draw `(count,)` fair bits: whether the unit is there."""
    drawn: BoolArray = (source.words(count) & np.uint64(1)).astype(np.bool_)
    return drawn


@dataclass(frozen=True, slots=True)
class Sampled:
    """Attributes:

    epsilon: is at least this, except with probability alpha.
    guesses: coins that could be guessed. made, right: those that were, and those of them that were right.
    ceiling: the largest bound that so many guesses can give.
    """

    epsilon: float
    guesses: int
    made: int
    right: int
    ceiling: float


def sampled(scores: npt.ArrayLike, there: BoolArray, *, alpha: float = ALPHA, delta: float = 0.0) -> Sampled:
    """Bound epsilon from below.

    Args:
        scores: `(runs,)` a number for each run, no NaN. Any function of what the run released will do.
        there: `(runs,)` the coin of each run, see `coins`. Without a delta, several may be of one run.
        alpha: probability that the result is above the true epsilon. delta: of the claim.
    Raises: EngineInputError if there are too few runs, or not as many scores as coins.
    """
    values = np.asarray(scores, np.float64)
    if values.shape != there.shape or values.size < FEWEST or bool(np.isnan(values).any()):
        raise EngineInputError(f"scores must be numbers, one for each coin, of {FEWEST} runs or more")
    half = values.size // 2
    rule = _chosen(values[:half], there[:half], guesses=values.size - half, alpha=alpha, delta=delta)
    said, made = rule.guess(values[half:])
    right, guesses = int((said == there[half:])[made].sum()), values.size - half
    epsilon = float(epsilon_shown(right, int(made.sum()), watched=guesses, alpha=alpha, delta=delta))
    return Sampled(epsilon, guesses, int(made.sum()), right, ceiling(guesses, alpha=alpha, delta=delta))


@dataclass(frozen=True, slots=True)
class _Rule:
    """Say that the unit is there where a score is at least `high`, that it is not below `low`, and pass between them;
    the other way round if it is not `upwards`.
    """

    low: float
    high: float
    upwards: bool

    def guess(self, scores: FloatArray) -> tuple[BoolArray, BoolArray]:
        """Return what is said of each run, and of which runs it is."""
        above: BoolArray = scores >= self.high
        made: BoolArray = above | (scores < self.low)
        return above == self.upwards, made


def _chosen(scores: FloatArray, there: BoolArray, *, guesses: int, alpha: float, delta: float) -> _Rule:
    """Return the rule that promises most for as many runs as will be guessed."""
    cuts = _cuts(scores)
    sides = [np.sort(scores[there == bit]) for bit in (False, True)]
    below = [np.append(0, np.searchsorted(side, cuts)) for side in sides]
    above = [np.append(side.size - np.searchsorted(side, cuts), 0) for side in sides]
    # Rows: `high` is this cut, the last is nowhere; columns: `low` is the cut before, the first is nowhere.
    ordered = np.tri(len(cuts) + 1, k=1, dtype=np.bool_)
    made = (above[0] + above[1])[:, None] + (below[0] + below[1])[None, :]
    grown = guesses / scores.size
    best, rule = -1.0, _Rule(-np.inf, np.inf, True)
    for upwards in (True, False):
        right = above[upwards][:, None] + below[not upwards][None, :]
        # Half a guess less is right than was: few that were all right promise less than many.
        share = np.maximum(right - 0.5, 0.0) / np.maximum(made, 1)
        promised = _shown(made * grown * share, made * grown, watched=guesses, alpha=alpha, delta=delta)
        row, column = np.unravel_index(int(np.argmax(np.where(ordered, promised, -1.0))), promised.shape)
        if promised[row, column] > best:
            high = float(cuts[row]) if row < len(cuts) else np.inf
            low = float(cuts[column - 1]) if column else -np.inf
            best, rule = float(promised[row, column]), _Rule(low, high, upwards)
    return rule


def _cuts(scores: FloatArray) -> FloatArray:
    """Return scores to cut at: all where they are few, else evenly by rank and closer together in both tails."""
    distinct = np.unique(scores)
    if distinct.size <= _CUTS:
        return distinct
    tail = np.logspace(-3, -1, _CUTS // 4)
    ranks = np.concatenate([np.linspace(0, 1, _CUTS // 2), tail, 1 - tail])
    return np.unique(np.quantile(scores, ranks, method="nearest"))


def lower(hits: npt.ArrayLike, runs: npt.ArrayLike, *, alpha: float) -> FloatArray:
    """Return a one-sided lower confidence bound of a probability, elementwise; 0 where nothing was hit.

    Statistics: above the true probability with probability `alpha` at most; exact, no approximation.

    >>> round(float(lower(90, 100, alpha=0.025)), 4)
    0.8238
    """
    k: npt.NDArray[Any] = np.asarray(hits, np.float64)
    n: npt.NDArray[Any] = np.asarray(runs, np.float64)
    return np.where(k > 0, special.betaincinv(np.maximum(k, 1e-9), n - k + 1.0, alpha), 0.0)


def _leaks(watched: int, *, alpha: float, delta: float) -> int:
    """Return how many runs of `watched` may have given their coin away: more have probability `alpha` / 2 at most."""
    return int(binom.isf(alpha / 2, watched, delta)) if delta else 0


def _shown(right: npt.ArrayLike, made: npt.ArrayLike, *, watched: int, alpha: float, delta: float) -> FloatArray:
    """Return a lower bound of the probability that a guess is right, of runs that did not give their coin away."""
    given = _leaks(watched, alpha=alpha, delta=delta)
    return lower(np.maximum(np.asarray(right, np.float64) - given, 0.0), made, alpha=alpha / 2 if delta else alpha)


def epsilon_shown(
    right: npt.ArrayLike, made: npt.ArrayLike, *, watched: int, alpha: float, delta: float = 0.0
) -> FloatArray:
    """Return a lower bound of epsilon from right guesses among those made; never below 0; elementwise.

    Args:
        watched: coins that could have been guessed.
        alpha: probability that the result is above the true epsilon.

    >>> round(float(epsilon_shown(731, 1000, watched=1000, alpha=1e-6)), 3)
    0.666
    """
    p = _shown(right, made, watched=watched, alpha=alpha, delta=delta)
    return np.where(p > 0.5, special.logit(np.clip(p, 0.5, 1 - 1e-15)), 0.0)


def ceiling(guesses: int, *, alpha: float = ALPHA, delta: float = 0.0) -> float:
    """Return the largest bound that so many guesses can give: that of a total leak, where all are right.

    A check whose ceiling is not above its claim cannot fail.

    >>> round(ceiling(200), 3), round(ceiling(1000), 3)
    (2.638, 4.275)
    """
    return float(epsilon_shown(guesses, guesses, watched=guesses, alpha=alpha, delta=delta))
