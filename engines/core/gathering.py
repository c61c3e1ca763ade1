"""What a batch must be, and events that wait for the first release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engines.core.contract import Batch, State
from engines.core.noise import aggregate
from engines.core.state import reading
from schemas.arrays import IntArray, KeyArray
from schemas.blocks import Folded
from schemas.errors import EngineInputError


@aggregate
def check_batch(batch: Batch, *, step: int, depth: int) -> None:
    """Refuse events that are not of a domain of this depth, or not of the next step. Raises: EngineInputError."""
    if batch.step != step:
        raise EngineInputError(f"step {batch.step} is not the next one, {step}")
    keys, counts = batch.events.keys, batch.events.counts
    if keys.ndim != 2 or keys.shape[1] != 1 or counts.shape != keys.shape[:1]:
        raise EngineInputError("events must have one word a key and one count each")
    if keys.dtype != np.uint64 or counts.dtype != np.int64:
        raise EngineInputError("keys must be uint64 and counts int64")
    if len(keys) and (int(keys.max()) >> (depth + 1) or int(counts.min()) < 1):
        raise EngineInputError("a key is outside the domain or a count is not positive")
    if (keys[1:] <= keys[:-1]).any():
        raise EngineInputError("keys must be distinct and ascending")


merged = aggregate(Folded.merge)
"""Events of several sources as one; private."""


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """Events of the first steps, PRIVATE. Attributes:

    keys: `(rows, 1)` uint64. counts: `(rows,)` int64. steps: `(rows,)` int64, when they came.
    """

    keys: KeyArray
    counts: IntArray
    steps: IntArray

    @staticmethod
    def nothing() -> Gathered:
        return Gathered(np.zeros((0, 1), np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64))

    @aggregate
    def with_batch(self, batch: Batch, *, ttl: int | None) -> Gathered:
        """Add a step's events, and drop those too old by then, unseen. Without a ttl their steps do not matter."""
        if ttl is None:
            both = self.all().merge(batch.events)
            return Gathered(both.keys, both.counts, np.zeros(len(both.counts), np.int64))
        steps = np.concatenate([self.steps, np.full(len(batch.events.counts), batch.step)])
        young = steps > batch.step - ttl
        return Gathered(
            np.concatenate([self.keys, batch.events.keys])[young],
            np.concatenate([self.counts, batch.events.counts])[young],
            steps[young],
        )

    @aggregate
    def all(self) -> Folded:
        """All events, folded."""
        return Folded.of(self.keys, self.counts)

    def arrays(self) -> State:
        return {
            "pending/keys": self.keys.copy(),
            "pending/counts": self.counts.copy(),
            "pending/steps": self.steps.copy(),
        }

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> Gathered:
        """Raises: EngineInputError if arrays are missing or of different lengths."""
        with reading():
            keys = np.array(arrays["pending/keys"], np.uint64).reshape(-1, 1)
            counts = np.array(arrays["pending/counts"], np.int64)
            steps = np.array(arrays["pending/steps"], np.int64)
        if not len(keys) == len(counts) == len(steps):
            raise EngineInputError("the state's gathered events do not fit together")
        return Gathered(keys, counts, steps)
