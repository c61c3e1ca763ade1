"""Compares what a series released with the truth, for operators only: its numbers are not private."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, Literal

from engines.series.fields import SeriesDomain
from engines.series.histograms import NoisyHistogram
from schemas.blocks import Folded


@dataclass(frozen=True, slots=True)
class SeriesEvaluator:
    """Implements `engines.core.contract.Evaluator`: `true`, `released` and `se` of the step.

    With several numbers each name ends in the number's: `true_volume`, `true_delay_p95`.
    """

    domain: SeriesDomain

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(f"{what}{tail}" for _, tail in compared(self.domain) for what in ("true", "released", "se"))

    @property
    def scope(self) -> Literal["alive", "step"]:
        return "step"

    @property
    def fields(self) -> tuple[str, ...]:
        return ("step", *(part for name, _ in compared(self.domain) for part in (name, f"{name}_se")))

    def size(self, truth: Folded) -> int:
        """Events of the step."""
        return truth.total

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        """Of the record that the step added. Not a number where there is none."""
        found: dict[str, float] = {}
        true = self._numbers(truth)
        for name, tail in compared(self.domain):
            found[f"true{tail}"] = true[name]
            for what, column in (("released", name), ("se", f"{name}_se")):
                values = synthetic[column]
                found[f"{what}{tail}"] = float(values[0]) if len(values) and values[0] is not None else nan
        return found

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.exact`."""
        true, released = self._numbers(truth), self._numbers(kept)
        found: dict[str, float] = {}
        for name, tail in compared(self.domain):
            found |= {f"true{tail}": true[name], f"released{tail}": released[name], f"se{tail}": 0.0}
        return found

    def _numbers(self, events: Folded) -> dict[str, float]:
        """Return the exact numbers of a step by their names. Of a histogram, percentiles as from counts of bins."""
        totals, present = self.domain.totals(events)
        numbers = {}
        for field, total in zip(self.domain.fields, totals, strict=True):
            if field.edges is None:
                numbers[field.name] = total * field.unit if present else nan
                continue
            histogram = NoisyHistogram(field.edges, total, 0.0)
            for what in COMPARED:
                value = histogram.number(what, 1.0).value
                numbers[f"{field.name}_{what}"] = nan if value is None else value
        return numbers


COMPARED = ("count", "p50", "p95")
"""Numbers of a histogram that are compared."""


def compared(domain: SeriesDomain) -> list[tuple[str, str]]:
    """Return the name of each number that is compared, and what it adds to the names of its metrics."""
    names = [
        name
        for field in domain.fields
        for name in ([field.name] if field.edges is None else [f"{field.name}_{what}" for what in COMPARED])
    ]
    return [(name, f"_{name}" if len(names) > 1 else "") for name in names]
