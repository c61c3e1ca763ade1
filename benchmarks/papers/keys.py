"""What engine `keys` is compared with: DP-SQLP, and one batch with Laplace noise.

Users bring pairs (user, key), each pair once, at most `bound` of them a user; counts of a key are of users.

DP-SQLP ([zhang2023]) is closed; this is written from its description, with continuous noise. What is our reading:

- A key has a binary tree of new users, read with Honaker's estimate from below. It is selected at the first test where
  the estimate reaches `1 + z * (its standard deviation)`, and selection begins anew with an empty tree after each time
  that it is selected: a count is published at those tests alone, and stands until the next.
- A second tree, from the beginning on, has the counts that are published.
- Half of epsilon is for each, and two thirds of delta for the selection, of which half goes to the noise and half to
  the thresholds. A user's `bound` keys are composed as zCDP in the selection; in the counts, where a user may have all
  of its records in one key, the noise grows with `bound` itself.
- The paper's lemma turns a threshold's slip beta into delta by the factor `exp(epsilon of a key) + 1`.
- **The slip is charged for every test**: beta is for all tests of a key together. An open copy of the algorithm charges
  one test for all of them, and then a key that one person has is shown several times too often. With the charge this
  finds as many keys as the paper's table says, within 3 %: so the paper seems to make it as well.

Noise of a tree is drawn for all tests of a key at once, whether or not it would be looked at: the law is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp, log, log1p, sqrt

import numpy as np
from scipy.stats import norm

from schemas.arrays import FloatArray, IntArray

CHUNK = 4000
"""Keys at a time, which bounds memory."""
_HALVINGS = 100


@dataclass(frozen=True, slots=True)
class Found:
    """What a method has shown by its last test.

    Attributes:
        tests: `(keys,)`, the test, from 0, that found each key; the number of tests where none did.
        counts: `(keys,)`, the noisy counts that are public at the end; 0 of keys that were not found.
    """

    tests: IntArray
    counts: FloatArray


@dataclass(frozen=True, slots=True)
class SqlpNoise:
    """Standard deviations of a node of either tree, and by how many of them of its estimate a count must be above 1."""

    selection: float
    counts: float
    threshold: float

    @staticmethod
    def within(epsilon: float, delta: float, bound: int, tests: int) -> SqlpNoise:
        """Spend epsilon and delta of a user as the head of this module says."""
        levels = tests.bit_length()
        rho = rho_for(epsilon / 2, delta / 3) / bound
        slip = delta / 3 / bound
        of_key = rho + 2 * sqrt(rho * log(1 / slip))
        beta = slip / (exp(of_key) + 1)
        return SqlpNoise(
            selection=sqrt(levels / (2 * rho)),
            counts=bound * sqrt(levels / (2 * rho_for(epsilon / 2, delta / 3))),
            threshold=float(norm.isf(beta / tests)),
        )


def dp_sqlp(increments: IntArray, noise: SqlpNoise, random: np.random.Generator) -> Found:
    """Run DP-SQLP on `(keys, tests)` new users of each key by test."""
    keys, tests = increments.shape
    tree = prefixes(tests)
    thresholds = 1 + noise.threshold * noise.selection * np.sqrt((tree**2).sum(axis=1))
    first, counts = np.full(keys, tests), np.zeros(keys)
    used = np.flatnonzero(increments.any(axis=1))
    for begin in range(0, len(used), CHUNK):
        chosen = used[begin : begin + CHUNK]
        sums = np.cumsum(increments[chosen], axis=1, dtype=np.int64)
        last = _selected(sums, thresholds, noise.selection * tree, random, first, chosen)
        shown = np.flatnonzero(last >= 0)
        drawn = random.normal(0, noise.counts, (len(shown), tree.shape[1]))
        at = last[shown]
        counts[chosen[shown]] = sums[shown, at] + (drawn * tree[at]).sum(axis=1)
    return Found(first, counts)


def _selected(
    sums: IntArray,
    thresholds: FloatArray,
    tree: FloatArray,
    random: np.random.Generator,
    first: IntArray,
    chosen: IntArray,
) -> IntArray:
    """Return the last test that selected each key, -1 where none did, and write down the first."""
    keys, tests = sums.shape
    last, base = np.full(keys, -1), np.zeros(keys, np.int64)
    alive, steps = np.arange(keys), np.arange(tests)
    while len(alive):
        since = sums[alive] - base[alive, None]
        noisy = since + random.normal(size=(len(alive), tree.shape[1])) @ tree.T
        hits = (noisy >= thresholds) & (since > 0) & (steps > last[alive, None])
        some = hits.any(axis=1)
        alive, at = alive[some], hits[some].argmax(axis=1)
        last[alive], base[alive] = at, sums[alive, at]
        first[chosen[alive]] = np.minimum(first[chosen[alive]], at)
        alive = alive[at < tests - 1]
    return last


@lru_cache(maxsize=8)
def prefixes(tests: int) -> FloatArray:
    """Return `(tests, nodes)`: how the sum up to each test is made of the noisy nodes of a binary tree, from below.

    Source: [honaker2015]; its variances are those of `benchmarks.papers.counters.honaker`.
    """
    heights = [tests >> height for height in range(tests.bit_length())]
    begins = np.concatenate([[0], np.cumsum(heights)])
    found = np.zeros((tests, begins[-1]))
    for test in range(1, tests + 1):
        done = 0
        for height in reversed(range(len(heights))):
            if test >> height & 1:
                top = 1 / (2 - 2.0**-height)
                for below in range(height + 1):
                    at = begins[height - below] + (done >> (height - below))
                    found[test - 1, at : at + (1 << below)] = top / 2**below
                done += 1 << height
    return found


def rho_for(epsilon: float, delta: float) -> float:
    """Return the largest rho for which rho-zCDP is (epsilon, delta)-DP by [canonne2020], proposition 12."""
    low, high = 0.0, epsilon + 1
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _delta_of(middle, epsilon) <= delta else (low, middle)
    return low


def _delta_of(rho: float, epsilon: float) -> float:
    low, high = 1.01, (epsilon + 1) / (2 * rho) + 2
    for _ in range(_HALVINGS):
        alpha = (low + high) / 2
        rises = (2 * alpha - 1) * rho - epsilon + log1p(-1 / alpha) >= 0
        low, high = (low, alpha) if rises else (alpha, high)
    return min(1.0, exp((low - 1) * (low * rho - epsilon) + low * log1p(-1 / low)) / (low - 1))


def laplace_batch(totals: IntArray, epsilon: float, delta: float, bound: int, random: np.random.Generator) -> Found:
    """Add Laplace noise to all counts once, and show what reaches a threshold that one user's keys miss but for delta.

    It is epsilon-DP for the counts, and `bound` keys of one user alone slip with `exp(-(threshold - 1) / scale) / 2`.
    """
    scale = bound / epsilon
    threshold = 1 + scale * log(bound / (2 * delta))
    noisy = totals + random.laplace(0, scale, len(totals))
    shown = (totals > 0) & (noisy >= threshold)
    return Found(np.where(shown, 0, 1), np.where(shown, noisy, 0))
