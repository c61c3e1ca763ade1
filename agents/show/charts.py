"""Charts and tables as data, and the one place that draws them.

A page holds its pictures in itself: maps and small columns as PNG, all else as SVG. Every picture has a text that says
what is to be seen, and no line has more than `MOST_POINTS`, however many steps there are. matplotlib is imported when
something is drawn.
"""

from __future__ import annotations

import base64
import html
import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import singledispatch
from typing import Any, Literal

import numpy as np

from schemas.arrays import FloatArray

RED, AMBER, BLUE = "#b5403a", "#c98a1b", "#2f6f9f"
TRUE, SYNTHETIC, GREY = "#444444", "#2a8c6a", "#8a8f98"
GRID = "#e4e6ea"
MOST_POINTS = 400
"""Of a line: beyond it steps are drawn together, as means; more are a solid block, and megabytes."""
TABLE_ROWS = 12
"""Of the table below lines over time."""
LABELLED = 8
"""Columns that have their names and numbers on them; more have no room for these."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, folded until it is asked for unless it is `open`."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = "The same as a table"
    open: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """A line. Attributes: band: half the width of an interval around it. filled: whether the area below is grey."""

    values: Sequence[float] | FloatArray
    colour: str
    style: str = "-"
    band: Sequence[float] | FloatArray | None = None
    filled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Lines with one vertical axis.

    Attributes:
        what: is on the axis, with its unit. text: how a value is written. shares: whether values are read in percent.
        zero: whether the axis begins at 0. log: whether it is logarithmic. stepped: whether lines are those of a
            histogram. band: what the bands of its lines are.
    """

    lines: Mapping[str, Curve]
    what: str = ""
    title: str = ""
    text: Callable[[float], str] = "{:.3g}".format
    shares: bool = False
    zero: bool = True
    stepped: bool = False
    log: bool = False
    band: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Lines over time, or over a number.

    Attributes:
        x: when steps began, in the stream's own zone, or numbers. labels: of these numbers, each on a logarithmic axis.
        what: is on the horizontal axis. columns: of panels. heights: of the panels where they stand on one another.
        mark: a number of x at which a line stands.
    """

    x: Sequence[datetime] | Sequence[float]
    panels: Sequence[Panel]
    alt: str = ""
    size: tuple[float, float] = (6.0, 3.4)
    what: str = ""
    labels: Sequence[str] = ()
    columns: int = 1
    heights: Sequence[float] = ()
    mark: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """Lying bars, the first name on top, with their numbers on them.

    Attributes:
        series: name -> values, `(names,)` each. colours: of each series, or of each bar where there is one series.
        texts: on the bars, for each series. marks: a mark on each bar. limits: values at which a line stands.
        most: bars end here. reach: of some series, half the widths of intervals around the values.
    """

    names: Sequence[str]
    series: Mapping[str, Sequence[float] | FloatArray]
    what: str
    alt: str
    table: Table
    colours: Sequence[str] = (TRUE, SYNTHETIC)
    texts: Sequence[Sequence[str]] = ()
    marks: Sequence[float] = ()
    limits: Sequence[float] = ()
    most: float = math.inf
    reach: Mapping[str, Sequence[float] | FloatArray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChart:
    """Small columns of true and synthetic counts side by side."""

    labels: Sequence[str]
    true: FloatArray
    made: FloatArray
    caption: str
    alt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Grids of numbers on one scale of colours, rows from south to north, or from the top where there are `ticks`.

    Attributes:
        panels: title and grid, row by row. scale: "log" of counts, "signed" around 0, "unit" from 0 to 1.
        extent: xmin, ymin, xmax, ymax; with it the axes are drawn, with names of `axes` and lines of `outline`.
        ticks: names of rows and columns. top: of the scale, where it is not that of the grids.
    """

    panels: Sequence[tuple[str, FloatArray]]
    what: str
    scale: Literal["log", "signed", "unit"]
    alt: str
    size: tuple[float, float] = (3.8, 3.5)
    rows: int = 1
    row_names: Sequence[str] = ()
    extent: tuple[float, float, float, float] | None = None
    axes: tuple[str, str] = ("", "")
    outline: Sequence[FloatArray] = ()
    ticks: Sequence[str] = ()
    top: float = math.nan
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Gallery:
    """Pictures beside each other."""

    charts: Sequence[ColumnChart | HeatMap]
    small: bool = False


