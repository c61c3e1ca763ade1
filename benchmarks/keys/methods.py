"""Engine `keys` and what it is compared with, by name: each finds keys in `(keys, tests)` new users by test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from benchmarks.papers.keys import Found, SqlpNoise, dp_sqlp, laplace_batch
from engines.core.noise import seeded
from engines.keys.selection import RESOLUTION, KeySelection
from schemas.arrays import IntArray
from schemas.config.keys import LISTING_SHARE

CHUNK = 2**16
"""Keys at a time, which bounds memory."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a user may lose over all tests, and how many keys it may bring."""

    epsilon: float
    delta: float
    bound: int


def engine(increments: IntArray, setting: Setting, seed: int, *, least_count: int = 1) -> Found:
    """Run the tests of engine `keys`, with its mechanism and thresholds.

    Args:
        least_count: 1 as the others have it, where the engine itself has 5 unless it is told otherwise.
    """
    tests, source = increments.shape[1], seeded(seed)
    selection = KeySelection(
        epsilon=Fraction(setting.epsilon),
        delta=setting.delta,
        share=LISTING_SHARE,
        contributions=setting.bound,
        tests=tests,
        least_count=least_count,
    )
    first, counts = np.full(len(increments), tests), np.zeros(len(increments))
    used = np.flatnonzero(increments.sum(axis=1) >= least_count)
    for begin in range(0, len(used), CHUNK):
        chosen = used[begin : begin + CHUNK]
        people = np.cumsum(increments[chosen], axis=1, dtype=np.int64)
        listed, sums = selection.first_listed(people, source.child("keys", begin))
        first[chosen] = np.where(listed > 0, listed - 1, tests)
        counts[chosen] = sums / RESOLUTION
    return Found(first, counts)


def engine_by_default(increments: IntArray, setting: Setting, seed: int) -> Found:
    return engine(increments, setting, seed, least_count=5)


def rerun(increments: IntArray, setting: Setting, seed: int) -> Found:
    """Run DP-SQLP."""
    noise = SqlpNoise.within(setting.epsilon, setting.delta, setting.bound, increments.shape[1])
    return dp_sqlp(increments, noise, np.random.default_rng(seed))


def batch(increments: IntArray, setting: Setting, seed: int) -> Found:
    """Run the selection of engine `keys` with one test, at the end: one Gaussian histogram with a threshold."""
    return engine(increments.sum(axis=1, keepdims=True), setting, seed)


def batch_laplace(increments: IntArray, setting: Setting, seed: int) -> Found:
    totals = increments.sum(axis=1, dtype=np.int64)
    return laplace_batch(totals, setting.epsilon, setting.delta, setting.bound, np.random.default_rng(seed))


ENGINE, DEFAULT, SQLP, BATCHES = "keys", "keys of 5 people or more", "DP-SQLP", ("one batch", "one batch, Laplace")
METHODS: Mapping[str, Callable[[IntArray, Setting, int], Found]] = {
    ENGINE: engine,
    DEFAULT: engine_by_default,
    SQLP: rerun,
    BATCHES[0]: batch,
    BATCHES[1]: batch_laplace,
}
