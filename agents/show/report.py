"""The report of a simulation, and the charts of `tune.html`. FOR THE OPERATOR: they show true values.

What is shown of the data is what the engine's view says; it is laid out here, in the same way for every engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import jinja2

from agents.protocol.release.held_out import HeldOutAudit
from agents.show.charts import AMBER, BLUE, GREY, RED, SYNTHETIC, TRUE, BarChart, Curve, LineChart, Panel, Table, draw
from agents.show.view import (
    GOOD,
    POOR,
    RULE,
    Judged,
    Metric,
    ReportSection,
    StepRow,
    Term,
    metrics_of,
    percent,
    view_of,
)
from schemas.config import Stream, format_length
from schemas.ledger import LedgerEntry

WARNING = (
    "NOT PRIVATE. For the operator only. This report and steps.csv hold TRUE values: event counts, errors and a map of "
    "the real data. Do not publish, send or commit them. Only synthetic.csv and ledger.jsonl are of the kind that the "
    "job publishes, and each simulation that is published would cost its epsilon once more."
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


def render_template(name: str, /, *, filters: Mapping[str, Callable[[Any], str]] | None = None, **values: Any) -> str:
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


def render_report(
    stream: Stream,
    steps: Sequence[StepRow],
    audit: HeldOutAudit,
    *,
    judged: Sequence[Judged],
    verdict: Sequence[tuple[str, str]],
    ledger: LedgerEntry | None,
    source: str,
    promise: str,
    record_time: str,
    rows: Mapping[str, int],
    refused: Sequence[Sequence[str]] = (),
    refused_much: str | None = None,
    drowned: str | None = None,
    said_first: Sequence[str] = (),
    caveats: Sequence[str] = (),
) -> str:
    """Return `report.html` of a simulated stream.

    Args:
        steps: all of them. audit: the truth and the records that are alive after the last one.
        judged: what the verdict rests on. verdict: its sentences, each with more beside it.
        ledger: the last entry, if there is one.
        source: what the rows are from. promise, record_time: as `explain` words them.
        rows: what became of those that were not refused -> how many.
        refused: cells of a row for each reason. refused_much: how many were, where it is too many.
        drowned: what is said where noise is larger than all the data.
        said_first: sentences that must not be overlooked. caveats: and those on what this run shows.
    """
    view, metrics = view_of(stream), metrics_of(stream)
    events, records, alive = view.events(stream), view.records(stream), audit.evaluator.scope == "alive"
    entry = {} if ledger is None else ledger.as_json()
    guarantee = entry.get("guarantee", {})
    mechanisms = [
        (each["name"], each["distribution"], f"{each['scale']:.4g}", f"{each['epsilon']:.4g}", str(each["uses"]))
        for each in guarantee.get("mechanisms", [])
    ]
    sections = [
        *filter(None, map(scales_section, judged)),
        *(view.sections(stream, audit, steps) if steps else ()),
    ]
    price = f"{entry.get('epsilon', 0):g} per {entry.get('unit', 'unit')}"
    return render_template(
        "report.html",
        stream=stream,
        step_length=format_length(stream.time.step),
        source=source,
        promise=promise,
        record_time=record_time,
        verdict=verdict,
        drowned=drowned,
        said_first=said_first,
        caveats=caveats,
        warning=WARNING,
        rule=RULE,
        alive=alive,
        events=events,
        records=records,
        sections=map(section_html, sections),
        all_tiles=_tiles(steps, metrics, price, events=events, records=records, alive=alive),
        # A reading a step, and nothing that grows, is no picture.
        count_plot=_counts(steps, events=events, records=records, alive=alive)
        if alive or len({row.events for row in steps}) > 1
        else "",
        charged=f"one {stream.privacy.unit}" if stream.whole_unit else f"one {stream.contribution}",
        guarantee={
            "epsilon": guarantee.get("epsilon", 0),
            "delta": guarantee.get("delta", 0),
            "neighbouring": str(guarantee.get("neighbouring", "")).replace("_", " or "),
            "note": guarantee.get("note") or "",
            "rows": mechanisms,
        },
        rows=[(name, f"{count:,}") for name, count in rows.items() if count],
        refused=refused,
        refused_much=refused_much,
        glossary=[*(metric.term for metric in metrics), *view.terms, *COMMON],
    )


def _tiles(
    steps: Sequence[StepRow], metrics: Sequence[Metric], price: str, *, events: str, records: str, alive: bool
) -> list[tuple[str, str, str]]:
    """Return value, label and meaning of each tile."""
    last = steps[-1] if steps else None
    known = {term.name: term.meaning for term in COMMON}
    true = sum(row.events for row in steps) if not alive else last.true_total if last else 0
    figures = (
        []
        if last is None
        else [(metric.said(last.metrics), f"last {metric.name}", metric.explained) for metric in metrics if metric.tile]
    )
    return [
        (f"{len(steps):,}", "steps", known["step"]),
        (f"{true:,}", f"true {events}", known["true"]),
        (f"{last.released_total:,}" if last else "0", records, known["synthetic"]),
        (price, "epsilon", known["epsilon"]),
        *figures,
    ]


def _counts(steps: Sequence[StepRow], *, events: str, records: str, alive: bool) -> str:
    """Draw what came in each step and, where truth and release are of all that is alive, how both grew."""
    if not steps:
        return ""
    mean = sum(row.events for row in steps) / len(steps)
    said = f"{events} that came in each of {len(steps):,} steps, {mean:,.4g} on average"
    came = Curve([row.events for row in steps], GREY, filled=True)
    panels = [Panel(lines={f"{events} that came": came}, what="per step", text="{:,.0f}".format)]
    if alive:
        grown = {
            f"true {events}": Curve([row.true_total for row in steps], TRUE),
            records: Curve([row.released_total for row in steps], SYNTHETIC, "--"),
        }
        panels.insert(0, Panel(lines=grown, what="after a step", text="{:,.0f}".format))
        said = (
            f"{events} and {records} after each step: at the end {steps[-1].true_total:,} true and "
            f"{steps[-1].released_total:,} synthetic. Below, {said}"
        )
    return draw(
        LineChart(
            x=[row.start for row in steps],
            panels=panels,
            size=(6.0, 4.6 if alive else 2.4),
            heights=[2, 1] if alive else (),
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


def share_chart(bounds: Sequence[int], shares: Mapping[str, Sequence[float]]) -> str:
    """Draw the share of rows that each bound accepts. Args: shares: name of `_SHARES` -> share, `(bounds,)`."""
    return draw(
        LineChart(
            x=bounds,
            labels=[f"{bound:,}" for bound in bounds],
            what="max_contributions",
            panels=[
                Panel(
                    lines={name: Curve(shares[name], *look) for name, look in _SHARES.items()},
                    what="rows accepted, %",
                    shares=True,
                )
            ],
            size=(6.0, 3.0),
            alt="Lines of the share of rows accepted by max_contributions: "
            + "; ".join(f"{name} {_span(shares[name], 100)} %" for name in _SHARES),
        )
    )


def error_chart(
    bounds: Sequence[int], errors: Mapping[str, Mapping[str, Sequence[float]]], *, unit: str, best: int | None
) -> str:
    """Draw a panel for each error by bound; nothing where none was compared.

    Args: errors: name of an error -> "bias", "noise" and "error", `(bounds,)` each. best: the recommended bound.
    """
    if not errors:
        return ""
    columns = 2 if len(errors) == 4 else min(3, len(errors))
    scale = 100.0 if unit == "%" else 1.0
    said = "; ".join(
        f"{name} {_span(parts['error'], scale)}, of which bias {_span(parts['bias'], scale)} and noise "
        f"{_span(parts['noise'], scale)}"
        for name, parts in errors.items()
    )
    panels = [
        Panel(
            lines={
                part: Curve([scale * value if value > 0 else math.nan for value in parts[part]], *look)
                for part, look in _PARTS.items()
            },
            title=f"{name}, {unit}" if unit else name,
            log=True,
        )
        for name, parts in errors.items()
    ]
    return draw(
        LineChart(
            x=bounds,
            labels=[f"{bound:,}" for bound in bounds],
            what="max_contributions",
            panels=panels,
            columns=columns,
            size=(max(3.4 * columns, 6.0), 3.1 * math.ceil(len(errors) / columns)),
            mark=best,
            alt=f"Lines of errors by max_contributions, from {bounds[0]:,} to {bounds[-1]:,}: {said}",
        )
    )


def _span(values: Sequence[float], scale: float) -> str:
    return f"from {scale * values[0]:.3g} to {scale * values[-1]:.3g}"
