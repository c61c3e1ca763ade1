"""Deletes that `ttl` makes of inserts: what is due at which step. Private, as it repeats the inserts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engines.core.noise import aggregate
from engines.core.state import reading
from schemas.blocks import Folded
from schemas.errors import EngineInputError

_DELETE = np.uint64(1)


@dataclass(frozen=True, slots=True, eq=False)
class Expiry:
    """Deletes by step, in the order in which they fall due. Attributes:

    words: of a key; the lowest bit of the first one says delete.
    """

    due: tuple[tuple[int, Folded], ...]
    words: int = 1

    @staticmethod
    def empty(words: int = 1) -> Expiry:
        return Expiry((), words)

    @aggregate
    def scheduled(self, events: Folded, *, due: int) -> Expiry:
        """Delete the inserts among `events` at step `due`, later than all before."""
        inserts = (events.keys[:, 0] & _DELETE) == 0
        if not inserts.any():
            return self
        keys = events.keys[inserts]
        keys[:, 0] |= _DELETE
        return Expiry((*self.due, (due, Folded(keys, events.counts[inserts]))), self.words)

    @aggregate
    def taken(self, step: int) -> tuple[Folded, Expiry]:
        """What is due at `step` or before, and the rest."""
        now = [folded for due, folded in self.due if due <= step]
        return Folded.empty(self.words).merge(*now), Expiry(self.due[len(now) :], self.words)

    def arrays(self) -> dict[str, np.ndarray]:
        parts = [folded for _, folded in self.due]
        return {
            "expiry/due": np.array([due for due, _ in self.due], np.int64),
            "expiry/rows": np.array([len(part.counts) for part in parts], np.int64),
            "expiry/keys": np.concatenate([np.zeros((0, self.words), np.uint64), *(part.keys for part in parts)]),
            "expiry/counts": np.concatenate([np.zeros(0, np.int64), *(part.counts for part in parts)]),
        }

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> Expiry:
        """Raises: EngineInputError if arrays are missing or do not fit together."""
        with reading():
            due, rows = arrays["expiry/due"].tolist(), arrays["expiry/rows"].tolist()
            keys, counts = arrays["expiry/keys"].copy(), arrays["expiry/counts"].copy()
        if len(due) != len(rows) or sum(rows) != len(keys) or len(keys) != len(counts):
            raise EngineInputError("the state's deletes to come do not fit together")
        parts, start = [], 0
        for step, size in zip(due, rows, strict=True):
            parts.append((step, Folded(keys[start : start + size], counts[start : start + size])))
            start += size
        return Expiry(tuple(parts), keys.shape[1])
