"""Engine `toy`: the number of events of each step with discrete Laplace noise.

Guarantee: epsilon-DP for one event, which is counted in one step: it moves one number by one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from engines.core.accounting.budgets import Budgets
from engines.core.contract import Batch, Columns, Release, ScalarKind, State, SyntheticRecord
from engines.core.noise import DiscreteLaplace, NoiseSource, aggregate, laplace_mechanism, scale_for
from schemas.arrays import KeyArray
from schemas.blocks import Folded
from schemas.config import Stream
from schemas.errors import EngineInputError
from schemas.guarantee import Guarantee, Mechanism


@aggregate
def total_of(events: Folded) -> int:
    """How many there are; private."""
    if events.keys.any():
        raise EngineInputError("a key is outside the domain")
    return int(events.counts.sum())


@dataclass(frozen=True, slots=True)
class Anything:
    """Every event has the one key there is; a delete is refused by the job, as no field says so."""

    field_name: str
    number_fields: tuple[str, ...] = ()
    words: int = 1

    @property
    def text_fields(self) -> tuple[str, ...]:
        return (self.field_name,)

    @property
    def value_fields(self) -> Mapping[str, frozenset[ScalarKind]]:
        return {}

    def encode(self, columns: Columns) -> tuple[KeyArray, npt.NDArray[np.uint8]]:
        events = len(columns.texts[self.field_name])
        return np.zeros((events, 1), np.uint64), np.zeros(events, np.uint8)


class Totals:
    def __init__(self, name: str, epsilon: Fraction) -> None:
        self._identity = np.frombuffer(hashlib.sha256(f"toy {name}".encode()).digest(), np.uint8)
        self._epsilon, self._scale = epsilon, scale_for(1, epsilon)
        self._next = 0
        self._budgets = Budgets.from_guarantee(self.guarantee())

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        if batch.step != self._next:
            raise EngineInputError(f"step {batch.step} is not the next one, {self._next}")
        total = total_of(batch.events)
        budgets = self._budgets.charged(self.guarantee(), "totals", step=batch.step)
        noisy = laplace_mechanism(total, self._scale, noise.child("total"))
        self._budgets, self._next = budgets, batch.step + 1
        return Release(
            step=batch.step,
            added=[SyntheticRecord(str(batch.step), {"count": noisy}, batch.step)],
            removed=(),
            measurements=[{"count": noisy, "variance": DiscreteLaplace(self._scale).variance}],
            total=self._next,
        )

    def state(self) -> State:
        header = np.array([1, self._next], np.int64)
        return {"header": header, "identity": self._identity.copy(), **self._budgets.arrays()}

    def restore(self, state: State) -> None:
        if not {"header", "identity"} <= state.keys():
            raise EngineInputError("state lacks a part")
        if state["header"][0] != 1 or not np.array_equal(state["identity"], self._identity):
            raise EngineInputError("state is of another version or stream")
        self._budgets, self._next = self._budgets.restored(state), int(state["header"][1])

    def guarantee(self) -> Guarantee:
        counts = Mechanism(
            name="number of events of a step",
            distribution="discrete Laplace",
            l1_sensitivity=1,
            scale=self._scale,
            epsilon=self._epsilon,
            account="totals",
        )
        return Guarantee(epsilon=self._epsilon, mechanisms=(counts,), note="An event is counted in one step.")


@dataclass(frozen=True, slots=True)
class TotalError:
    domain: Anything
    metrics: tuple[str, ...] = ("error",)
    scope: Literal["alive", "step"] = "step"
    fields: tuple[str, ...] = ("count",)

    def size(self, truth: Folded) -> int:
        return truth.total

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        return {"error": float(abs(sum(synthetic["count"]) - truth.total))}

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        return {"error": float(abs(kept.total - truth.total))}


def domain(stream: Stream) -> Anything:
    (field,) = stream.domain.fields
    return Anything(field)


def build(stream: Stream) -> Totals:
    return Totals(stream.name, stream.event_epsilon)


def evaluator(stream: Stream) -> TotalError:
    return TotalError(domain(stream))
