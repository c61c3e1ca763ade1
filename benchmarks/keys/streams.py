"""Streams of pairs (user, key): three real ones, and the synthetic one that DP-SQLP is published on.

The real ones are read from ../shared/data: check-ins of New York by place (Gowalla), and words in the subject lines of
commits to ansible/ansible and conda-forge/staged-recipes, which `benchmarks.keys.words` makes of a git history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as arrow
from pyarrow import csv

from benchmarks.data import DATA
from benchmarks.size import sized
from schemas.arrays import IntArray

FILES: Mapping[str, tuple[str, tuple[str, str, str]]] = {
    "Gowalla, places": ("gowalla_checkins/gowalla_nyc_checkins.csv.gz", ("checkin_time", "user", "location_id")),
    "ansible, words": ("commit_words/ansible.csv.gz", ("day", "user", "word")),
    "recipes, words": ("commit_words/recipes.csv.gz", ("day", "user", "word")),
}
"""The file of each stream, and the columns of time, user and key."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Every pair (user, key) at its first time, in the order of time.

    Attributes:
        times, keys: `(pairs,)`; keys are numbered. ranks: how many pairs its user had before it.
    """

    times: IntArray
    keys: IntArray
    ranks: IntArray

    def counts(self, bound: int, tests: int) -> IntArray:
        """Return `(keys, tests)` new users of each key in equal times, of the first `bound` pairs of each user."""
        begin, end = int(self.times[0]), int(self.times[-1])
        at = np.minimum((self.times - begin) * tests // max(end - begin, 1), tests - 1)
        within = self.ranks < bound
        found = np.zeros((int(self.keys.max()) + 1, tests), np.int64)
        np.add.at(found, (self.keys[within], at[within]), 1)
        return found


def path(name: str) -> Path:
    """Return the file of a stream, whether or not it is there."""
    return DATA / FILES[name][0]


@lru_cache(maxsize=1)
def pairs(name: str) -> Pairs:
    """Read a real stream."""
    table = csv.read_csv(path(name))
    time, user, key = (table[column].combine_chunks() for column in FILES[name][1])
    return first_pairs(np.asarray(time.cast(arrow.int64())), numbered(user), numbered(key))[0]


def numbered(column: arrow.Array) -> IntArray:
    """Number values in the order of their first rows."""
    return np.asarray(column.dictionary_encode().indices, np.int64)


def first_pairs(times: IntArray, users: IntArray, keys: IntArray) -> tuple[Pairs, IntArray]:
    """Return the first row of each user and key, and its number among the rows, which may be in any order."""
    order = np.argsort(times, kind="stable")
    _, firsts = np.unique(users[order] * (int(keys.max()) + 1) + keys[order], return_index=True)
    rows = order[np.sort(firsts)]
    return Pairs(times[rows], keys[rows], _ranks(users[rows])), rows


def _ranks(users: IntArray) -> IntArray:
    """Number the rows of each user from 0."""
    order = np.argsort(users, kind="stable")
    _, begins, counts = np.unique(users[order], return_index=True, return_counts=True)
    ranks = np.empty(len(users), np.int64)
    ranks[order] = np.arange(len(users)) - np.repeat(begins, counts)
    return ranks


USERS = sized(10_000_000, smallest=20_000)
KEYS = sized(1_000_000, smallest=500)
BOUND = 32
TESTS = sized(100, smallest=20)


@lru_cache(maxsize=1)
def synthetic() -> IntArray:
    """Return `(keys, tests)` new users of the synthetic stream: 10^7 users, 10^6 keys, 100 tests; always the same.

    A user brings n records with probability in proportion to (n + 26)^-6.738, of which 32 count, and each is of the
    key of rank r with probability in proportion to (r + 1000)^-1.4, at any test alike ([zhang2023], section 5.1).
    Drawn as Poisson numbers of each key and test: a key that comes to a user twice counts twice, which of no key is
    more than one record in five hundred.
    """
    random = np.random.default_rng(1)
    records = np.arange(1, 100_001)
    of_user = (records + 26.0) ** -6.738
    mean = float((np.minimum(records, BOUND) * of_user).sum() / of_user.sum())
    of_key = (np.arange(1, KEYS + 1) + 1000.0) ** -1.4
    rates = USERS * mean / TESTS * of_key / of_key.sum()
    return np.stack([random.poisson(rates).astype(np.int16) for _ in range(TESTS)], axis=1)


def fewer_tests(increments: IntArray, tests: int) -> IntArray:
    """Return `(keys, tests)`: the same records in fewer tests, a divisor of their number."""
    keys, before = increments.shape
    return increments.reshape(keys, tests, before // tests).sum(axis=2, dtype=np.int32)
