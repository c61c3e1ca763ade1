"""Keys that nobody listed: which of them enough people have, by noisy counts, where even the set of keys is private.

The table of keys is private as a whole. At a test, keys that truly have the law's `least_count` get the noise of their
continual counter, and the table shows no others here: a key that comes to it late draws the noise of the tests before,
too, as if it had been there from the first one. Out come the keys whose noisy sum is at least the law's threshold, now
or at an earlier test, each with its sum; and the table that remembers the noise, which stays private. A law without a
threshold lists all keys of its table, which are public then, from the first test on. Where people of a key bring whole
numbers, such as values, sums of these have counters of their own: they leave for the keys that are listed, and decide
nothing.
Guarantee: theorem K of docs/guarantee.md: what is drawn may depend on private counts, since a key of fewer people is
    never listed, whatever its noise would be.
Units: counts are people; noise and noisy sums are whole multiples of one divided by the resolution of the counter.
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
    """Keys with how many people have each, and the noise of those that were tested. PRIVATE, its size too.

    Attributes:
        keys: `(keys, words)`, distinct: all that truly have the law's `least_count`, first those that were tested
            before. totals: `(1 + sums, keys)`, people so far, which never fall; then sums of what they bring.
        noise: `(1 + sums, tests so far, tested)`, of the increments of their counters. found: `(tested,)` the test,
            from 1, at which a key was listed; 0: not yet.
    """

    @property
    def keys(self) -> KeyArray: ...
    @property
    def totals(self) -> IntArray: ...
    @property
    def noise(self) -> IntArray: ...
    @property
    def found(self) -> IntArray: ...

    def tested(self, noise: IntArray, found: IntArray) -> Self:
        """Return the table after a test of all its keys."""
        ...


Table = TypeVar("Table", bound=KeyTable)


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """Keys that are listed, in the order of their words. Public.

    Attributes:
        keys: `(listed, words)`. totals: `(1 + sums, listed)` noisy: people, then the sums of what they bring.
        found: `(listed,)` tests, from 1.
    """

    keys: KeyArray
    totals: IntArray
    found: IntArray

    @property
    def counts(self) -> IntArray:
        """Noisy numbers of people, `(listed,)`."""
        people: IntArray = self.totals[0]
        return people

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Listed) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ("keys", "totals", "found")
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
    test, every, had = law.test, table.totals.shape[1], len(table.found)
    if (table.totals[0] < law.least_count).any():
        raise AssertionError("a key of fewer people than least_count is to be tested")
    noise = np.zeros((len(law.counters), test, every), np.int64)
    noise[:, :-1, :had] = table.noise
    begins = [*[had] * (test - 1), 0]

    def sample(words: NoiseSource) -> IntArray:
        sizes = [every - begin for begin in begins] * len(law.counters)
        parts = [discrete_gaussian(size, each, words) for size, each in zip(sizes, law.nodes, strict=True)]
        return np.concatenate(parts)

    drawn_now = np.split(drawn(source, law, sample), len(law.counters))
    cuts = np.cumsum([every - begin for begin in begins])[:-1]
    for counter, of_counter, moved in zip(law.counters, drawn_now, noise, strict=True):
        for index, (begin, nodes) in enumerate(zip(begins, np.split(of_counter, cuts), strict=True)):
            moved[index, begin:] = counter.increment(nodes, moved[:index, begin:].T)
    totals = law.counter.resolution * table.totals + noise.sum(axis=1)
    found = np.zeros(every, np.int64)
    found[:had] = table.found
    enough = totals[0] >= law.threshold if law.threshold is not None else np.ones(every, np.bool_)
    found[(found == 0) & enough] = test
    out = np.flatnonzero(found)
    # The order in which they became candidates is private.
    out = out[np.lexsort(table.keys[out].T[::-1])]
    return Listed(table.keys[out], totals[:, out], found[out]), table.tested(noise, found)
