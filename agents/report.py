"""`report.html` of a simulation: one self-contained page, readable on a phone. FOR THE OPERATOR: it shows true values.

Pure: data in, text out. What is shown of the data is the engine's affair, see `agents.presentation`.
"""

from __future__ import annotations

import datetime
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.plots import GREY, GRID, SYNTHETIC, TRUE, dates, figure, image, quiet

WARNING = (
    "NOT PRIVATE. For the operator only. This report and steps.csv hold TRUE values: event counts, errors and a map of "
    "the real data. Do not publish, send or commit them. Only synthetic/ and ledger.jsonl are of the kind that the job "
    "publishes, and each simulation that is published would cost its epsilon once more."
)


@dataclass(frozen=True, slots=True)
class StepRow:
    """A line of steps.csv. `events` and the metrics are true values."""

    step: int
    start: datetime.datetime
    events: int
    released_total: int
    metrics: Mapping[str, float]
    true_total: int
    gathered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReport:
    """What the page says about a stream.

    Attributes:
        promise: the guarantee as a sentence; caveats: what weakens it in this run, empty if nothing.
        tiles: label and text of the last metrics. sections: HTML of plots and tables, see `Presentation`.
        guarantee: the ledger's last entry. reasons: `Reason` name -> rows.
    """

    name: str
    engine: str
    mode: str
    source: str
    promise: str
    caveats: Sequence[str]
    step_length: str
    guarantee: Mapping[str, Any]
    reasons: Mapping[str, int]
    steps: Sequence[StepRow]
    tiles: Sequence[tuple[str, str]]
    sections: Sequence[str]


def render(report: StreamReport) -> str:
    """The page."""
    title = html.escape(f"{report.name}: simulation")
    parts = [
        f"<h1>{html.escape(report.name)}</h1>",
        f"<p class=sub>engine {html.escape(report.engine)}, mode {html.escape(report.mode)}, "
        f"step {html.escape(report.step_length)}, from {html.escape(report.source)}</p>",
        f"<p>{html.escape(report.promise)}</p>",
        *(f"<p class=caveat>{html.escape(caveat)}</p>" for caveat in report.caveats),
        _tiles(report),
    ]
    parts += report.sections
    if report.steps:
        parts += _counts(report.steps)
    parts += [_guarantee(report.guarantee), _reasons(report.reasons)]
    return _PAGE.format(title=title, warning=html.escape(WARNING), body="\n".join(parts))


def _tiles(report: StreamReport) -> str:
    last = report.steps[-1] if report.steps else None
    tiles = [
        ("steps", f"{len(report.steps):,}"),
        ("true events alive", f"{last.true_total:,}" if last else "0"),
        ("synthetic records", f"{last.released_total:,}" if last else "0"),
        ("epsilon", f"{report.guarantee.get('epsilon', 0):g} per {report.guarantee.get('unit', 'unit')}"),
    ]
    tiles += report.tiles
    cells = "".join(f"<div><b>{html.escape(value)}</b><span>{html.escape(key)}</span></div>" for key, value in tiles)
    return f"<div class=tiles>{cells}</div>"


def _counts(steps: Sequence[StepRow]) -> list[str]:
    return [
        "<h2>Counts over time</h2><p class=sub>Events alive and synthetic records alive at the end of each step; "
        "below, the events that arrived in it.</p>",
        _count_plot(steps),
    ]


def _count_plot(steps: Sequence[StepRow]) -> str:
    made, (upper, lower) = figure(6.0, 4.6, rows=2, sharex=True, height_ratios=[2, 1])
    times = [row.start.replace(tzinfo=None) for row in steps]  # in the stream's own zone
    upper.step(times, [row.true_total for row in steps], where="post", color=TRUE, linewidth=1.8, label="true")
    released = [row.released_total for row in steps]
    upper.step(times, released, where="post", color=SYNTHETIC, linewidth=1.8, linestyle="--", label="synthetic")
    upper.set_ylabel("alive", color=TRUE)
    upper.legend(frameon=False, loc="upper left")
    upper.set_ylim(bottom=0)
    lower.fill_between(times, [row.events for row in steps], step="post", color=GREY, alpha=0.6, linewidth=0)
    lower.set_ylabel("per step", color=TRUE)
    lower.set_ylim(bottom=0)
    for axes in (upper, lower):
        axes.grid(axis="y", color=GRID)
        axes.set_axisbelow(True)
        quiet(axes)
    dates(lower)
    return image(made, "svg")


def _guarantee(entry: Mapping[str, Any]) -> str:
    guarantee = entry.get("guarantee", {})
    rows = [
        (
            mechanism["name"],
            mechanism["distribution"],
            f"{mechanism['scale']:.4g}",
            f"{mechanism['epsilon']:.4g}",
            str(mechanism["uses"]),
        )
        for mechanism in guarantee.get("mechanisms", [])
    ]
    head = ("what", "noise", "scale in events", "epsilon of one event, per use", "uses")
    note = guarantee.get("note") or ""
    return (
        "<h2>What it cost</h2>"
        f"<p>Per event: epsilon {guarantee.get('epsilon', 0):g}, delta {guarantee.get('delta', 0):g}, neighbouring "
        f"streams by {html.escape(str(guarantee.get('neighbouring', '')).replace('_', ' or '))} of one event. "
        f"{html.escape(note)}</p>{_table(head, rows)}"
    )


def _reasons(reasons: Mapping[str, int]) -> str:
    rows = [(name.lower().replace("_", " "), f"{count:,}") for name, count in sorted(reasons.items()) if count]
    return f"<h2>What became of the rows</h2>{_table(('outcome', 'rows'), rows)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex"><title>{title}</title>
<style>
:root {{ color-scheme: light }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: #23272e; background: #fff; margin: 0 auto; max-width: 60rem;
  padding: 0 1rem 3rem }}
.warning {{ background: #8c1d18; color: #fff; font-weight: 600; margin: 0 -1rem 1.5rem; padding: .8rem 1rem }}
h1 {{ font-size: 1.7rem; margin: 0 }} h2 {{ font-size: 1.2rem; margin: 2.2rem 0 .2rem }}
.sub {{ color: #5c636e; margin: .1rem 0 .8rem }}
.caveat {{ border-left: 4px solid #c98a1b; padding-left: .8rem }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem; margin: 1.2rem 0 }}
.tiles div {{ background: #f3f4f6; border-radius: .4rem; padding: .6rem .8rem }}
.tiles b {{ display: block; font-size: 1.2rem }} .tiles span {{ color: #5c636e; font-size: .85rem }}
.maps {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1rem }}
figure {{ margin: 0 }} figcaption {{ text-align: center; color: #5c636e }}
img {{ width: 100%; max-width: 46rem; height: auto; display: block; margin: 0 auto }}
.scroll {{ overflow-x: auto }}
table {{ border-collapse: collapse; margin: .5rem 0 }}
th, td {{ text-align: left; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid #e4e6ea; font-size: .95rem }}
th {{ color: #5c636e; font-weight: 600 }}
</style></head><body>
<p class="warning" role="alert">{warning}</p>
{body}
</body></html>
"""

__all__ = ["WARNING", "StepRow", "StreamReport", "render"]