Chart = Table | LineChart | BarChart | ColumnChart | HeatMap | Gallery


def written(value: float) -> str:
    """Return a count as it stands on a bar.

    >>> written(1234.0), written(12.0), written(123456.0), written(0.25)
    ('1,234', '12', '123k', '0.25')
    """
    if abs(value) >= 1e5:
        return f"{value / 1e6:,.3g}M" if abs(value) >= 1e6 else f"{value / 1e3:,.0f}k"
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 100 else f"{value:.3g}"


def thinned(values: Sequence[float | None] | FloatArray, width: int) -> FloatArray:
    """Return means of `width` values at a time; NaN where none of them is known.

    Values of a last group that is not whole are left out: a mean of a few would look like a fall.
    """
    table = np.array(values, np.float64)
    table = table[: len(table) // width * width].reshape(-1, width)
    there = ~np.isnan(table)
    sums = np.where(there, table, 0.0).sum(axis=1)
    return np.where(there.any(axis=1), sums / np.maximum(there.sum(axis=1), 1), np.nan)


def pairs(names: Sequence[str], true: FloatArray, made: FloatArray, *, what: str, most: int) -> BarChart:
    """Return bars of true and synthetic counts, the largest `most` of them; `what` is counted."""
    shown = np.argsort(-np.maximum(true, made), kind="stable")[:most]
    names, true, made = [names[at] for at in shown.tolist()], true[shown], made[shown]
    rows = list(zip(names, true.tolist(), made.tolist(), strict=True))
    said = "; ".join(f"{name} {written(t)} and {written(m)}" for name, t, m in rows[:8])
    table = [[name, written(t), written(m), f"{m - t:+,.4g}"] for name, t, m in rows]
    return BarChart(
        names=names,
        series={"true (private)": true, "synthetic (what the job publishes)": made},
        what=what,
        alt=f"Bars of {what}, true and synthetic: {said}{' and others' if len(names) > 8 else ''}",
        table=Table(["", "true", "synthetic", "difference"], table),
    )


@singledispatch
def draw(chart: Chart) -> str:
    """Return a chart as HTML."""
    raise TypeError(type(chart).__name__)


@draw.register
def _table(chart: Table) -> str:
    lines = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in chart.rows)
    heads = "".join(f"<th>{html.escape(cell)}</th>" for cell in chart.head)
    return (
        f"<details{' open' * chart.open}><summary>{html.escape(chart.title)}</summary>"
        f'<div class="scroll" tabindex="0"><table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'
        "</details>"
    )


