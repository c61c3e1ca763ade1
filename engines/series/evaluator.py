"""Compares what a series released with the truth, for operators only: its numbers are not private."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any, ClassVar, Literal

from engines.series.fields import SeriesDomain
from engines.series.histograms import NoisyHistogram
from schemas.blocks import Folded


@dataclass(frozen=True, slots=True)
class SeriesEvaluator:
    """Implements `engines.core.contract.Evaluator`: `true`, `released` and `se` of the step.

    With several numbers each name ends in the number's, and in its group: `true_volume`, `true_delay_p95_AA`. With
    groups there is an `error` of each number, that of its groups on average.
    """

    scope: ClassVar[Literal["alive", "step"]] = "step"

    domain: SeriesDomain

    @property
    def metrics(self) -> tuple[str, ...]:
        each = tuple(f"{what}{one.tail}" for one in compared(self.domain) for what in ("true", "released", "se"))
        return (*each, *(f"error_{name}" for name in self._names if self.domain.by is not None))

    @property
    def _names(self) -> Iterable[str]:
        return dict.fromkeys(one.name for one in compared(self.domain))

    @property
    def fields(self) -> tuple[str, ...]:
        by = () if self.domain.by is None else (self.domain.by.field,)
        return ("step", *by, *(part for name in self._names for part in (name, f"{name}_se")))

    def size(self, truth: Folded) -> int:
        """Return the number of events of the step."""
        return truth.total

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        """Compare the records that the step added, one for each group. Not a number where there is none."""
        found: dict[str, float] = {}
        true, by = self._numbers(truth), self.domain.by
        groups = [None] * len(synthetic["step"]) if by is None else list(synthetic[by.field])
        rows = {group: row for row, group in enumerate(groups)}
        for one in compared(self.domain):
            found[f"true{one.tail}"] = true[one.name, one.group]
            for what, column in (("released", one.name), ("se", f"{one.name}_se")):
                value = synthetic[column][rows[one.group]] if one.group in rows else None
                found[f"{what}{one.tail}"] = nan if value is None else float(value)
        return found | self._errors(found)

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        true, released = self._numbers(truth), self._numbers(kept)
        found: dict[str, float] = {}
        for one in compared(self.domain):
            place = (one.name, one.group)
            found |= {f"true{one.tail}": true[place], f"released{one.tail}": released[place], f"se{one.tail}": 0.0}
        return found | self._errors(found)

    def _errors(self, found: Mapping[str, float]) -> dict[str, float]:
        """Return by number how far its groups are off on average, those that have it."""
        if self.domain.by is None:
            return {}
        errors: dict[str, list[float]] = {f"error_{name}": [] for name in self._names}
        for one in compared(self.domain):
            error = abs(found[f"released{one.tail}"] - found[f"true{one.tail}"])
            if not isnan(error):
                errors[f"error_{one.name}"].append(error)
        return {name: sum(each) / len(each) if each else nan for name, each in errors.items()}

    def _numbers(self, events: Folded) -> dict[tuple[str, str | None], float]:
        """Return the exact numbers of a step by name and group. Of a histogram, percentiles as from counts of bins."""
        totals, present = self.domain.totals(events)
        numbers: dict[tuple[str, str | None], float] = {}
        for (field, group), total in zip(self.domain.parts, totals, strict=True):
            if field.edges is None:
                numbers[field.name, group] = total * field.unit if present else nan
                continue
            histogram = NoisyHistogram(field.edges, total, 0.0)
            for what in COMPARED:
                value = histogram.number(what, 1.0).value
                numbers[f"{field.name}_{what}", group] = nan if value is None else value
        return numbers


COMPARED = ("count", "p50", "p95")
"""Numbers of a histogram that are compared."""


@dataclass(frozen=True, slots=True)
class ComparedNumber:
    """A number of a step that is compared with the truth.

    Attributes:
        name: field of the released record. group: of which it is; None: of all events.
        tail: what it adds to the names of its metrics.
    """

    name: str
    group: str | None
    tail: str


def compared(domain: SeriesDomain) -> list[ComparedNumber]:
    """Return the numbers that are compared, all groups of the first one first."""
    names = [
        name
        for field in domain.fields
        for name in ([field.name] if field.edges is None else [f"{field.name}_{what}" for what in COMPARED])
    ]
    # The only number of a stream needs no name.
    alone = len(names) == 1 and domain.by is None
    return [
        ComparedNumber(name, group, "" if alone else f"_{name}" if group is None else f"_{name}_{group}")
        for name in names
        for group in domain.groups
    ]
