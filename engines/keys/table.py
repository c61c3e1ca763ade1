"""The table of a period: every key that came, with how many people have it. PRIVATE, its size too.

It takes memory for every key, listed or not: 16 bytes and the key, up to a public number of keys. A full table stops
its stream before the step that is too much: a table that dropped keys would let one person's keys push out others'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from engines.core.contract import State
from engines.core.noise import aggregate
from engines.core.state import reading
from schemas.arrays import IntArray, KeyArray
from schemas.blocks import Folded
from schemas.errors import EngineInputError


@dataclass(frozen=True, slots=True, eq=False)
class PeriodTable:
    """See `engines.core.noise.listing.KeyTable`. Attributes:

    keys: `(keys, words)` uint64, ascending. counts: `(keys,)` int64.
    rows: `(tested,)` int64. found: `(tested,)` int64. noise: `(tested, tests)` int64.
    """

    keys: KeyArray
    counts: IntArray
    rows: IntArray
    found: IntArray
    noise: IntArray

    @staticmethod
    def empty(words: int) -> PeriodTable:
        """Return the table at a period's start."""
        none = np.zeros(0, np.int64)
        return PeriodTable(np.zeros((0, words), np.uint64), none, none, none, np.zeros((0, 0), np.int64))

    @aggregate
    def added(self, events: Folded, *, most: int) -> PeriodTable:
        """Return the table with the new people of a step. Raises: EngineInputError if more than `most` keys were in it.

        It says that the table is full, and nothing of what is in it.
        """
        places, known = _places(self.keys, events.keys)
        new = np.flatnonzero(~known)
        if len(self.keys) + new.size > most:
            raise EngineInputError(
                f"the table of keys is full: the step would need more than max_keys = {most:,}. Nothing is lost, and "
                'nothing was released. Fix: raise options.max_keys, or set options.sample = "1/16", which counts a '
                "public share of all keys, for a stream with another name"
            )
        counts = self.counts.copy()
        counts[places[known]] += events.counts[known]
        rows = self.rows + np.searchsorted(places[new], self.rows, side="right")
        return replace(
            self,
            keys=np.insert(self.keys, places[new], events.keys[new], axis=0),
            counts=np.insert(counts, places[new], events.counts[new]),
            rows=rows,
        )

    def tested(self, rows: IntArray, noise: IntArray, found: IntArray) -> Self:
        """See `engines.core.noise.listing.KeyTable`."""
        return replace(self, rows=rows, noise=noise, found=found)

    def arrays(self) -> State:
        """Return what `of` takes."""
        tested = {f"tested/{name}": getattr(self, name).copy() for name in ("rows", "found", "noise")}
        return {"table/keys": self.keys.copy(), "table/counts": self.counts.copy(), **tested}

    @staticmethod
    def of(state: State, *, words: int, tests: int) -> PeriodTable:
        """Return a stored table of so many tests. Raises: EngineInputError if arrays are missing or do not fit."""
        with reading():
            keys, counts = state["table/keys"], state["table/counts"]
            rows, found, noise = state["tested/rows"], state["tested/found"], state["tested/noise"]
        fits = (
            keys.shape == (len(counts), words)
            and rows.shape == found.shape
            and noise.shape == (len(rows), tests)
            and (keys.dtype, *(each.dtype for each in (counts, rows, found, noise))) == (np.uint64, *[np.int64] * 4)
            and (_texts(keys)[1:] > _texts(keys)[:-1]).all()
            and (rows[1:] > rows[:-1]).all()
            and (not rows.size or (rows[0] >= 0 and rows[-1] < len(keys)))
            and ((found >= 0) & (found <= tests)).all()
        )
        if not fits:
            raise EngineInputError("the arrays of the table of keys do not fit together")
        return PeriodTable(*(each.copy() for each in (keys, counts, rows, found, noise)))


def _places(keys: KeyArray, sought: KeyArray) -> tuple[IntArray, np.ndarray]:
    """Return where each sought key is in ascending keys, or would be put; and whether it is there."""
    table, wanted = _texts(keys), _texts(sought)
    places = np.searchsorted(table, wanted)
    known = np.zeros(places.size, np.bool_)
    inside = places < len(table)
    known[inside] = table[places[inside]] == wanted[inside]
    return places.astype(np.int64), known


def _texts(keys: KeyArray) -> np.ndarray:
    """Return keys as `(keys,)` bytes, which have the order of their words; NULs at the end are no part of a key."""
    return np.ascontiguousarray(keys.astype(">u8")).view(f"S{8 * keys.shape[1]}").reshape(len(keys))
