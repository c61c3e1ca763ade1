"""Utility of the trajectory engine, for operators only: true trips beside the synthetic ones a consumer holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from engines.core.contract import Columns
from engines.trajectory.domain import HASH, PLACE, TIME, TripDomain, places
from engines.trajectory.metrics import FIGURES, Truth
from engines.trajectory.trips import Trips
from schemas.arrays import IntArray
from schemas.blocks import Folded


@dataclass(frozen=True, slots=True)
class TrajectoryEvaluator:
    """Implements `engines.core.contract.Evaluator`: all trips so far, those under way too, as one set each."""

    domain: TripDomain
    trip_field: str = "trip"
    order_field: str = "point"

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(name.lower() for name in FIGURES)

    @property
    def scope(self) -> Literal["alive", "step"]:
        return "alive"

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.trip_field, self.order_field, *self.domain.number_fields)

    def size(self, truth: Folded) -> int:
        """Points."""
        return len(truth.keys)

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.measure`; NaN where there is no true trip yet."""
        if not len(truth.keys):
            return dict.fromkeys(self.metrics, float("nan"))
        return self._errors(truth, self.synthetic_trips(synthetic))

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.exact`; NaN where there is no true trip yet."""
        if not len(truth.keys):
            return dict.fromkeys(self.metrics, float("nan"))
        return self._errors(truth, self.true_trips(kept) if len(kept.keys) else Trips.none())

    def _errors(self, truth: Folded, trips: Trips) -> dict[str, float]:
        return {name.lower(): value for name, value in Truth.of(self.true_trips(truth)).errors(trips).items()}

    @staticmethod
    def true_trips(truth: Folded) -> Trips:
        """Trips of held-out events, each in the order of its times."""
        keys = truth.keys
        keys = keys[np.lexsort((keys[:, PLACE], keys[:, TIME], *keys[:, HASH].T[::-1]))]
        names = np.unique(keys[:, HASH], axis=0, return_inverse=True)[1].reshape(-1)
        return _trips(*places(keys), names)

    def synthetic_trips(self, synthetic: Mapping[str, Sequence[Any]]) -> Trips:
        """Trips of the columns `fields` of synthetic records."""
        numbers = {name: np.array(synthetic[name], np.float64) for name in self.domain.number_fields}
        keys, reasons = self.domain.encode(
            Columns(numbers, {}, np.ones(len(synthetic[self.trip_field]), np.int8), _nothing(self.domain, numbers))
        )
        if not len(keys):
            return Trips.none()
        names = np.unique(np.array(synthetic[self.trip_field], str), return_inverse=True)[1].reshape(-1)
        order = np.lexsort((np.array(synthetic[self.order_field], np.int64), names))
        order = order[reasons[order] == 0]
        x, y = places(keys[order])
        return _trips(x, y, names[order])


def _nothing(domain: TripDomain, numbers: Mapping[str, np.ndarray]) -> dict[str, list[None]]:
    count = len(numbers[domain.x_field])
    return {name: [None] * count for name in domain.value_fields}


def _trips(x: IntArray, y: IntArray, names: IntArray) -> Trips:
    """Points that stand trip by trip."""
    sizes = np.bincount(names)
    return Trips(x, y, np.append(0, np.cumsum(sizes[sizes > 0])))
