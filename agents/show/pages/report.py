"""`report.html` of a simulation: one self-contained page, readable on a phone. FOR THE OPERATOR: it shows true values.

Pure: data in, text out. What is shown of the data is the engine's affair, see `agents.show.presentation`.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.show.pages import templates
from agents.show.pages.metrics import COMMON, Metric, Term
from agents.show.pages.plots import GREY, GRID, SYNTHETIC, TRUE, dates, figure, image, quiet, thinned, width_of
from agents.show.pages.verdict import RULE, Judged, section

WARNING = (
    "NOT PRIVATE. For the operator only. This report and steps.csv hold TRUE values: event counts, errors and a map of "
    "the real data. Do not publish, send or commit them. Only synthetic/ and ledger.jsonl are of the kind that the job "
    "publishes, and each simulation that is published would cost its epsilon once more."
)


@dataclass(frozen=True, slots=True)
class StepRow:
    """A line of steps.csv. `events` and the metrics are true values.

    Attributes: frame: what the engine keeps of some steps to show how things went, see `Presentation.frame`.
    """

    step: int
    start: datetime.datetime
    events: int
    released_total: int
    metrics: Mapping[str, float]
    true_total: int
    gathered: bool
    frame: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReport:
    """What the page says about a stream.

    Attributes:
        verdict: what the release is good for and what not, a sentence for each kind of answer, and what is beside it.
        judged: what it rests on.
        promise: the guarantee as a sentence; caveats: what weakens it in this run, empty if nothing.
        record_time: what the time of a synthetic record says.
        drowned: a sentence where noise is larger than all that there is.
        alive: whether truth and release are of all that is alive after a step; else they are of one step.
        events, records: what one calls those that come in, and those that go out, in the plural.
        metrics: every figure of a step. terms: other words of the engine's sections.
        sections: HTML of plots and tables, see `Presentation`.
        charged: whose epsilon the mechanisms spend, as a phrase. guarantee: the ledger's last entry.
        rows: what became of those that were not refused -> how many.
        refused: reason, field, rows, share, first row, and what to do. refused_much: a sentence where many are.
        said_first: sentences that stand above the verdict, such as where bounds and limits took much away.
    """

    name: str
    engine: str
    mode: str
    source: str
    verdict: Sequence[tuple[str, str]]
    judged: Sequence[Judged]
    promise: str
    caveats: Sequence[str]
    record_time: str
    drowned: str | None
    step_length: str
    charged: str
    guarantee: Mapping[str, Any]
    rows: Mapping[str, int]
    refused: Sequence[tuple[str, ...]]
    refused_much: str | None
    said_first: Sequence[str]
    steps: Sequence[StepRow]
    alive: bool
    events: str
    records: str
    metrics: Sequence[Metric]
    terms: Sequence[Term]
    sections: Sequence[str]


def render(report: StreamReport) -> str:
    """The page."""
    entry = report.guarantee.get("guarantee", {})
    return templates.render(
        "report.html",
        report=report,
        warning=WARNING,
        rule=RULE,
        scales=[html for judged in report.judged if (html := section(judged))],
        all_tiles=_tiles(report),
        count_plot=_count_plot(report) if report.steps and _vary(report) else "",
        guarantee={
            "epsilon": entry.get("epsilon", 0),
            "delta": entry.get("delta", 0),
            "neighbouring": str(entry.get("neighbouring", "")).replace("_", " or "),
            "note": entry.get("note") or "",
            "rows": [_mechanism(mechanism) for mechanism in entry.get("mechanisms", [])],
        },
        rows=[(name, f"{count:,}") for name, count in report.rows.items() if count],
        glossary=[*(metric.term for metric in report.metrics), *report.terms, *COMMON],
    )


def _tiles(report: StreamReport) -> list[tuple[str, str, str]]:
    """Value, label, and what it means."""
    last = report.steps[-1] if report.steps else None
    known = {term.name: term.meaning for term in COMMON}
    if report.alive:
        true = (f"{last.true_total:,}" if last else "0", f"true {report.events}", known["true"])
    else:
        true = (f"{sum(row.events for row in report.steps):,}", f"true {report.events}", known["true"])
    return [
        (f"{len(report.steps):,}", "steps", known["step"]),
        true,
        (f"{last.released_total:,}" if last else "0", report.records, known["synthetic"]),
        (
            f"{report.guarantee.get('epsilon', 0):g} per {report.guarantee.get('unit', 'unit')}",
            "epsilon",
            known["epsilon"],
        ),
        *(
            (metric.said(last.metrics), f"last {metric.name}", metric.explained)
            for metric in report.metrics
            if metric.tile and last is not None
        ),
    ]


def _mechanism(mechanism: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        mechanism["name"],
        mechanism["distribution"],
        f"{mechanism['scale']:.4g}",
        f"{mechanism['epsilon']:.4g}",
        str(mechanism["uses"]),
    )


def _vary(report: StreamReport) -> bool:
    """A reading a step, and nothing that grows, is no picture."""
    return report.alive or len({row.events for row in report.steps}) > 1


def _count_plot(report: StreamReport) -> str:
    """What came in each step and, where truth and release are of all that is alive, how both grew."""
    steps, width = report.steps, width_of(len(report.steps))
    times = [row.start.replace(tzinfo=None) for row in steps][: len(steps) // width * width : width]
    marker = "o" if len(times) < 10 else ""
    came = thinned([row.events for row in steps], width)
    total = sum(row.events for row in steps)
    told = f"{report.events} that came in each of {len(steps):,} steps, {total / len(steps):,.4g} on average"
    every: tuple[Any, ...]
    if report.alive:
        made, (upper, lower) = figure(6.0, 4.6, rows=2, sharex=True, height_ratios=[2, 1])
        true = thinned([row.true_total for row in steps], width)
        released = thinned([row.released_total for row in steps], width)
        drawing = {"linewidth": 1.8, "marker": marker, "markersize": 4}
        upper.plot(times, true, color=TRUE, label=f"true {report.events}", **drawing)
        upper.plot(times, released, color=SYNTHETIC, linestyle="--", label=report.records, **drawing)
        upper.set_ylabel("after a step", color=TRUE)
        upper.legend(frameon=False, loc="upper left")
        every = (upper, lower)
        told = (
            f"{report.events} and {report.records} after each step: at the end {steps[-1].true_total:,} true and "
            f"{steps[-1].released_total:,} synthetic. Below, {told}"
        )
    else:
        made, lower = figure(6.0, 2.4)
        every = (lower,)
    lower.fill_between(times, came, step="mid", color=GREY, alpha=0.6, linewidth=0)
    lower.set_ylabel("per step", color=TRUE)
    for axes in every:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}")
        axes.grid(axis="y", color=GRID)
        axes.set_axisbelow(True)
        quiet(axes)
    dates(lower)
    joined = f"<p class=sub>Each point is the mean of {width} steps.</p>" if width > 1 else ""
    return image(made, "svg", alt=f"Counts over time: {told}") + joined


__all__ = ["WARNING", "StepRow", "StreamReport", "render"]
