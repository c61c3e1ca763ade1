"""Compares released counts of states with the true ones, for operators only: its numbers are not private."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from engines.markov.domain import StatesDomain
from schemas.blocks import Folded


@dataclass(frozen=True, slots=True)
class MarkovEvaluator:
    """Implements `engines.core.contract.Evaluator` with the metric mse: of this step's counts as first released.

    Revisions of earlier steps are passed over, since their truth is gone by then.
    """

    metrics: ClassVar[tuple[str, ...]] = ("mse",)
    scope: ClassVar[Literal["alive", "step"]] = "step"

    domain: StatesDomain

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.domain.field_name, "count", "revised")

    def size(self, truth: Folded) -> int:
        return truth.total

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.measure`. NaN where nothing was released, as beyond the horizon."""
        true = self.domain.counts(truth).astype(np.float64)
        released, found = np.zeros(len(true)), False
        states = {value: number for number, value in enumerate(self.domain.values)}
        columns = (synthetic[name] for name in self.fields)
        for value, count, revised in zip(*columns, strict=True):
            if value in states and not revised:
                released[states[value]] = count
                found = True
        return {"mse": float(np.mean((true - released) ** 2)) if found else float("nan")}

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        gaps = self.domain.counts(truth).astype(np.float64) - self.domain.counts(kept)
        return {"mse": float(np.mean(gaps**2))}
