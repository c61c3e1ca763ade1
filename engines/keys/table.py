"""The table of a period: every key that came, with how many people have it, and sums of what they bring. PRIVATE, its
size too.

A key of fewer people than are asked for is two words: its hash (`engines.keys.hashes`), and in the lowest bits how many
people came; with values, a third one is their sum. It has no text: the step in which enough people have it has the key
among its own events. From then on it is a candidate, with text, totals, and the noise of every test of its period.

Two keys of one hash would be one; see `engines.keys.hashes` for how improbable that is.

Hashes are in parts, by their first bits. Those of a step are a run of their own in each part, in ascending order. A run
that is no larger than all behind it is merged with them: so there are about log2 of the steps, and a hash is written as
often. What is large is merged in one part at a step, each in its turn: no step waits for all of the table. The hash of
a candidate stays in the runs, where nothing asks for it any more. Candidates stand in the order in which they became
such. So an array of the state that is there is seldom another one in the next step, and is not written again
(`schemas.releases`): what a step writes is its runs, its new candidates, and for each candidate a count and the noise
of its test.

A full table stops its stream before the step that is too much: a table that dropped keys would let one person's keys
push out others'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import ClassVar, Self

import numpy as np

from engines.core.contract import State
from engines.core.noise import aggregate
from engines.core.state import reading
from engines.keys.hashes import PEOPLE_BITS, KeyHash
from schemas.arrays import BoolArray, IntArray, KeyArray, WordArray
from schemas.blocks import Folded
from schemas.errors import EngineInputError

_PEOPLE = np.uint64(2**PEOPLE_BITS - 1)
_PART_BITS = 3
PARTS = 2**_PART_BITS
LEVELS = 2**12
"""Values of events are whole numbers from -LEVELS to LEVELS."""
_OFTEN = 4
"""Up to so many times the hashes of a step are merged out of turn."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Hashes in ascending order, each with how many people came to it, fewer than 2^20. Attributes:

    first, second: `(hashes,)` uint64; people are the lowest 20 bits of the second word.
    sums: `(hashes, sums)` int64, of the values that these people brought.
    """

    first: WordArray
    second: WordArray
    sums: IntArray

    @staticmethod
    def empty(sums: int) -> Run:
        return Run(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros((0, sums), np.int64))

    def __len__(self) -> int:
        return len(self.first)

    @property
    def people(self) -> IntArray:
        return (self.second & _PEOPLE).astype(np.int64)

    def places(self, sought: Run) -> tuple[IntArray, BoolArray]:
        """Return where each sought hash is, or would be put; and whether it is there."""
        places = np.searchsorted(self.first, sought.first).astype(np.int64)
        wanted = sought.second & ~_PEOPLE
        while True:
            inside = np.flatnonzero(places < len(self))
            inside = inside[self.first[places[inside]] == sought.first[inside]]
            found = self.second[places[inside]] & ~_PEOPLE
            behind = inside[found < wanted[inside]]
            if not behind.size:
                break
            # Other hashes begin with the same word.
            places[behind] += 1
        there = np.zeros(len(sought), np.bool_)
        there[inside[found == wanted[inside]]] = True
        return places, there

    def some(self, rows: BoolArray | IntArray | slice) -> Run:
        """Return those of these rows."""
        return Run(self.first[rows], self.second[rows], self.sums[rows])

    def arrays(self) -> State:
        """Return the parts that it has, by name."""
        return {"first": self.first, "second": self.second} | ({"sums": self.sums} if self.sums.shape[1] else {})

    @staticmethod
    def of(state: State, name: str, sums: int) -> Run:
        """Return a stored run. Raises: KeyError if a part is not there."""
        first, second = state[f"{name}/first"].copy(), state[f"{name}/second"].copy()
        return Run(first, second, state[f"{name}/sums"].copy() if sums else np.zeros((len(first), 0), np.int64))

    def ids(self) -> list[bytes]:
        """Return the hashes as bytes."""
        return [row.tobytes() for row in np.stack((self.first, self.second & ~_PEOPLE), axis=1)]


@dataclass(frozen=True, slots=True, eq=False)
class PeriodTable:
    """See the module, and `engines.core.noise.listing.KeyTable`. Attributes:

    most: of a value. hash: of the period. held: number of keys. few: of each part the runs of keys of fewer people, the
    oldest first. index: hashes of candidates, and `rows` `(candidates,)` which candidate each is.
    keys: `(candidates, words)` uint64, in the order in which they became such: the last ones may be untested yet.
    totals: `(1 + sums, candidates)` int64, people, then the sums of their values.
    ends: `(tests,)` int64, number of candidates at each test so far. noise: `(1 + sums, tests, tested)` int64.
    found: `(tested,)` int64.
    """

    most: ClassVar[int] = LEVELS

    hash: KeyHash
    held: int
    few: tuple[tuple[Run, ...], ...]
    index: Run
    rows: IntArray
    keys: KeyArray
    totals: IntArray
    ends: IntArray
    noise: IntArray
    found: IntArray

    @staticmethod
    def empty(hashed: KeyHash, sums: int = 0) -> PeriodTable:
        """Return the table at a period's start. Args: sums: numbers that events have beside their key."""
        none, words = np.zeros(0, np.int64), hashed.words
        return PeriodTable(
            hash=hashed,
            held=0,
            few=((),) * PARTS,
            index=Run.empty(0),
            rows=none,
            keys=np.zeros((0, words), np.uint64),
            totals=np.zeros((1 + sums, 0), np.int64),
            ends=none,
            noise=np.zeros((1 + sums, 0, 0), np.int64),
            found=none,
        )

    @staticmethod
    def of_public(hashed: KeyHash, keys: KeyArray, sums: int = 0) -> PeriodTable:
        """Return the table of distinct public keys at a period's start: all are candidates, and nobody has any."""
        index, rows = _sorted(_hashes(hashed, keys))
        totals = np.zeros((1 + sums, len(keys)), np.int64)
        return replace(
            PeriodTable.empty(hashed, sums), held=len(keys), index=index, rows=rows, keys=keys.copy(), totals=totals
        )

    @property
    def counts(self) -> IntArray:
        """People who have each candidate, `(candidates,)`."""
        people: IntArray = self.totals[0]
        return people

    @property
    def sums(self) -> int:
        """Numbers that events have beside their key."""
        return len(self.totals) - 1

    @aggregate
    def added(self, events: Folded, *, least: int, most: int) -> PeriodTable:
        """Return the table with the new people of a step.

        Args: events: words of their keys, then for each value one of LEVELS more than it is. least: people of a
            candidate. most: keys.
        Raises: EngineInputError if more than `most` keys were in it. It says that the table is full, and nothing of
            what is in it.
        """
        texts, levels = np.split(events.keys, [self.hash.words], axis=1)
        brought = (levels.astype(np.int64) - LEVELS) * events.counts[:, np.newaxis]
        came, order = _sorted(_hashes(self.hash, texts, brought))
        people = events.counts[order]
        if self.sums:
            # Events of one key have as many rows as they have values.
            begins = _firsts(came)
            people, order = np.add.reduceat(people, begins), order[begins]
            came = replace(came.some(begins), sums=np.add.reduceat(came.sums, begins))
        places, known = self.index.places(came)
        totals = self.totals.copy()
        totals[:, self.rows[places[known]]] += np.vstack((people[known], came.sums[known].T))

        came, people, order = came.some(~known), people[~known], order[~known]
        new, whole, brought = np.ones(len(came), np.bool_), people.copy(), came.sums.copy()
        cuts = _cuts(came)
        for runs, (begin, end) in zip(self.few, pairwise(cuts), strict=True):
            for run in runs:
                places, known = run.places(came.some(slice(begin, end)))
                before = run.some(places[known])
                whole[begin:end][known] += before.people
                brought[begin:end][known] += before.sums
                new[begin:end] &= ~known
        held = self.held + int(new.sum())
        if held > most:
            raise EngineInputError(
                f"the table of keys is full: the step would need more than max_keys = {most:,}. Nothing is lost, and "
                'nothing was released. Fix: raise options.max_keys, or set options.sample = "1/16", which counts a '
                "public share of all keys, for a stream with another name"
            )
        risen = whole >= least
        step = replace(came, second=came.second | people.astype(np.uint64)).some(~risen)
        turn = len(self.ends) % PARTS
        # Copies: a slice would hold on to the hashes of all parts.
        few = tuple(
            _levelled((*runs, step.some(np.arange(begin, end))), whole=part == turn)
            for part, (runs, (begin, end)) in enumerate(zip(self.few, pairwise(_cuts(step)), strict=True))
        )
        up = came.some(risen)
        places, _ = self.index.places(up)
        first, second = (
            np.insert(getattr(self.index, name), places, getattr(up, name)) for name in ("first", "second")
        )
        numbers = np.arange(len(up)) + len(self.counts)
        return replace(
            self,
            held=held,
            few=few,
            index=Run(first, second, np.zeros((len(first), 0), np.int64)),
            rows=np.insert(self.rows, places, numbers),
            keys=np.concatenate((self.keys, texts[order[risen]])),
            totals=np.concatenate((totals, np.vstack((whole[risen], brought[risen].T))), axis=1),
        )

    def tested(self, noise: IntArray, found: IntArray) -> Self:
        return replace(self, ends=np.append(self.ends, len(found)), noise=noise, found=found)

    def by_hash(self) -> dict[bytes, tuple[int, ...]]:
        """Return the totals of each key, by hash; for checks."""
        found: dict[bytes, tuple[int, ...]] = {}
        for run in chain(*self.few):
            for name, *totals in zip(run.ids(), run.people.tolist(), *run.sums.T.tolist(), strict=True):
                before = found.get(name, (0,) * len(totals))
                found[name] = tuple(a + b for a, b in zip(before, totals, strict=True))
        return found | dict(zip(self.ids(), zip(*self.totals.tolist(), strict=True), strict=True))

    def ids(self) -> list[bytes]:
        """Return the hash of each candidate, as `by_hash` has it."""
        return _hashes(self.hash, self.keys).ids()

    def arrays(self) -> State:
        """Return what `of` takes. No array is ever written into, so these are no copies."""
        state = {
            "table/hash": self.hash.multipliers,
            "table/numbers": np.array([self.held, *map(len, self.few)], np.int64),
            "table/totals": self.totals,
            "table/ends": self.ends,
            "table/found": self.found,
        }
        for part, runs in enumerate(self.few):
            for number, run in enumerate(runs):
                state |= {f"few/{part}/{number}/{name}": array for name, array in run.arrays().items()}
        begin = 0
        for test, end in enumerate(self.ends.tolist()):
            state[f"keys/{test}"] = self.keys[begin:end]
            state[f"noise/{test}"] = np.ascontiguousarray(self.noise[:, test, :end])
            # What those that are new at this test have drawn for those before it.
            state[f"past/{test}"] = np.ascontiguousarray(self.noise[:, :test, begin:end])
            begin = end
        state["keys/new"] = self.keys[begin:]
        return state

    @staticmethod
    def of(state: State, *, words: int, tests: int, least: int, sums: int = 0) -> PeriodTable:
        """Return a stored table of so many tests. Raises: EngineInputError if arrays are missing or do not fit."""
        empty = PeriodTable.empty(KeyHash.none(words), sums)
        with reading():
            hashed, numbers, totals, ends, found = (
                state[f"table/{name}"].copy() for name in ("hash", "numbers", "totals", "ends", "found")
            )
            _require(numbers.shape == empty.arrays()["table/numbers"].shape and ends.shape == (tests,))
            _require((numbers >= 0).all() and (numbers[1:] <= len(state)).all())
            few = tuple(
                tuple(Run.of(state, f"few/{part}/{number}", sums) for number in range(runs))
                for part, runs in enumerate(numbers[1:].tolist())
            )
            keys, noise, past = (
                [state[f"{name}/{test}"] for test in range(tests)] for name in ("keys", "noise", "past")
            )
            new = state["keys/new"]
        begins = np.append(0, ends)
        sizes = np.diff(begins).tolist()
        _require(min(sizes, default=0) >= 0 and found.shape == (begins[-1],))
        _require(totals.shape == (1 + sums, begins[-1] + len(new)))
        keys.append(new)
        _require([each.shape for each in keys] == [(size, words) for size in (*sizes, len(new))])
        _require([each.shape for each in noise] == [(1 + sums, end) for end in ends.tolist()])
        _require([each.shape for each in past] == [(1 + sums, test, size) for test, size in enumerate(sizes)])
        every = list(chain(*few))
        signed = (numbers, totals, ends, found, *noise, *past, *(run.sums for run in every))
        _require({each.dtype.type for each in signed} == {np.int64})
        _require({each.dtype.type for run in every for each in (run.first, run.second)} <= {np.uint64})
        _require({each.dtype.type for each in (hashed, *keys)} == {np.uint64})
        _require(all(run.first.shape == run.second.shape == (len(run),) for run in every))
        _require(all(run.sums.shape == (len(run), sums) for run in every))
        _require(all(_cuts(run)[part : part + 2] == [0, len(run)] for part, runs in enumerate(few) for run in runs))
        _require(hashed.shape == empty.hash.multipliers.shape)
        _require(all(map(_ascending, every)) and all(((run.people > 0) & (run.people < least)).all() for run in every))
        _require((totals[0] >= least).all() and ((found >= 0) & (found <= tests)).all())
        _require(len(totals[0]) <= numbers[0] <= len(totals[0]) + sum(map(len, every)))
        texts = np.concatenate((empty.keys, *keys))
        index, rows = _sorted(_hashes(KeyHash(hashed), texts))
        _require(_ascending(index))
        whole = np.zeros((1 + sums, tests, len(found)), np.int64)
        for test, (begin, end) in enumerate(pairwise(begins)):
            whole[:, test, :end] = noise[test]
            whole[:, :test, begin:end] = past[test]
        return PeriodTable(KeyHash(hashed), int(numbers[0]), few, index, rows, texts, totals, ends, whole, found)


