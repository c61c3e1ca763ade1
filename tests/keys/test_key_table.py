"""The private table of a period against a dictionary, and what of its state a step writes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.contract import State
from engines.core.noise import seeded
from engines.keys.hashes import PEOPLE_BITS, KeyHash
from engines.keys.table import LEVELS, PARTS, PeriodTable
from schemas.arrays import KeyArray, WordArray
from schemas.blocks import Folded
from schemas.config.engines.keys import KeysOptions
from schemas.errors import EngineInputError
from schemas.releases import PART_BYTES

LEAST = 4
STEPS = st.lists(
    st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from([1, 1, 2, 3, 4, 9]), st.sampled_from([0, 5, LEVELS, -LEVELS])),
        max_size=12,
    ),
    min_size=1,
    max_size=9,
)
"""Of each step keys, how many people come, and what each of them brings."""


@dataclass(frozen=True, slots=True, eq=False)
class Coarse(KeyHash):
    """Two bits are left of the first word of a hash, so that many keys share it: hardly any two ever do else."""

    def of(self, keys: KeyArray) -> tuple[WordArray, WordArray]:
        first, second = KeyHash.of(self, keys)
        return first >> np.uint64(62), second


def table_of(words: int = 1, seed: int = 0) -> PeriodTable:
    return PeriodTable.empty(KeyHash.drawn(words, seeded(seed)))


def events_of(came: list[tuple[int, int, int]], sums: int) -> Folded:
    """Events of keys of two words, each with what it brings or without."""
    keys = np.array([[key % 3, key, LEVELS + each] for key, _, each in came], np.uint64).reshape(-1, 3)
    return Folded.from_keys(keys[:, : 2 + sums], np.array([n for _, n, _ in came], np.int64))


@given(STEPS, st.booleans(), st.integers(0, 1), st.sets(st.integers(1, 9)), st.sets(st.integers(1, 9)))
def test_a_table_is_a_dictionary_of_people(
    steps: list[list[tuple[int, int, int]]], coarse: bool, sums: int, restarts: set[int], before_tests: set[int]
) -> None:
    """Whatever comes in whichever order, by ones or by more than enough at once, with and without restarts: keys of
    enough people have text, count and the sum of what these bring, what was drawn for one stays with it, and all keys
    are counted.
    """
    hashed = (Coarse if coarse else KeyHash)(KeyHash.drawn(2, seeded(3)).multipliers)
    table, people, drawn = PeriodTable.empty(hashed, sums), Counter[int](), dict[int, list[int]]()
    brought = Counter[int]()
    for test, came in enumerate(steps, start=1):
        new = Counter[int]()
        for key, n, each in came:
            new[key] += n
            brought[key] += n * each
        table = table.added(events_of(came, sums), least=LEAST, most=31)
        if test in before_tests and not coarse:
            table = again(table, tests=test - 1)
        people += new
        enough = {key: n for key, n in people.items() if n >= LEAST}
        assert dict(zip(table.keys[:, 1].tolist(), table.counts.tolist(), strict=True)) == enough
        assert (table.keys[:, 0] == table.keys[:, 1] % 3).all()
        assert table.totals[1:].tolist() == [[brought[int(key)] for key in table.keys[:, 1]]] * sums
        assert table.held == len(people)
        assert sorted(table.by_hash().values()) == sorted((n, brought[key])[: 1 + sums] for key, n in people.items())
        assert [table.by_hash()[key] for key in table.ids()] == list(zip(*table.totals.tolist(), strict=True))
        sizes = list(map(len, table.few[(test - 1) % PARTS]))
        assert sizes == sorted(set(sizes), reverse=True), "in its turn, a run is smaller than the one before it"
        assert dict(zip(table.keys[:, 1].tolist(), table.noise[0].T.tolist(), strict=False)) == drawn
        drawn = {int(key): [*drawn.get(int(key), [-test] * (test - 1)), test] for key in table.keys[:, 1]}
        noise = np.array(list(drawn.values()), np.int64).reshape(-1, test).T
        table = table.tested(np.stack([noise, *[-noise] * sums]), np.arange(len(drawn)) % (test + 1))
        if test in restarts and not coarse:
            table = again(table, tests=test)


def again(table: PeriodTable, *, tests: int) -> PeriodTable:
    """Return the table as it is read from its state."""
    state = {name: array.copy() for name, array in table.arrays().items()}
    stored = PeriodTable.of(state, words=2, tests=tests, least=LEAST, sums=table.sums)
    assert stored.arrays().keys() == state.keys()
    assert all(np.array_equal(array, state[name]) for name, array in stored.arrays().items())
    return stored


def test_a_full_table_says_so_and_is_left_as_it_was() -> None:
    """It drops no key: one person's keys would push out others'. What it says quotes none."""
    table = table_of().added(Folded.from_keys(np.arange(5, dtype=np.uint64)[:, np.newaxis]), least=2, most=6)
    more = Folded.from_keys(np.array([[4], [7], [8]], np.uint64))
    with pytest.raises(EngineInputError, match=r'max_keys = 6\. .*sample = "1/16"'):
        table.added(more, least=2, most=6)
    assert list(table.by_hash().values()) == [(1,)] * 5
    # A key that is known, or that is a candidate already, needs no place.
    full = table.added(more, least=2, most=7)
    assert full.held == full.added(more, least=2, most=7).held == 7


def test_a_hash_leaves_room_for_as_many_people_as_may_be_asked_for() -> None:
    [most] = [each.le for each in KeysOptions.model_fields["least_count"].metadata if hasattr(each, "le")]
    assert most <= 2**PEOPLE_BITS
    few = table_of().added(Folded(np.array([[5]], np.uint64), np.array([most - 1])), least=most, most=1)
    assert ([run.people.tolist() for runs in few.few for run in runs], len(few.counts)) == ([[most - 1]], 0)
    assert few.added(Folded.from_keys(np.array([[5]], np.uint64)), least=most, most=1).counts.tolist() == [most]


def test_keys_of_one_hash_are_as_rare_as_promised() -> None:
    """Of 12 of the bits: 2^12 functions, and two keys that differ in one half. More than 12, or none at all of 2^13
    pairs, have a probability below 10^-6: 2 are expected for each pair of keys, and 8 pairs are added up.
    """
    pairs = [np.array([[7, 0], [7 ^ (1 << at), 0]], np.uint64) for at in (0, 11, 31, 32, 40, 50, 62, 63)]
    same = 0
    for seed in range(2**9):
        hashed = KeyHash.drawn(2, seeded(seed))
        for keys in pairs:
            first, second = hashed.of(keys)
            same += int(first[0] >> np.uint64(58) == first[1] >> np.uint64(58))
            assert (first[0], second[0]) != (first[1], second[1])
    # 4096 pairs at 2^-6: 64 expected, with deviation 7.9.
    assert 25 < same < 105


def written(before: State, after: State) -> int:
    """Return the bytes of the arrays that are parts of the state by themselves, and others than before."""
    large = {name: array for name, array in after.items() if array.nbytes >= PART_BYTES}
    return sum(
        array.nbytes for name, array in large.items() if name not in before or array.tobytes() != before[name].tobytes()
    )


def test_a_step_writes_about_what_is_new_in_it() -> None:
    """Over 24 steps of 80,000 keys each hash is written three times at most, where the whole table would be written
    twelve times; and for each of 9,000 candidates a number of noise, a count and a test in a step. No step writes more
    than its own hashes some five times, and a part of all others.
    """
    table, states, size = table_of(), list[State](), 80_000
    for step in range(24):
        new = np.arange(size * step, size * (step + 1), dtype=np.uint64)[:, np.newaxis]
        people = np.where(np.arange(size) < (9_000 if step == 3 else 0), 2, 1)
        table = table.added(Folded(new, people), least=2, most=10**7)
        noise = np.tile(np.arange(step + 1)[:, np.newaxis], len(table.counts))
        table = table.tested(noise[np.newaxis], np.zeros(len(table.counts), np.int64))
        states.append(table.arrays())
    hashes, candidates = 16 * (24 * size - 9_000), 21 * 3 * 8 * 9_000 + (1 + 3) * 8 * 9_000
    wrote = [written(before, after) for before, after in zip([{}, *states[:-1]], states, strict=True)]
    assert candidates + hashes < sum(wrote) < 3 * hashes + candidates
    assert max(wrote) < 5 * 16 * size + hashes / PARTS + 4 * 8 * 9_000
    assert sum(sum(array.nbytes for array in state.values()) for state in states) > 4 * sum(wrote)
