"""Compares what a series released with the truth, for operators only: its numbers are not private."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, Literal

from engines.series.fields import SeriesDomain
from schemas.blocks import Folded


@dataclass(frozen=True, slots=True)
class SeriesEvaluator:
    """Implements `engines.core.contract.Evaluator`: `true`, `released` and `se` of the step.

    With several fields each name ends in the field's: `true_volume`.
    """

    domain: SeriesDomain

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(
            f"{name}{self._tail(index)}"
            for index in range(len(self.domain.fields))
            for name in ("true", "released", "se")
        )

    def _tail(self, index: int) -> str:
        return f"_{self.domain.fields[index].name}" if len(self.domain.fields) > 1 else ""

    @property
    def scope(self) -> Literal["alive", "step"]:
        return "step"

    @property
    def fields(self) -> tuple[str, ...]:
        return ("step", *(name for field in self.domain.fields for name in (field.name, f"{field.name}_se")))

    def size(self, truth: Folded) -> int:
        """Events of the step."""
        return truth.total

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        """Of the record that the step added. Not a number where there is none."""
        totals, present = self.domain.totals(truth)
        found = {}
        for index, field in enumerate(self.domain.fields):
            tail = self._tail(index)
            found[f"true{tail}"] = totals[index] * field.unit if present else nan
            for name, column in (("released", field.name), ("se", f"{field.name}_se")):
                values = synthetic[column]
                found[f"{name}{tail}"] = float(values[0]) if len(values) else nan
        return found

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.exact`."""
        (true, present), (released, _) = self.domain.totals(truth), self.domain.totals(kept)
        found = {}
        for index, field in enumerate(self.domain.fields):
            tail = self._tail(index)
            found[f"true{tail}"] = true[index] * field.unit if present else nan
            found[f"released{tail}"] = released[index] * field.unit
            found[f"se{tail}"] = 0.0
        return found