def _require(fits: object) -> None:
    if not fits:
        raise EngineInputError("the arrays of the table of keys do not fit together")


def _ascending(run: Run, *, equal: bool = False) -> bool:
    """Whether hashes are in ascending order; equal ones may be allowed."""
    if (run.first[1:] > run.first[:-1]).all():
        return True
    same = run.first[1:] == run.first[:-1]
    before, after = (run.second[at] & ~_PEOPLE for at in (slice(-1), slice(1, None)))
    return bool(((run.first[1:] > run.first[:-1]) | (same & ((after > before) | (equal & (after == before))))).all())


def _hashes(hashed: KeyHash, keys: KeyArray, sums: IntArray | None = None) -> Run:
    """Return the hashes of keys in their order, of no people."""
    return Run(*hashed.of(keys), np.zeros((len(keys), 0), np.int64) if sums is None else sums)


def _sorted(run: Run) -> tuple[Run, IntArray]:
    """Return hashes in ascending order, and which of them each was."""
    # Runs one after the other are sorted by merging them.
    order = np.argsort(run.first, kind="stable")
    ascending = run.some(order)
    if not _ascending(ascending, equal=True):
        order = np.lexsort((run.second, run.first))
        ascending = run.some(order)
    return ascending, order


def _firsts(run: Run) -> IntArray:
    """Return the first place of each of ascending hashes."""
    hashes = run.second & ~_PEOPLE
    new = np.ones(len(run), np.bool_)
    new[1:] = (run.first[1:] != run.first[:-1]) | (hashes[1:] != hashes[:-1])
    return np.flatnonzero(new)


