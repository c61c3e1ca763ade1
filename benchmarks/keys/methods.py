"""Engine `keys` and what it is compared with, by name: each finds keys in `(keys, tests)` new users by test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from benchmarks.papers.keys import Found, SqlpNoise, dp_sqlp, laplace_batch
from engines.core.noise import NoiseSource, seeded
from engines.core.noise.listing import listing_mechanism
from engines.keys.hashes import KeyHash
from engines.keys.selection import RESOLUTION, KeySelection
from engines.keys.table import PeriodTable
from schemas.arrays import IntArray
from schemas.config.engines.keys import LISTING_SHARE

CHUNK = 2**16
"""Keys at a time, which bounds memory."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a user may lose over all tests, and how many keys it may bring."""

    epsilon: float
    delta: float
    bound: int


def first_listed(selection: KeySelection, people: IntArray, source: NoiseSource) -> tuple[IntArray, IntArray]:
    """Run all tests of a period on many keys, with their counts at each test.

    Args:
        people: `(keys, tests)`, how many have the key at each test: never falling.
    Returns: `(keys,)` the first test where each is listed, from 1, and 0 where at none; and `(keys,)` its noisy sum
        at the last test in lattice steps, 0 where it is not listed.
    """
    first, sums = np.zeros(len(people), np.int64), np.zeros(len(people), np.int64)
    before = (people < selection.least_count).sum(axis=1)
    rows = np.argsort(before, kind="stable")[: np.count_nonzero(before < selection.tests)]
    keys, counts = rows.astype(np.uint64)[:, np.newaxis], np.ascontiguousarray(people[rows].T)
    ends = np.searchsorted(before[rows], np.arange(selection.tests), side="right").tolist()
    table = PeriodTable.empty(KeyHash.none(1))
    for test, end in enumerate(ends, start=1):
        table = replace(table, keys=keys[:end], totals=counts[test - 1 : test, :end])
        listed, table = listing_mechanism(table, selection.law(test), source.child("test", test))
        at = listed.keys[:, 0].astype(np.int64)
        first[at], sums[at] = listed.found, listed.counts
    return first, sums


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
        listed, sums = first_listed(selection, people, source.child("keys", begin))
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
