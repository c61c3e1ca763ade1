"""`report.html` of a simulation, and `tune.html`: self-contained pages. FOR THE OPERATOR: they show true values.

Data come in, text goes out. What is shown of the data is what the engine's view says; it is drawn and laid out here, in
the same way for every engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import jinja2

from agents.show.charts import AMBER, BLUE, GREY, RED, SYNTHETIC, TRUE, BarChart, Curve, LineChart, Panel, Table, draw
from agents.show.view import GOOD, POOR, RULE, Judged, Metric, ReportSection, StepRow, Term, percent

WARNING = (
    "NOT PRIVATE. For the operator only. This report and steps.csv hold TRUE values: event counts, errors and a map of "
    "the real data. Do not publish, send or commit them. Only synthetic/ and ledger.jsonl are of the kind that the job "
    "publishes, and each simulation that is published would cost its epsilon once more."
)


COMMON = (
    Term("true", "What the private events say. Not for anybody but the operator."),
    Term("synthetic", "What the job publishes: made of noisy measurements, and of nothing else."),
    Term("step", "The time between two releases. Each step has one release."),
    Term(
        "epsilon", "The price in privacy: the less, the more is hidden. The guarantee says of whom, and for how long."
    ),
    Term(
        "error of counts",
        "Differences between synthetic and true counts, without their signs, added up over all answers of a size; "
        "divided by the sum of the true counts. Less is better; 0 % is exact, and above 100 % an answer says nothing.",
    ),
)
"""Words of every report."""
_PARTS = {"bias": (AMBER, "--"), "noise": (BLUE, "--"), "error": (TRUE, "-")}
_SHARES = {"first third": (SYNTHETIC, "--"), "all steps": (TRUE, "-"), "last third": (RED, "--")}


def render_template(name: str, *, filters: Mapping[str, Callable[[Any], str]] | None = None, **values: Any) -> str:
    """Return a template of `templates` as a page that loads nothing from elsewhere.

    Whatever is put in is escaped; a name that is not there is an error.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("agents.show", "templates"),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters or {})
    return environment.get_template(name).render(**values)