def _cuts(run: Run) -> list[int]:
    """Return where each part of ascending hashes begins, and the end of the last one."""
    begins = np.arange(PARTS, dtype=np.uint64) << np.uint64(64 - _PART_BITS)
    return [*np.searchsorted(run.first, begins).tolist(), len(run)]


def _levelled(runs: tuple[Run, ...], *, whole: bool) -> tuple[Run, ...]:
    """Return the runs of a part with the last ones merged, from the first one on that is no larger than all behind it.

    Args: whole: else only as far as what is merged is small.
    """
    runs = tuple(run for run in runs if len(run))
    sizes = np.array([len(run) for run in runs])
    merged = np.cumsum(sizes[::-1])[::-1]
    due = 2 * sizes <= merged
    if not whole:
        due &= merged <= _OFTEN * sizes[-1:]
    begin = next(iter(np.flatnonzero(due).tolist()), len(runs))
    return (*runs[:begin], _merged(runs[begin:])) if begin < len(runs) else runs


def _merged(runs: tuple[Run, ...]) -> Run:
    """Return all hashes of several runs; people of equal ones are added up."""
    names = ("first", "second", "sums")
    run, _ = _sorted(Run(*(np.concatenate([getattr(each, name) for each in runs]) for name in names)))
    starts = _firsts(run)
    if len(starts) == len(run):
        return run
    people = np.add.reduceat(run.second & _PEOPLE, starts)
    return Run(run.first[starts], run.second[starts] & ~_PEOPLE | people, np.add.reduceat(run.sums, starts))
