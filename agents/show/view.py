"""What an engine shows of itself: one `View`, as data, for the reports, `explain` and the live page.

An engine says here which figures, charts, tables and sentences it has, and how they follow from releases and true
values. It draws nothing: `agents.show.charts` and the templates turn what it says into pages, in the same way for every
engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from math import isnan, nan
from typing import Any, Literal

import numpy as np

from agents.protocol.release.held_out import HeldOutAudit
from agents.show.charts import Chart, Curve, LineChart, Panel
from agents.show.noise import ErrorModel
from agents.show.pictures import Picture
from engines.core.registry import build_engine, build_evaluator, part
from schemas.arrays import FloatArray
from schemas.config import Stream
from schemas.guarantee import Guarantee

GOOD, POOR = 0.10, 0.50
"""An error up to the first is good; beyond the second an answer is not worth reading."""
RULE = (
    f"“Good” is an error of at most {GOOD:.0%} of the true counts; “not” is more than {POOR:.0%}; what lies between "
    "is rough."
)


def plain(value: float) -> str:
    """Return a number with three digits that matter."""
    return f"{value:.3g}"


def percent(share: float) -> str:
    """Return a share as a person reads it.

    >>> percent(0.0834), percent(1.4), percent(0.004), percent(0.0)
    ('8.3 %', '140 %', '0.4 %', '0 %')
    """
    value = 100 * share
    return f"{value:,.0f} %" if value >= 10 else f"{value:.2g} %"


def known(value: float | None) -> bool:
    """Return False for a missing value: JSON has no NaN, so it comes back as null."""
    return value is not None and not isnan(value)


@dataclass(frozen=True, slots=True)
class Term:
    """A word of a page, explained at its end."""

    name: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure of a step: what it is called, what it means and which way is better.

    Attributes:
        keys: names of an `Evaluator`'s values that it is worked out from, as in steps.csv and on the utility topic.
        label: its name in words. short: its abbreviation in papers; empty where there is none.
        meaning: a sentence or two. better: which way; empty where neither is. baseline: what to compare it with.
        of: a function of the values of `keys`. text: how a value is written.
        tile: whether it is shown by itself. error: whether `tune` compares it: 0 is exact, less is better.
    """

    keys: tuple[str, ...]
    label: str
    meaning: str
    short: str = ""
    better: Literal["less", "more", ""] = "less"
    baseline: str = ""
    of: Callable[..., float] = lambda value: value
    text: Callable[[float], str] = plain
    tile: bool = True
    error: bool = True

    @property
    def name(self) -> str:
        return f"{self.label} ({self.short})" if self.short else self.label

    @property
    def explained(self) -> str:
        """The meaning, which way is better, and what to compare it with."""
        better = {"less": " Less is better; 0 is exact.", "more": " More is better.", "": ""}[self.better]
        return f"{self.meaning}{better}{f' {self.baseline}' if self.baseline else ''}"

    @property
    def term(self) -> Term:
        """An entry of the glossary, with the names that files and topics have for it."""
        keys = ", ".join(self.keys)
        return Term(self.name, f"{self.explained} In steps.csv and on the utility topic: {keys}.")

    def value(self, metrics: Mapping[str, float | None]) -> float | None:
        """Return the value in a step; None where nothing was compared."""
        values = [value for key in self.keys if known(value := metrics.get(key))]
        return self.of(*values) if len(values) == len(self.keys) else None

    def said(self, metrics: Mapping[str, float | None]) -> str:
        """Return the value in a step as text."""
        value = self.value(metrics)
        return "nothing compared" if value is None else self.text(value)


@dataclass(frozen=True, slots=True)
class StepRow:
    """A line of steps.csv. `events` and the metrics are true values.

    Attributes: frame: what the engine keeps of some steps to show how things went, see `View.frame`.
    """

    step: int
    start: datetime
    events: int
    released_total: int
    metrics: Mapping[str, float]
    true_total: int
    gathered: bool
    frame: Any = None


def relative(true: FloatArray, made: FloatArray) -> float:
    """Return the sum of all differences, without signs, over the sum of the true counts; NaN where that is zero.

    >>> relative(np.array([90.0, 10.0]), np.array([84.0, 12.0]))
    0.08
    """
    total = float(np.abs(true).sum())
    return float(np.abs(made - true).sum()) / total if total else nan


