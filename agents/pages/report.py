"""`report.html` of a simulation: one self-contained page, readable on a phone. FOR THE OPERATOR: it shows true values.

Pure: data in, text out. What is shown of the data is the engine's affair, see `agents.presentation`.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.pages import templates
from agents.pages.plots import GREY, GRID, SYNTHETIC, TRUE, dates, figure, image, quiet

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
        record_time: what the time of a synthetic record says.
        alive: whether truth and release are of all that is alive after a step; else they are of one step.
        tiles: label and text of the last metrics. sections: HTML of plots and tables, see `Presentation`.
        guarantee: the ledger's last entry. rows: what became of those that were not refused -> how many.
        refused: reason, field, rows, share, first row, and what to do. refused_much: a sentence where many are.
    """

    name: str
    engine: str
    mode: str
    source: str
    promise: str
    caveats: Sequence[str]
    record_time: str
    step_length: str
    guarantee: Mapping[str, Any]
    rows: Mapping[str, int]
    refused: Sequence[tuple[str, ...]]
    refused_much: str | None
    steps: Sequence[StepRow]
    alive: bool
    tiles: Sequence[tuple[str, str]]
    sections: Sequence[str]


def render(report: StreamReport) -> str:
    """The page."""
    entry = report.guarantee.get("guarantee", {})
    return templates.render(
        "report.html",
        report=report,
        warning=WARNING,
        all_tiles=_tiles(report),
        count_plot=_count_plot(report.steps, alive=report.alive) if report.steps else "",
        guarantee={
            "epsilon": entry.get("epsilon", 0),
            "delta": entry.get("delta", 0),
            "neighbouring": str(entry.get("neighbouring", "")).replace("_", " or "),
            "note": entry.get("note") or "",
            "rows": [_mechanism(mechanism) for mechanism in entry.get("mechanisms", [])],
        },
        rows=[(name, f"{count:,}") for name, count in report.rows.items() if count],
    )


def _tiles(report: StreamReport) -> list[tuple[str, str]]:
    last = report.steps[-1] if report.steps else None
    tiles = [
        ("steps", f"{len(report.steps):,}"),
        ("true events alive", f"{last.true_total:,}" if last else "0")
        if report.alive
        else ("true events", f"{sum(row.events for row in report.steps):,}"),
        ("synthetic records", f"{last.released_total:,}" if last else "0"),
        ("epsilon", f"{report.guarantee.get('epsilon', 0):g} per {report.guarantee.get('unit', 'unit')}"),
        *report.tiles,
    ]
    return [(value, label) for label, value in tiles]


def _mechanism(mechanism: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        mechanism["name"],
        mechanism["distribution"],
        f"{mechanism['scale']:.4g}",
        f"{mechanism['epsilon']:.4g}",
        str(mechanism["uses"]),
    )


def _count_plot(steps: Sequence[StepRow], *, alive: bool) -> str:
    made, (upper, lower) = figure(6.0, 4.6, rows=2, sharex=True, height_ratios=[2, 1])
    times = [row.start.replace(tzinfo=None) for row in steps]  # in the stream's own zone
    upper.step(times, [row.true_total for row in steps], where="post", color=TRUE, linewidth=1.8, label="true")
    released = [row.released_total for row in steps]
    upper.step(times, released, where="post", color=SYNTHETIC, linewidth=1.8, linestyle="--", label="synthetic")
    upper.set_ylabel("alive" if alive else "of the step", color=TRUE)
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


__all__ = ["WARNING", "StepRow", "StreamReport", "render"]