@draw.register
def _lines(chart: LineChart) -> str:
    import matplotlib.dates

    dates: Any = matplotlib.dates
    rows = math.ceil(len(chart.panels) / chart.columns)
    more: dict[str, Any] = {"height_ratios": chart.heights} if chart.heights else {}
    picture, grid = figure(
        *chart.size, rows=rows, columns=chart.columns, squeeze=False, sharex=bool(chart.heights), **more
    )
    timed = isinstance(chart.x[0], datetime)
    x: Sequence[Any] = [each.replace(tzinfo=None) if isinstance(each, datetime) else each for each in chart.x]
    width = -(-len(x) // MOST_POINTS) if timed else 1
    panels = list(grid.flat)
    for axes, panel in zip(panels, chart.panels, strict=False):
        _panel(axes, panel, x, width, legend=len(chart.panels) > 1 and panel is chart.panels[0])
        if timed:
            locator = dates.AutoDateLocator(minticks=3, maxticks=9)
            axes.xaxis.set_major_locator(locator)
            axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        elif chart.labels:
            axes.set_xscale("log")
            axes.set_xticks(x, chart.labels, fontsize=9)
            axes.minorticks_off()
        if chart.mark is not None:
            axes.axvline(chart.mark, color=GREY, linewidth=1, linestyle=":")
        axes.set_xlabel(chart.what, color=TRUE, fontsize=9)
    for axes in panels[len(chart.panels) :]:
        axes.set_visible(False)
    if len(chart.panels) == 1 and panels[0].get_legend_handles_labels()[0]:
        names = [*chart.panels[0].lines, chart.panels[0].band]
        picture.legend(
            frameon=False, loc="outside upper center", ncols=3 if len("".join(names)) < 60 else 1, fontsize=9
        )
    alt = chart.alt or f"Lines over {len(x):,} steps: {'; '.join(_spans(chart.panels))}"
    joined = f"<p class=sub>Each point is the mean of {width} steps.</p>" if width > 1 else ""
    return image(picture, "svg", alt=alt) + joined + (draw(_some(x, chart.panels)) if timed else "")


def _panel(axes: Any, panel: Panel, x: Sequence[Any], width: int, *, legend: bool) -> None:
    from matplotlib.ticker import LogLocator, PercentFormatter

    at = x[: len(x) // width * width : width]
    marker = "o" if len(at) < 10 else ""
    for name, line in panel.lines.items():
        values = thinned(line.values, width)
        if line.filled:
            axes.fill_between(at, values, step="mid", color=GREY, alpha=0.6, linewidth=0)
            continue
        if line.band is not None:
            wide = np.nan_to_num(thinned(line.band, width))
            low, high = values - wide, values + wide
            axes.fill_between(at, low, high, color=line.colour, alpha=0.2, linewidth=0, label=panel.band)
        axes.plot(
            at, values, color=line.colour, linestyle=line.style, linewidth=1.8, marker=marker, markersize=4, label=name,
            drawstyle="steps-mid" if panel.stepped else "default",
        )  # fmt: skip
    axes.set_title(panel.title, fontsize=9, loc="left", color=TRUE)
    axes.set_ylabel(panel.what, color=TRUE, fontsize=9)
    if panel.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
    elif panel.zero:
        axes.set_ylim(bottom=0)
    if panel.shares:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    elif not panel.log:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if abs(value) >= 10 else f"{value:g}")
    if legend:
        axes.legend(frameon=False, fontsize=9)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    quiet(axes)


def _spans(panels: Sequence[Panel]) -> Iterator[str]:
    for panel in panels:
        each = [f"{name} from {_said(line.values[0], panel)} to {_said(line.values[-1], panel)}"
                for name, line in panel.lines.items()]  # fmt: skip
        yield f"{panel.what}. {'; '.join(each)}"


def _said(value: float | None, panel: Panel) -> str:
    return "-" if value is None or np.isnan(value) else panel.text(value)


def _some(x: Sequence[datetime], panels: Sequence[Panel]) -> Table:
    """Return the first step, the last, and some between them, for who does not see the picture."""
    shown = np.unique(np.linspace(0, len(x) - 1, TABLE_ROWS).round().astype(int)).tolist()
    head, columns = ["from"], []
    for panel in panels:
        for name, line in panel.lines.items():
            head.append(name)
            columns.append([_said(line.values[at], panel) for at in shown])
            if line.band is not None:
                head.append(panel.band)
                columns.append([f"± {_said(line.band[at], panel)}" for at in shown])
    rows = [
        [x[at].isoformat(" ", "minutes"), *cells] for at, cells in zip(shown, zip(*columns, strict=True), strict=True)
    ]
    return Table(head, rows, "Some steps as a table" if len(shown) < len(x) else "The same as a table")


@draw.register
def _bars(chart: BarChart) -> str:
    single = len(chart.series) == 1
    picture, axes = figure(5.4, 1.1 + (0.3 if single else 0.36) * len(chart.names))
    places = np.arange(len(chart.names))[::-1]
    shown = [np.minimum(np.array(values, np.float64), chart.most) for values in chart.series.values()]
    marks = np.minimum(chart.marks, chart.most)
    wide = [np.array(chart.reach.get(name, np.zeros(len(places))), np.float64) for name in chart.series]
    ends = [values + each for values, each in zip(shown, wide, strict=True)]
    top = max(float(np.nanmax([*(end.max(initial=0.0) for end in ends), *marks, *chart.limits])), 1e-9)
    for index, (name, values) in enumerate(zip(chart.series, shown, strict=True)):
        offset, height = (0.0, 0.66) if single else (0.2 - 0.4 * index, 0.38)
        colour = list(chart.colours) if single else chart.colours[index]
        axes.barh(places + offset, values, height=height, color=colour, label=name)
        if name in chart.reach:
            axes.errorbar(values, places + offset, xerr=wide[index], fmt="none", ecolor=TRUE, elinewidth=1, capsize=2)
        texts = chart.texts[index] if chart.texts else [written(float(value)) for value in values]
        for place, end, text in zip(places, ends[index], texts, strict=True):
            axes.text(
                max(end, 0.0) + top / 100, place + offset, text, va="center", fontsize=8 if single else 7, color=TRUE
            )
    for limit in chart.limits:
        axes.axvline(limit, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
    if len(marks):
        axes.plot(marks, places, linestyle="", marker="|", markersize=11, markeredgewidth=2, color=TRUE)
    names = [name if len(name) < 40 else f"{name[:38]}..." for name in chart.names]
    axes.set_yticks(places, names, fontsize=8, parse_math=False)  # a name may have any characters, "$" too
    axes.tick_params(axis="x", labelsize=8)
    axes.set_ylim(-0.6, len(chart.names) - 0.4)
    axes.set_xlim(0, (1.25 if single else 1.12) * top)
    axes.set_xlabel(chart.what, color=TRUE, fontsize=8)
    percent = bool(chart.limits)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}" if percent else written(value))
    if not single:
        picture.legend(frameon=False, loc="outside upper left", ncols=2, fontsize=8)
    quiet(axes)
    return image(picture, "svg", alt=chart.alt) + draw(chart.table)


@draw.register
def _columns(chart: ColumnChart) -> str:
    picture, axes = figure(3.4, 2.5)
    places = np.arange(len(chart.true))
    for offset, counts, colour in ((-0.2, chart.true, TRUE), (0.2, chart.made, SYNTHETIC)):
        axes.bar(places + offset, counts, width=0.4, color=colour)
        if len(chart.labels) <= LABELLED:
            for place, count in zip(places, counts, strict=True):
                height, text = max(float(count), 0.0), written(round(float(count)))
                axes.text(place + offset, height, text, ha="center", va="bottom", fontsize=6, color=TRUE)
    if len(chart.labels) <= LABELLED:
        short = [label if len(label) < 12 else f"{label[:10]}..." for label in chart.labels]
        axes.set_xticks(places, short, fontsize=7, rotation=0 if len(short) < 4 else 45)
    else:
        axes.set_xticks([])
        axes.set_xlabel(f"{len(chart.labels)} values", color=TRUE, fontsize=8)
    axes.set_ylabel("rows", color=TRUE, fontsize=8)
    axes.tick_params(axis="y", labelsize=7)
    axes.yaxis.set_major_formatter(lambda value, _: written(value))
    axes.locator_params(axis="y", nbins=4)
    quiet(axes)
    return image(picture, "png", alt=chart.alt)


@draw.register
def _heat(chart: HeatMap) -> str:
    from matplotlib.colors import LogNorm, Normalize

    grids = [grid for _, grid in chart.panels]
    top = max(float(np.nanmax(grid)) for grid in grids) if np.isnan(chart.top) else chart.top
    norm: Any = LogNorm(vmin=0.7, vmax=max(top, 2.0))
    if chart.scale != "log":
        norm = Normalize(-top, top) if chart.scale == "signed" else Normalize(0.0, 1.0)
    colours = {"log": "magma_r", "signed": "RdBu_r", "unit": "cividis"}[chart.scale]
    columns = len(grids) // chart.rows
    picture, panels = figure(*chart.size, rows=chart.rows, columns=columns, squeeze=False)
    mesh = None
    for index, (axes, (title, grid)) in enumerate(zip(panels.flat, chart.panels, strict=True)):
        mesh = axes.imshow(
            np.ma.masked_less_equal(grid, 0.0) if chart.scale == "log" else np.ma.masked_invalid(grid),
            origin="upper" if chart.ticks else "lower", aspect="auto", interpolation="nearest", norm=norm, cmap=colours,
            extent=None if chart.extent is None else (*chart.extent[::2], *chart.extent[1::2]),
        )  # fmt: skip
        axes.set_title(title, color=TRUE, fontsize=8)
        if chart.extent is not None:
            _map_axes(axes, chart)
            continue
        first = index % columns == 0
        axes.set_xticks(range(len(chart.ticks)), chart.ticks, rotation=90, fontsize=7)
        axes.set_yticks(range(len(chart.ticks)), chart.ticks if first else [""] * len(chart.ticks), fontsize=7)
        axes.tick_params(length=0)
        if first and chart.row_names:
            axes.set_ylabel(chart.row_names[index // columns], color=TRUE, fontsize=8)
        for spine in axes.spines.values():
            spine.set_color(GREY)
    bar = picture.colorbar(
        mesh, ax=panels, shrink=0.8, pad=0.02, extend="both" if chart.scale == "signed" else "neither"
    )
    bar.set_label(chart.what, fontsize=8)
    bar.ax.tick_params(labelsize=7)
    if chart.scale == "log":
        bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else "")
    return image(picture, "png", alt=chart.alt)


def _map_axes(axes: Any, chart: HeatMap) -> None:
    assert chart.extent is not None
    xmin, ymin, xmax, ymax = chart.extent
    for line in chart.outline:
        axes.plot(line[:, 0], line[:, 1], color=GREY, linewidth=0.4, alpha=0.7)
    axes.set_xlim(xmin, xmax)
    axes.set_ylim(ymin, ymax)
    axes.set_xlabel(chart.axes[0], color=TRUE, fontsize=8)
    axes.set_ylabel(chart.axes[1], color=TRUE, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.locator_params(nbins=4)
    quiet(axes)


@draw.register
def _gallery(chart: Gallery) -> str:
    each = [f"<figure>{draw(one)}<figcaption>{html.escape(one.caption)}</figcaption></figure>" for one in chart.charts]
    return f'<div class="maps{" small" * chart.small}">{"".join(each)}</div>'


def figure(width: float, height: float, *, rows: int = 1, columns: int = 1, **more: Any) -> tuple[Any, Any]:
    """Return a matplotlib figure and its axes, sizes in inches; `more` goes to `Figure.subplots`."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplots(rows, columns, **more)


def quiet(axes: Any) -> None:
    """Leave two grey axes of the four."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)
    axes.tick_params(colors=TRUE)


def image(figure: Any, kind: str, *, alt: str) -> str:
    """Return a picture as a page holds it. `alt` says what is to be seen, for who does not see it."""
    import matplotlib as mpl

    # A fixed salt and no date: the same simulation writes the same page.
    with mpl.rc_context({"svg.hashsalt": "privstream", "svg.fonttype": "path"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # letters that the font lacks stand in the table
        target = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(target, format=kind, dpi=150, metadata=metadata)
    mime = "image/svg+xml" if kind == "svg" else "image/png"
    data = base64.b64encode(target.getvalue()).decode()
    return f'<img alt="{html.escape(alt, quote=True)}" src="data:{mime};base64,{data}">'