@dataclass(frozen=True, slots=True)
class Scale:
    """Answers of one size. `error` is relative; `baseline` is the error of a release that knows only the total."""

    name: str
    error: float
    baseline: float = nan

    @property
    def judgement(self) -> Literal["good", "rough", "not"]:
        return "good" if self.error <= GOOD else "not" if self.error > POOR else "rough"

    def __str__(self) -> str:
        return f"{self.name}, errors of {percent(self.error)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What answers of one kind are good for.

    Attributes:
        what: name of the kind. scales: from coarse to fine. beyond: what is coarser than a scale, in two words.
        how: how errors were measured, in a sentence. baseline: what the baseline is, empty where there is none.
        more: a sentence or two beside the verdict.
    """

    what: str
    scales: Sequence[Scale]
    how: str
    beyond: str = "and larger"
    baseline: str = ""
    more: str = ""

    @property
    def known(self) -> Sequence[Scale]:
        return [scale for scale in self.scales if not isnan(scale.error)]

    def sentence(self) -> str:
        """Return the verdict.

        >>> scales = [Scale("districts", 0.08), Scale("streets", 1.4)]
        >>> Judged(what="Counts by place", scales=scales, how="").sentence()
        'Counts by place: good for districts, errors of 8 %; not for streets, errors of 140 %.'
        """
        return f"{self.what}: {self._verdict()}."

    def _verdict(self) -> str:
        scales = self.known
        if not scales:
            return "there is nothing to compare yet"
        good = list(takewhile(lambda scale: scale.judgement == "good", scales))
        if len(scales) == 1:
            return f"{scales[0].judgement.replace('not', 'not good')} for {scales[0]}"
        if len(good) == len(scales):
            return f"good down to {scales[-1]}, the finest that was looked at"
        poor = [scale for scale in scales if scale.judgement == "not"]
        if len(poor) == len(scales):
            return f"good for nothing that was looked at: even {scales[0]}"
        if good:
            first = f"good for {good[-1]}{f', {self.beyond}' if len(good) > 1 else ''}"
        else:
            # Scales need not be nested: a finer one can be good where a coarser one is not.
            best = min(scales, key=lambda scale: scale.error)
            first = f"{'good only for' if best.judgement == 'good' else 'rough at best,'} {best}"
        rough = [scale for scale in scales if scale.judgement == "rough"]
        return f"{first}; {'not' if poor else 'rough'} for {poor[0] if poor else rough[-1]}"


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A part of a report: charts and tables under a heading. `sub` says what is to be seen."""

    heading: str
    sub: str
    charts: Sequence[Chart]


def over_time(
    heading: str,
    sub: str,
    metrics: Mapping[Metric, str],
    steps: Sequence[StepRow],
    *,
    what: str,
    names: Sequence[str] = (),
) -> Iterator[ReportSection]:
    """Yield a section with a line for each metric, of its colour, over the steps where all are known; or nothing.

    Args: what: is on the vertical axis, with its unit. names: of the lines, where they are not the metrics'.
    """
    rows = [(row.start, [metric.value(row.metrics) for metric in metrics]) for row in steps if not row.gathered]
    rows = [(start, values) for start, values in rows if None not in values]
    if rows:
        text = next(iter(metrics)).text
        lines = {
            name: Curve([values[index] or 0.0 for _, values in rows], colour)
            for index, (name, colour) in enumerate(
                zip(names or [metric.name for metric in metrics], metrics.values(), strict=True)
            )
        }
        panel = Panel(lines=lines, what=what, text=text, shares=text is percent)
        yield ReportSection(heading, sub, [LineChart(x=[start for start, _ in rows], panels=[panel])])


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that reports, `explain` and the live page show of an engine. Every function takes a stream of the engine.

    Attributes:
        domain: the public domain in a sentence.
        error_model: the error to expect. Raises: PrivstreamError where there is none: an error is never left out.
        sections: truth beside releases after the last step, in a report below the verdict.
        metrics: what the evaluator's figures are called and mean. One that is left out is shown by its key, and its
            explanation says that there is none.
        judged: what releases are good for, from coarse answers to fine ones. Without it the verdict is the last
            figures.
        frame: what to keep of a step that was just answered, to show how things went: some 8 of them are kept in
            `StepRow.frame`, evenly over all steps. None: nothing.
        events, records: what those are called that come in, and those that go out, in the plural.
        terms: other words of the sections, explained.
        error_unit: of the metrics that are errors; "%" of shares that are read in percent.
        remarks: what else `explain` must say in plain words.
        warnings: what `validate` says of a valid stream whose answers may disappoint.
        picture: what the live page makes of the public records; by default it shows their counts alone.
    """

    domain: Callable[[Stream], str]
    error_model: Callable[[Stream, Guarantee], ErrorModel]
    sections: Callable[[Stream, HeldOutAudit, Sequence[StepRow]], Iterable[ReportSection]] = (
        lambda stream, audit, steps: ()
    )
    metrics: Callable[[Stream], Sequence[Metric]] = lambda stream: ()
    judged: Callable[[Stream, HeldOutAudit, Sequence[StepRow]], Sequence[Judged]] = lambda stream, audit, steps: ()
    frame: Callable[[Stream, HeldOutAudit], Any] | None = None
    events: Callable[[Stream], str] = lambda stream: "events"
    records: Callable[[Stream], str] = lambda stream: "synthetic records"
    terms: Sequence[Term] = ()
    error_unit: str = ""
    remarks: Callable[[Stream], Iterator[str]] = lambda stream: iter(())
    warnings: Callable[[Stream], Iterator[str]] = lambda stream: iter(())
    picture: Callable[[Stream], Picture] = lambda stream: Picture()


def view_of(stream: Stream) -> View:
    """Return the view of a stream's engine. Raises: PrivstreamError if it has none."""
    view: View = part(stream.engine, "view")
    return view


