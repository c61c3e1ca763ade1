"""The pictures and the verdict of a simulated series: truth beside its releases, however many steps there are."""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import datetime
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.show.pages.metrics import Metric, known
from agents.show.pages.plots import (
    AMBER,
    BLUE,
    GRID,
    MOST_POINTS,
    TABLE_ROWS,
    TRUE,
    dates,
    figure,
    folded,
    image,
    quiet,
    thinned,
    width_of,
)
from agents.show.pages.verdict import Judged, Scale, relative
from engines.series.build import config
from schemas.arrays import FloatArray
from schemas.config import Stream

if TYPE_CHECKING:
    from agents.protocol.release.held_out import HeldOutAudit
    from agents.show.pages.report import StepRow

LAST_STEPS = 200
"""That are drawn one by one beside a long series."""
WINDOWS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
"""Steps whose mean is judged."""
WIDE = 1.645
"""Standard deviations of a 90 % interval."""


def sections(stream: Stream, truth: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[str]:
    """For each field how far its releases are off, in words and as plots."""
    found = []
    names = [field.name for field in config(stream).domain.fields]
    for name in names:
        table, starts = _table(name, len(names) > 1, steps)
        if len(table) < 2:
            continue
        times = [start.replace(tzinfo=None) for start in starts]  # in the stream's own zone
        plots = [_plot(times, table, f"all {len(table):,} steps", name)]
        if len(table) > MOST_POINTS:
            plots.append(_plot(times[-LAST_STEPS:], table[-LAST_STEPS:], f"the last {LAST_STEPS} steps", name))
        found.append(
            f"<h2>{html.escape(name)}: truth and release</h2><p>{html.escape(verdict(table))}</p>{''.join(plots)}"
        )
    return found


def _table(name: str, several: bool, steps: Sequence[StepRow]) -> tuple[FloatArray, Sequence[datetime]]:
    """`(steps, 3)` truth, release and its standard error, NaN where it has none, and when the steps began."""
    tail = f"_{name}" if several else ""
    rows = [
        (row, row.metrics["true" + tail], row.metrics["released" + tail], row.metrics.get("se" + tail))
        for row in steps
        if known(row.metrics.get("true" + tail)) and known(row.metrics.get("released" + tail))
    ]
    table = [(true, released, se if known(se) else nan) for _, true, released, se in rows]
    return np.array(table, np.float64).reshape(-1, 3), [row.start for row, *_ in rows]


def verdict(table: FloatArray) -> str:
    """Args: table: `(steps, 3)`: truth, release, and its standard error, NaN where it has none.

    >>> print(verdict(np.array([[100.0, 104.0, 3.0], [100.0, 98.0, 3.0]])).replace(". ", "\\n"))
    A release is off by 3 on average (root mean square 3.16), 3 % of the mean truth
    Its 90 % interval held the truth in 100 % of 2 steps.
    """
    true, released, error = table.T
    off = np.abs(released - true)
    mean, size = float(off.mean()), float(np.abs(true).mean())
    said = f"A release is off by {mean:.4g} on average (root mean square {np.sqrt((off**2).mean()):.3g})"
    said += f", {100 * mean / size:.3g} % of the mean truth." if size else "."
    told = ~np.isnan(error)
    if told.any():
        held = float((off[told] <= WIDE * error[told]).mean())
        said += f" Its 90 % interval held the truth in {100 * held:.0f} % of {int(told.sum()):,} steps."
    return said


def _plot(times: Sequence[datetime], table: FloatArray, label: str, name: str) -> str:
    width = width_of(len(table))
    true, released, error = (np.nan_to_num(thinned(column, width)) for column in table.T)
    moments = times[: len(table) // width * width : width]
    made, axes = figure(6.0, 3.0)
    wide = WIDE * error
    axes.fill_between(
        moments, released - wide, released + wide, color=BLUE, alpha=0.2, linewidth=0, label="90 % interval of a step"
    )
    axes.plot(moments, released, color=BLUE, linewidth=1.4, label="release")
    axes.plot(moments, true, color=AMBER, linewidth=1.2, linestyle="--", label="truth")
    axes.set_title(label + (f", means of {width} steps" if width > 1 else ""), fontsize="small", loc="left")
    axes.set_ylabel(name, color=TRUE, fontsize="small")
    made.legend(frameon=False, fontsize="small", loc="outside upper center", ncols=3)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    dates(axes)
    quiet(axes)
    told = f"truth from {true.min():.4g} to {true.max():.4g}, release from {released.min():.4g} to {released.max():.4g}"
    some = np.unique(np.linspace(0, len(table) - 1, TABLE_ROWS).round().astype(int)).tolist()
    rows = [[times[at].isoformat(" ", "minutes"), *(f"{value:.4g}" for value in table[at])] for at in some]
    listed = folded(["from", "truth", "release", "standard error"], rows, some=len(some) < len(table))
    return (
        image(made, "svg", alt=f"Lines of {name}, truth and release with its 90 % interval, {label}: {told}") + listed
    )


_SE = "Of the release, and published with it; smaller than the noise alone where a filter helps."


def metrics(stream: Stream) -> Sequence[Metric]:
    """Of each field what is true, what is released, and how far apart the two are."""
    names = [field.name for field in config(stream).domain.fields]
    found = []
    for name in names:
        tail, of = (f"_{name}", f" of {name}") if len(names) > 1 else ("", "")
        keys = (f"true{tail}", f"released{tail}")
        facts: dict[str, Any] = {"better": "", "error": False, "text": lambda value: f"{value:.5g}"}
        found += [
            Metric(
                keys=keys[:1], label=f"truth{of}", meaning="The true number of the step. Not for publication.", **facts
            ),
            Metric(keys=keys[1:], label=f"release{of}", meaning="What is published of the step.", **facts),
            Metric(keys=(f"se{tail}",), label=f"standard error{of}", short="SE", meaning=_SE, **facts),
            Metric(
                keys=keys,
                label=f"error{of}",
                meaning="How far the release of a step is from the truth, in the units of the field.",
                of=lambda true, released: abs(released - true),
                tile=False,
            ),
        ]
    return found


def judged(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[Judged]:
    """Means over more and more steps, from all of them to single ones, of each field."""
    names = [field.name for field in config(stream).domain.fields]
    found = []
    for name in names:
        table, starts = _table(name, len(names) > 1, steps)
        what = name if len(names) > 1 else "Values over time"
        if len(table) < 2:
            found.append(Judged(what=what, scales=(), how=""))
            continue
        true, released = table.T[:2]
        flat = np.full_like(true, true.mean())
        scales = []
        for width in [width for width in WINDOWS if 2 * width <= len(true)][::-1]:
            means = [thinned(values, width) for values in (true, released, flat)]
            scales.append(Scale(_window(width, starts), relative(means[0], means[1]), relative(means[0], means[2])))
        found.append(
            Judged(
                what=what,
                scales=scales,
                how="Means of steps in a row, true and released. Bars are the differences, added up, as a share of the "
                "true values.",
                beyond="and longer",
                baseline="the mean of all steps in place of each",
                more=verdict(table),
            )
        )
    return found


def _window(width: int, starts: Sequence[datetime]) -> str:
    if width == 1:
        return "single steps"
    hours = (starts[width] - starts[0]).total_seconds() / 3600
    long = f"{hours / 24:,.3g} days" if hours >= 48 else f"{hours:.3g} hours" if hours >= 2 else f"{60 * hours:.3g} min"
    return f"means of {width:,} steps ({long})"