def section_html(section: ReportSection) -> str:
    """Return a section of a report as HTML."""
    charts = "".join(map(draw, section.charts))
    return f"<h2>{escape(section.heading)}</h2><p class=sub>{escape(section.sub, quote=False)}</p>{charts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReport:
    """What `report.html` says of a stream.

    Attributes:
        verdict: what the release is good for and what not, a sentence for each kind of answer, and what is beside it.
        judged: what it rests on.
        promise: the guarantee as a sentence; caveats: what weakens it in this run, empty if nothing.
        record_time: what the time of a synthetic record says.
        drowned: a sentence where noise is larger than all that there is.
        alive: whether truth and release are of all that is alive after a step; else they are of one step.
        events, records: what one calls those that come in, and those that go out, in the plural.
        metrics: every figure of a step. terms: other words of the engine's sections.
        sections: of the engine's view.
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
    sections: Iterable[ReportSection]


def render_report(report: StreamReport) -> str:
    """Return the page of a simulated stream."""
    entry = report.guarantee.get("guarantee", {})
    return render_template(
        "report.html",
        report=report,
        warning=WARNING,
        rule=RULE,
        sections=[
            *map(section_html, filter(None, map(scales_section, report.judged))),
            *map(section_html, report.sections),
        ],
        all_tiles=_tiles(report),
        # A reading a step, and nothing that grows, is no picture.
        count_plot=_counts(report) if report.alive or len({row.events for row in report.steps}) > 1 else "",
        guarantee={
            "epsilon": entry.get("epsilon", 0),
            "delta": entry.get("delta", 0),
            "neighbouring": str(entry.get("neighbouring", "")).replace("_", " or "),
            "note": entry.get("note") or "",
            "rows": [
                (
                    each["name"],
                    each["distribution"],
                    f"{each['scale']:.4g}",
                    f"{each['epsilon']:.4g}",
                    str(each["uses"]),
                )
                for each in entry.get("mechanisms", [])
            ],
        },
        rows=[(name, f"{count:,}") for name, count in report.rows.items() if count],
        glossary=[*(metric.term for metric in report.metrics), *report.terms, *COMMON],
    )


def _tiles(report: StreamReport) -> list[tuple[str, str, str]]:
    """Return value, label and meaning of each tile."""
    last = report.steps[-1] if report.steps else None
    known = {term.name: term.meaning for term in COMMON}
    alive = last.true_total if last else 0
    true = alive if report.alive else sum(row.events for row in report.steps)
    return [
        (f"{len(report.steps):,}", "steps", known["step"]),
        (f"{true:,}", f"true {report.events}", known["true"]),
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


def _counts(report: StreamReport) -> str:
    """Draw what came in each step and, where truth and release are of all that is alive, how both grew."""
    steps = report.steps
    if not steps:
        return ""
    mean = sum(row.events for row in steps) / len(steps)
    said = f"{report.events} that came in each of {len(steps):,} steps, {mean:,.4g} on average"
    came = Curve([row.events for row in steps], GREY, filled=True)
    panels = [Panel(lines={f"{report.events} that came": came}, what="per step", text="{:,.0f}".format)]
    if report.alive:
        grown = {
            f"true {report.events}": Curve([row.true_total for row in steps], TRUE),
            report.records: Curve([row.released_total for row in steps], SYNTHETIC, "--"),
        }
        panels.insert(0, Panel(lines=grown, what="after a step", text="{:,.0f}".format))
        said = (
            f"{report.events} and {report.records} after each step: at the end {steps[-1].true_total:,} true and "
            f"{steps[-1].released_total:,} synthetic. Below, {said}"
        )
    return draw(
        LineChart(
            x=[row.start for row in steps],
            panels=panels,
            size=(6.0, 4.6 if report.alive else 2.4),
            heights=[2, 1] if report.alive else (),
            alt=f"Counts over time: {said}",
        )
    )


def scales_section(judged: Judged) -> ReportSection | None:
    """Return a bar for each scale with its error on it; None where nothing was compared."""
    scales = judged.known
    if not scales:
        return None
    against = bool(judged.baseline) and any(not math.isnan(scale.baseline) for scale in scales)
    rows = [[scale.name, percent(scale.error), scale.judgement] for scale in scales]
    head = ["answers", "error", "verdict"]
    if against:
        head.append("knowing nothing")
        for row, scale in zip(rows, scales, strict=True):
            row.append("-" if math.isnan(scale.baseline) else percent(scale.baseline))
    colours = {"good": SYNTHETIC, "rough": AMBER, "not": RED}
    said = "; ".join(f"{scale.name} {percent(scale.error)}, {scale.judgement}" for scale in scales)
    bars = BarChart(
        names=[scale.name for scale in scales],
        series={"error": [scale.error for scale in scales]},
        colours=[colours[scale.judgement] for scale in scales],
        texts=[[f"{percent(scale.error)}  {scale.judgement}" for scale in scales]],
        marks=[scale.baseline for scale in scales],
        limits=(GOOD, POOR),
        most=2.0,
        what="error, in % of the true counts",
        alt=f"Bars of the error at each scale, from coarse to fine: {said}",
        table=Table(head, rows),
    )
    more = f" The mark on a bar, and the last column: {judged.baseline}." if against else ""
    return ReportSection(f"{judged.what}: how fine can you look?", judged.how + more, [bars])


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCurves:
    """Errors by bound at one epsilon.

    Attributes:
        bounds: on the x axis. parts: name of an error -> "bias", "noise" and "error", `(bounds,)` each.
        best: the recommended bound, or None. heading, sentence, head, rows: of the section and its table.
        mark: index of the recommended row.
    """

    heading: str
    sentence: str
    bounds: Sequence[int]
    parts: Mapping[str, Mapping[str, Sequence[float]]]
    best: int | None
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    mark: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunePage:
    """What `tune.html` says of a stream: errors by bound, split in bias and noise.

    Attributes:
        warnings: each in a bar of its own at the top. about: what the figures are, in sentences.
        tiles: value and label. explained: what the errors and other words mean.
        shares: name of `_SHARES` -> share of rows accepted, `(bounds,)`. unit: of the errors.
    """

    name: str
    sub: str
    warnings: Sequence[str]
    about: Sequence[str]
    tiles: Sequence[tuple[str, str]]
    explained: Sequence[Term]
    bounds: Sequence[int]
    shares: Mapping[str, Sequence[float]]
    unit: str
    epsilons: Sequence[ErrorCurves]


def render_tune(page: TunePage) -> str:
    """Return the page of bounds that were compared."""
    return render_template(
        "tune.html",
        page=page,
        share_plot=draw(
            LineChart(
                x=page.bounds,
                labels=[f"{bound:,}" for bound in page.bounds],
                what="max_contributions",
                panels=[
                    Panel(
                        lines={name: Curve(page.shares[name], *look) for name, look in _SHARES.items()},
                        what="rows accepted, %",
                        shares=True,
                    )
                ],
                size=(6.0, 3.0),
                alt="Lines of the share of rows accepted by max_contributions: "
                + "; ".join(f"{name} {_span(page.shares[name], 100)} %" for name in _SHARES),
            )
        ),
        error_plots=[_errors(curves, page.unit) for curves in page.epsilons],
    )


def _errors(curves: ErrorCurves, unit: str) -> str:
    """Draw a panel for each error; nothing where none was compared."""
    if not curves.parts:
        return ""
    columns = 2 if len(curves.parts) == 4 else min(3, len(curves.parts))
    scale = 100.0 if unit == "%" else 1.0
    said = "; ".join(
        f"{name} {_span(parts['error'], scale)}, of which bias {_span(parts['bias'], scale)} and noise "
        f"{_span(parts['noise'], scale)}"
        for name, parts in curves.parts.items()
    )
    return draw(
        LineChart(
            x=curves.bounds,
            labels=[f"{bound:,}" for bound in curves.bounds],
            what="max_contributions",
            panels=[
                Panel(
                    lines={
                        part: Curve([scale * value if value > 0 else math.nan for value in parts[part]], *look)
                        for part, look in _PARTS.items()
                    },
                    title=f"{name}, {unit}" if unit else name,
                    log=True,
                )
                for name, parts in curves.parts.items()
            ],
            columns=columns,
            size=(max(3.4 * columns, 6.0), 3.1 * math.ceil(len(curves.parts) / columns)),
            mark=curves.best,
            alt=f"Lines of errors by max_contributions, from {curves.bounds[0]:,} to {curves.bounds[-1]:,}: {said}",
        )
    )


def _span(values: Sequence[float], scale: float) -> str:
    return f"from {scale * values[0]:.3g} to {scale * values[-1]:.3g}"
