"""What `explain` and `simulate` show of each engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import TYPE_CHECKING

from agents.show.pages.metrics import Metric, of_keys
from agents.show.presentation.contract import Presentation
from agents.show.presentation.error import ErrorModel
from engines.core.registry import build_engine, build_evaluator, part
from schemas.config import Stream

if TYPE_CHECKING:
    from agents.show.pages.report import StepRow
    from agents.show.pages.verdict import Judged


def presentation(stream: Stream) -> Presentation:
    """Of a stream's engine. Raises: PrivstreamError if there is none: an error is never left out."""
    found: Presentation = part(stream.engine, "presentation")
    return found


def expected_error(stream: Stream) -> ErrorModel:
    """Of a stream's answers, before anything is launched. Raises: EngineInputError if its engine cannot be built."""
    model = presentation(stream).error_model(stream, build_engine(stream).guarantee())
    if not stream.surplus:
        return model
    told = (
        "Releases are scaled up by what the bound drops, and these errors with them: where it drops half of the "
        "events they are twice as large."
    )
    return replace(model, conditions=f"{model.conditions} {told}")


def metrics_of(stream: Stream) -> Sequence[Metric]:
    """Every figure of a step, with what it means. Raises: EngineInputError if the evaluator cannot be built."""
    declared = presentation(stream).metrics(stream)
    return of_keys(declared, build_evaluator(stream).metrics, engine=stream.engine)


def shown(metrics: Sequence[Metric], step: Mapping[str, float | None]) -> Sequence[tuple[str, str]]:
    """Name and text of the figures of a step that are shown by themselves."""
    return [(metric.name, metric.said(step)) for metric in metrics if metric.tile]


def errors(metrics: Sequence[Metric], step: Mapping[str, float | None]) -> Mapping[str, float]:
    """Those of a step that are errors, by name; NaN where nothing was compared."""
    values = {metric.name: metric.value(step) for metric in metrics if metric.error}
    return {name: nan if value is None else value for name, value in values.items()}


def verdict(
    stream: Stream, judged: Sequence[Judged], metrics: Sequence[Metric], steps: Sequence[StepRow]
) -> list[tuple[str, str]]:
    """What the release is good for: a sentence, and what is beside it, for each kind of answer that the engine judges.

    Where it judges none: the last figures, whatever they are.
    """
    if judged:
        return [(each.sentence(), each.more) for each in judged]
    released = [row for row in steps if not row.gathered]
    if not released:
        return [("Nothing was released yet, so there is nothing to judge.", "")]
    found = []
    for metric in metrics:
        values = [value for row in released if (value := metric.value(row.metrics)) is not None]
        if values:
            mean = sum(values) / len(values)
            found.append(
                f"{metric.name} {metric.text(values[-1])} after the last step, {metric.text(mean)} in the mean of "
                f"{len(values):,} steps"
            )
    figures = "; ".join(found) or "nothing was compared"
    return [(f"{figures[0].upper()}{figures[1:]}.", f"What that is good for, engine {stream.engine} does not say.")]


__all__ = [
    "Presentation",
    "errors",
    "expected_error",
    "metrics_of",
    "presentation",
    "shown",
    "verdict",
]