def expected_error(stream: Stream) -> ErrorModel:
    """Return the error to expect of a stream's answers. Raises: EngineInputError if its engine cannot be built."""
    model = view_of(stream).error_model(stream, build_engine(stream).guarantee())
    if not stream.surplus:
        return model
    scaled = (
        "Releases are scaled up by what the bound drops, and these errors with them: where it drops half of the "
        "events they are twice as large."
    )
    return replace(model, conditions=f"{model.conditions} {scaled}")


def metrics_of(stream: Stream) -> Sequence[Metric]:
    """Return every figure of a step, with what it means. Raises: EngineInputError if there is no evaluator."""
    return with_undeclared(view_of(stream).metrics(stream), build_evaluator(stream).metrics, engine=stream.engine)


def with_undeclared(declared: Sequence[Metric], keys: Iterable[str], *, engine: str) -> Sequence[Metric]:
    """Return the declared metrics, and one for each other key: no figure is shown without a word on it."""
    explained = {key for metric in declared for key in metric.keys}
    meaning = f"A figure of engine {engine}, whose distribution does not explain it."
    return [
        *declared,
        *(
            Metric(keys=(key,), label=key.replace("_", " "), meaning=meaning, better="")
            for key in keys
            if key not in explained
        ),
    ]


def tiles(metrics: Sequence[Metric], step: Mapping[str, float | None]) -> Sequence[tuple[str, str]]:
    """Return name and text of the figures of a step that are shown by themselves."""
    return [(metric.name, metric.said(step)) for metric in metrics if metric.tile]


def errors(metrics: Sequence[Metric], step: Mapping[str, float | None]) -> Mapping[str, float]:
    """Return the figures of a step that are errors, by name; NaN where nothing was compared."""
    values = {metric.name: metric.value(step) for metric in metrics if metric.error}
    return {name: nan if value is None else value for name, value in values.items()}


def verdict(
    stream: Stream, judged: Sequence[Judged], metrics: Sequence[Metric], steps: Sequence[StepRow]
) -> list[tuple[str, str]]:
    """Return what the release is good for: for each kind of answer a sentence, and what stands beside it.

    Where the engine judges no answers these are the last figures, whatever they are.
    """
    if judged:
        return [(each.sentence(), each.more) for each in judged]
    released = [row for row in steps if not row.gathered]
    if not released:
        return [("Nothing was released yet, so there is nothing to judge.", "")]
    figures = []
    for metric in metrics:
        values = [value for row in released if (value := metric.value(row.metrics)) is not None]
        if values:
            mean = sum(values) / len(values)
            figures.append(
                f"{metric.name} {metric.text(values[-1])} after the last step, {metric.text(mean)} in the mean of "
                f"{len(values):,} steps"
            )
    text = "; ".join(figures) or "nothing was compared"
    return [(f"{text[0].upper()}{text[1:]}.", f"What that is good for, engine {stream.engine} does not say.")]
