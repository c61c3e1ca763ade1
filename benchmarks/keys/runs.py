"""What is run, and the figures of a run.

`streams`: the real streams, at every bound. `synthetic`: the stream that DP-SQLP is published on. `zones` and `weeks`:
people of zones, in all weeks so far and in each week, see `benchmarks.keys.zones`. `table`: memory and time of keys
that are not found, see `benchmarks.table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np

from benchmarks import table
from benchmarks.keys import streams, zones
from benchmarks.keys.methods import BATCHES, DEFAULT, ENGINE, METHODS, SQLP, Setting
from benchmarks.papers.keys import Found
from benchmarks.results import Run
from benchmarks.size import sized
from schemas.arrays import IntArray

STREAMS, SYNTHETIC, ZONES, WEEKS, TABLE = "streams", "synthetic", "zones", "weeks", "table"
BOUNDS = sized((1, 2, 4, 8, 16, 32, 64), smallest=(4,))
EPSILON, DELTA = sized(1.0, smallest=20.0), 1e-6
SYNTHETIC_EPSILON, SYNTHETIC_DELTA = 6.0, 1e-9
FEW, MANY = 10, streams.TESTS
SEEDS = sized(5, smallest=1)
FEWER_SEEDS = sized(3, smallest=1)
"""Of what takes long, and varies little."""
SYNTHETIC_DATA = "10^7 users, 10^6 keys"
TABLE_DATA = f"{table.STEPS} steps of {table.KEYS} keys"


def at(method: str, tests: int) -> str:
    """Name a method in the results."""
    return f"{method}, {tests} tests"


def methods(part: str) -> dict[str, tuple[str, int]]:
    """Methods and tests of a part, by name in the results."""
    named = {at(DEFAULT, FEW): (DEFAULT, FEW)}
    named |= {at(name, tests): (name, tests) for tests in (FEW, MANY) for name in (ENGINE, SQLP)}
    if part == SYNTHETIC:
        del named[at(SQLP, FEW)]
        return named | {BATCHES[0]: (BATCHES[0], 1)}
    return named | {name: (name, 1) for name in BATCHES}


def planned(*, quick: bool) -> Iterator[Run]:
    """What takes longest comes last, and some of it is no part of a quick run."""
    there = [name for name in streams.FILES if streams.path(name).exists()]
    placed = [name for name, people in zones.SETS_OF_PEOPLE.items() if people.file.exists()]
    named, many = methods(STREAMS), [at(name, MANY) for name in (ENGINE, SQLP)]
    few = [name for name in named if name not in many]
    seeds, fewer = (1, 1) if quick else (SEEDS, FEWER_SEEDS)
    yield from _runs(STREAMS, there, few, seeds)
    yield from _runs(TABLE, [TABLE_DATA], [ENGINE], 1)
    yield from _runs(ZONES, placed, zones.METHODS, seeds)
    yield from _runs(SYNTHETIC, [SYNTHETIC_DATA], methods(SYNTHETIC), fewer)
    if not quick:
        yield from _runs(STREAMS, there, many, fewer)
    yield from _runs(WEEKS, placed, zones.METHODS, fewer)


def _runs(part: str, data: Iterable[str], named: Iterable[str], seeds: int) -> Iterator[Run]:
    for name, method, seed in product(data, named, range(seeds)):
        yield Run(part, name, method, seed)


def figures(run: Run) -> dict[str, float]:
    """Run one method once: on real data at every bound."""
    if run.part == TABLE:
        return table.figures()
    if run.part in (ZONES, WEEKS):
        return zones.figures(run.data, run.method, run.seed, weekly=run.part == WEEKS)
    name, tests = methods(run.part)[run.method]
    if run.part == SYNTHETIC:
        increments = streams.fewer_tests(streams.synthetic(), tests)
        found = METHODS[name](increments, Setting(SYNTHETIC_EPSILON, SYNTHETIC_DELTA, streams.BOUND), run.seed)
        return {"keys": _found(found, tests - 1), **_errors(found, increments)}
    pairs = streams.pairs(run.data)
    told: dict[str, float] = {}
    for bound in BOUNDS:
        increments = pairs.counts(bound, tests)
        found = METHODS[name](increments, Setting(EPSILON, DELTA, bound), run.seed)
        told[f"keys, m={bound}"] = _found(found, tests - 1)
        told[f"rmse, m={bound}"] = _errors(found, increments)["rmse"]
        if tests == FEW:
            told |= {f"by test {test + 1}, m={bound}": _found(found, test) for test in range(tests)}
    return told


def _found(found: Found, test: int) -> float:
    """Return how many keys a test, from 0, and those before it found."""
    return float((found.tests <= test).sum())


def _errors(found: Found, increments: IntArray) -> dict[str, float]:
    """Return by how much public counts are off at the end: those of keys that are not found are 0."""
    truth = increments.sum(axis=1, dtype=np.int64)
    off = np.abs(np.rint(np.maximum(found.counts, 0)) - truth)
    shown = found.tests < increments.shape[1]
    deviation = float(np.sqrt((off[shown] ** 2).mean())) if shown.any() else 0.0
    return {"l1": float(off.sum()), "l2": float(np.sqrt((off**2).sum())), "rmse": deviation}
