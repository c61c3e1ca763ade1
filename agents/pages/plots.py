"""What the plots of every page share: colours, quiet axes, dates, and pictures that a page holds in itself.

Drawn by matplotlib, which is imported when a plot is; maps as PNG, curves as SVG.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

RED, AMBER, BLUE = "#b5403a", "#c98a1b", "#2f6f9f"
TRUE, SYNTHETIC, GREY = "#444444", "#2a8c6a", "#8a8f98"
GRID = "#e4e6ea"


def figure(width: float, height: float, *, rows: int = 1, columns: int = 1, **more: Any) -> tuple[Any, Any]:
    """A matplotlib figure and its axes, sizes in inches; `more` goes to `Figure.subplots`."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplots(rows, columns, **more)


def curves(
    times: Sequence[datetime], lines: Mapping[str, Sequence[float]], colours: Mapping[str, str], *, percent: bool = True
) -> str:
    """Metrics over time as an inlined picture, one line for each name."""
    from matplotlib.ticker import PercentFormatter

    made, axes = figure(6.0, 3.4)
    local = [time.replace(tzinfo=None) for time in times]  # in the stream's own zone
    marker = "o" if len(times) < 3 else ""
    for name, values in lines.items():
        axes.plot(local, values, color=colours.get(name, GREY), linewidth=1.8, marker=marker, label=name)
    axes.legend(frameon=False, loc="upper right")
    axes.set_ylim(bottom=0)
    if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(axis="y", color=GRID)
    dates(axes)
    quiet(axes)
    return image(made, "svg")


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


def image(figure: Any, kind: str) -> str:
    import matplotlib as mpl

    # A fixed salt and no date: the same simulation writes the same page.
    with mpl.rc_context({"svg.hashsalt": "privstream", "svg.fonttype": "path"}):
        target = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(target, format=kind, dpi=150, metadata=metadata)
    mime = "image/svg+xml" if kind == "svg" else "image/png"
    return f'<img alt="plot" src="data:{mime};base64,{base64.b64encode(target.getvalue()).decode()}">'
