"""The pictures and the verdict of a simulated series: truth beside its releases, however many steps there are."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import TYPE_CHECKING

import numpy as np

from agents.pages.plots import AMBER, BLUE, GRID, dates, figure, image, quiet
from engines.series.build import config
from schemas.arrays import FloatArray
from schemas.config import Stream

if TYPE_CHECKING:
    from agents.pages.report import StepRow
    from agents.protocol.release.held_out import HeldOutAudit

MOST_POINTS = 400
"""Of a line: beyond it steps are drawn together, as means; more are a solid block, and megabytes."""
LAST_STEPS = 200
"""That are drawn one by one beside a long series."""
WIDE = 1.645
"""Standard deviations of a 90 % interval."""


def sections(stream: Stream, truth: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[str]:
    """For each field how far its releases are off, in words and as plots."""
    found = []
    names = [field.name for field in config(stream).domain.fields]
    for name in names:
        tail = f"_{name}" if len(names) > 1 else ""
        rows = [
            (row, row.metrics["true" + tail], row.metrics["released" + tail], row.metrics.get("se" + tail))
            for row in steps
            if known(row.metrics.get("true" + tail)) and known(row.metrics.get("released" + tail))
        ]
        if len(rows) < 2:
            continue
        table = np.array([(true, released, se if known(se) else nan) for _, true, released, se in rows], np.float64)
        times = [row.start.replace(tzinfo=None) for row, *_ in rows]  # in the stream's own zone
        plots = [_plot(times, table, f"all {len(rows):,} steps")]
        if len(rows) > MOST_POINTS:
            plots.append(_plot(times[-LAST_STEPS:], table[-LAST_STEPS:], f"the last {LAST_STEPS} steps"))
        found.append(
            f"<h2>{html.escape(name)}: truth and release</h2><p>{html.escape(verdict(table))}</p>{''.join(plots)}"
        )
    return found


def known(value: float | None) -> bool:
    """False for what is missing: JSON has no NaN, so it comes back as null."""
    return value is not None and not isnan(value)


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


def _plot(times: Sequence[object], table: FloatArray, label: str) -> str:
    width = -(-len(table) // MOST_POINTS)
    whole = len(table) // width * width  # the mean of a few last steps would look like a fall
    true, released, error = np.nan_to_num(table[:whole]).reshape(-1, width, 3).mean(axis=1).T
    moments = times[:whole:width]
    made, axes = figure(6.0, 3.0)
    wide = WIDE * error
    axes.fill_between(
        moments, released - wide, released + wide, color=BLUE, alpha=0.2, linewidth=0, label="90 % interval of a step"
    )
    axes.plot(moments, released, color=BLUE, linewidth=1.4, label="release")
    axes.plot(moments, true, color=AMBER, linewidth=1.2, linestyle="--", label="truth")
    axes.set_title(label + (f", means of {width} steps" if width > 1 else ""), fontsize="small", loc="left")
    axes.legend(frameon=False, fontsize="small")
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    dates(axes)
    quiet(axes)
    return image(made, "svg")


def tiles(metrics: Mapping[str, float]) -> Sequence[tuple[str, str]]:
    """Truth and release of the last step; a dash where it has none."""
    return [(name.replace("_", " "), f"{value:.6g}" if known(value) else "-") for name, value in metrics.items()]
