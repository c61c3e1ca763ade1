"""Keys that nobody listed: which of them enough people have, by noisy counts, where even the set of keys is private.

The table of keys is private as a whole. At a test, keys that truly have the law's `least_count` get the noise of their
continual counter: a key that comes to it late draws the noise of the tests before, too, as if it had been there from
the first one. Out come the keys whose noisy sum is at least the law's threshold, now or at an earlier test, each with
its sum; and the table that remembers the noise, which stays private.
Guarantee: theorem K of docs/guarantee.md: what is drawn may depend on private counts, since a key of fewer people is
    never listed, whatever its noise would be.
Units: counts are people; noise and sums are whole multiples of one divided by the resolution of the counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np

from engines.core.noise.door import opened
from engines.core.noise.gaussian import discrete_gaussian
from engines.core.noise.private import private_like
from engines.core.noise.source import NoiseSource
from engines.core.noise.witness import ListedLaw, drawn
from schemas.arrays import IntArray, KeyArray


class KeyTable(Protocol):
    """Keys with counts, and the noise of those that were tested. PRIVATE, its size too.

    Attributes:
        keys: `(keys, words)`, distinct. counts: `(keys,)`, people so far; they never fall.
        rows: `(tested,)` ascending indices of keys that have drawn noise. noise: `(tested, tests so far)`, of the
            increments of their counters. found: `(tested,)` the test, from 1, at which a key was listed; 0: not yet.
    """

    @property
    def keys(self) -> KeyArray: ...
    @property
    def counts(self) -> IntArray: ...
    @property
    def rows(self) -> IntArray: ...
    @property
    def noise(self) -> IntArray: ...
    @property
    def found(self) -> IntArray: ...

    def tested(self, rows: IntArray, noise: IntArray, found: IntArray) -> Self:
        """Return the table after a test."""
        ...


Table = TypeVar("Table", bound=KeyTable)


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """Keys that are listed, in the order of their words. Public.

    Attributes:
        keys: `(listed, words)`. sums: `(listed,)` noisy. found: `(listed,)` tests, from 1.
    """

    keys: KeyArray
    sums: IntArray
    found: IntArray

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Listed) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ("keys", "sums", "found")
        )

    __hash__ = None  # type: ignore[assignment]


def listing_mechanism(table: Table, law: ListedLaw, source: NoiseSource) -> tuple[Listed, Table]:
    """Test all keys of a private table once.

    Args:
        law: of this test; the table has had the tests before it, and no other.
        source: of this test alone: how much is drawn from it is private.
    Returns: what may be published, and the private table after the test.
    Raises: EngineInputError if the noise is out of range.
    """

    def test(opened_table: Table) -> tuple[Listed, Table]:
        return _tested(opened_table, law, source)

    listed, after = opened(table, law, test, source, checked=lambda values: values)
    return listed, private_like(after, table)


def _tested(table: Table, law: ListedLaw, source: NoiseSource) -> tuple[Listed, Table]:
    counter, test = law.counter, law.test
    rows = np.flatnonzero(table.counts >= law.least_count)
    before = np.isin(rows, table.rows, assume_unique=True)
    new = np.flatnonzero(~before)
    noise = np.zeros((rows.size, test), np.int64)
    noise[before, : test - 1] = table.noise
    found = np.zeros(rows.size, np.int64)
    found[before] = table.found
    drawing = [*[new] * (test - 1), np.arange(rows.size)]

    def sample(words: NoiseSource) -> IntArray:
        parts = [discrete_gaussian(at.size, each, words) for at, each in zip(drawing, law.nodes, strict=True)]
        return np.concatenate(parts)

    drawn_now = drawn(source, law, sample)
    begin = 0
    for index, at in enumerate(drawing):
        nodes = drawn_now[begin : begin + at.size]
        noise[at, index] = counter.increment(nodes, noise[at, :index])
        begin += at.size
    sums = counter.resolution * table.counts[rows] + noise.sum(axis=1)
    found[(found == 0) & (sums >= law.threshold)] = test
    out = np.flatnonzero(found)
    listed = Listed(table.keys[rows[out]], sums[out], found[out])
    return listed, table.tested(rows, noise, found)
