"""What the plots of every page share: colours, quiet axes, dates, and pictures that a page holds in itself.

Drawn by matplotlib, which is imported when a plot is; maps as PNG, curves as SVG. Every picture has a text that says
what is to be seen, and no line has more than `MOST_POINTS`, however many steps there are.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from schemas.arrays import FloatArray

RED, AMBER, BLUE = "#b5403a", "#c98a1b", "#2f6f9f"
TRUE, SYNTHETIC, GREY = "#444444", "#2a8c6a", "#8a8f98"
GRID = "#e4e6ea"
MOST_POINTS = 400
"""Of a line: beyond it steps are drawn together, as means; more are a solid block, and megabytes."""
TABLE_ROWS = 12
"""Of the table below curves."""


def figure(width: float, height: float, *, rows: int = 1, columns: int = 1, **more: Any) -> tuple[Any, Any]:
    """A matplotlib figure and its axes, sizes in inches; `more` goes to `Figure.subplots`."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplots(rows, columns, **more)


def thinned(values: Sequence[float | None] | FloatArray, width: int) -> FloatArray:
    """Means of `width` values at a time, of the whole ones; NaN where none of them is known.

    A mean of a few last values would look like a fall.
    """
    table = np.array(values, np.float64)
    table = table[: len(table) // width * width].reshape(-1, width)
    there = ~np.isnan(table)
    sums = np.where(there, table, 0.0).sum(axis=1)
    return np.where(there.any(axis=1), sums / np.maximum(there.sum(axis=1), 1), np.nan)


def width_of(steps: int) -> int:
    """Steps that are drawn as one point."""
    return -(-max(steps, 1) // MOST_POINTS)


def curves(
    times: Sequence[datetime],
    lines: Mapping[str, Sequence[float]],
    colours: Mapping[str, str],
    *,
    what: str,
    text: Callable[[float], str],
    percent: bool = True,
) -> str:
    """Metrics over time as an inlined picture, one line for each name, and some of the steps as a table.

    Args:
        what: is on the vertical axis, with its unit. text: how a value is written.
    """
    from matplotlib.ticker import PercentFormatter

    made, axes = figure(6.0, 3.4)
    width = width_of(len(times))
    local = [time.replace(tzinfo=None) for time in times]  # in the stream's own zone
    drawn = {name: thinned(values, width) for name, values in lines.items()}
    moments = local[: len(times) // width * width : width]
    marker = "o" if len(moments) < 10 else ""
    for name, values in drawn.items():
        axes.plot(
            moments, values, color=colours.get(name, GREY), linewidth=1.8, marker=marker, markersize=4, label=name
        )
    made.legend(frameon=False, loc="outside upper center", ncols=3 if sum(map(len, lines)) < 60 else 1, fontsize=9)
    axes.set_ylim(bottom=0)
    if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylabel(what, color=TRUE, fontsize=9)
    axes.grid(axis="y", color=GRID)
    dates(axes)
    quiet(axes)
    told = "; ".join(
        f"{name} from {_said(values[0], text)} to {_said(values[-1], text)}" for name, values in lines.items()
    )
    alt = f"Lines over {len(times):,} steps: {what}. {told}"
    joined = f"<p class=sub>Each point is the mean of {width} steps.</p>" if width > 1 else ""
    return image(made, "svg", alt=alt) + joined + _as_table(local, lines, text)


def _said(value: float | None, text: Callable[[float], str]) -> str:
    return "-" if value is None or np.isnan(value) else text(value)


def _as_table(times: Sequence[datetime], lines: Mapping[str, Sequence[float]], text: Callable[[float], str]) -> str:
    """The first step, the last, and some between them, for who does not see the picture."""
    shown = np.unique(np.linspace(0, len(times) - 1, TABLE_ROWS).round().astype(int)).tolist()
    rows = [
        [times[at].isoformat(" ", "minutes"), *(_said(values[at], text) for values in lines.values())] for at in shown
    ]
    return folded(["from", *lines], rows, some=len(shown) < len(times))


def folded(head: Sequence[str], rows: Sequence[Sequence[str]], *, some: bool = False, title: str = "") -> str:
    """A table that stays folded until it is asked for."""
    title = title or ("Some steps as a table" if some else "The same as a table")
    lines = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    heads = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    return (
        f'<details><summary>{html.escape(title)}</summary><div class="scroll" tabindex="0"><table><thead>'
        f"<tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div></details>"
    )


def dates(axes: Any) -> None:
    import matplotlib.dates

    dates: Any = matplotlib.dates
    locator = dates.AutoDateLocator(minticks=3, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))


def quiet(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)
    axes.tick_params(colors=TRUE)


def image(figure: Any, kind: str, *, alt: str) -> str:
    """A picture as a page holds it. `alt` says what is to be seen, for who does not see it."""
    import matplotlib as mpl

    # A fixed salt and no date: the same simulation writes the same page.
    with mpl.rc_context({"svg.hashsalt": "privstream", "svg.fonttype": "path"}):
        target = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(target, format=kind, dpi=150, metadata=metadata)
    mime = "image/svg+xml" if kind == "svg" else "image/png"
    data = base64.b64encode(target.getvalue()).decode()
    return f'<img alt="{html.escape(alt, quote=True)}" src="data:{mime};base64,{data}">'
