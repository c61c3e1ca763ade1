"""The page of `tune`: errors by bound, split in bias and noise. Self-contained. FOR THE OPERATOR: it shows true values.

Pure: data in, text out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.show.pages import templates
from agents.show.pages.metrics import Term
from agents.show.pages.plots import AMBER, BLUE, GREY, GRID, RED, SYNTHETIC, TRUE, figure, image, quiet

_PARTS = {"bias": (AMBER, "--"), "noise": (BLUE, "--"), "error": (TRUE, "-")}
_SHARES = {"first third": (SYNTHETIC, "--"), "all steps": (TRUE, "-"), "last third": (RED, "--")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCurves:
    """Of one epsilon.

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
    """What the page says of a stream.

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


def render(page: TunePage) -> str:
    """The page."""
    return templates.render(
        "tune.html",
        page=page,
        share_plot=_shares(page),
        error_plots=[_errors(curves, page.unit) for curves in page.epsilons],
    )


def _errors(curves: ErrorCurves, unit: str) -> str:
    """A panel for each error; nothing where none was compared."""
    if not curves.parts:
        return ""
    from matplotlib.ticker import LogLocator

    columns = 2 if len(curves.parts) == 4 else min(3, len(curves.parts))
    rows = math.ceil(len(curves.parts) / columns)
    made, grid = figure(max(3.4 * columns, 6.0), 3.1 * rows, rows=rows, columns=columns, squeeze=False)
    panels = list(grid.flat)
    scale = 100.0 if unit == "%" else 1.0
    for axes, (name, parts) in zip(panels, curves.parts.items(), strict=False):
        for part, (colour, line) in _PARTS.items():
            values = [scale * value if value > 0 else math.nan for value in parts[part]]
            axes.plot(curves.bounds, values, color=colour, linestyle=line, marker="o", markersize=4, label=part)
        axes.set_title(f"{name}, {unit}" if unit else name, color=TRUE, fontsize=10)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        _by_bound(axes, curves.bounds)
        if curves.best is not None:
            axes.axvline(curves.best, color=GREY, linewidth=1, linestyle=":")
    for axes in panels[len(curves.parts) :]:
        axes.set_visible(False)
    panels[0].legend(frameon=False, fontsize=9)
    told = "; ".join(
        f"{name} {_span(parts['error'], scale)}, of which bias {_span(parts['bias'], scale)} and noise "
        f"{_span(parts['noise'], scale)}"
        for name, parts in curves.parts.items()
    )
    alt = f"Lines of errors by max_contributions, from {curves.bounds[0]:,} to {curves.bounds[-1]:,}: {told}"
    return image(made, "svg", alt=alt)


def _span(values: Sequence[float], scale: float) -> str:
    return f"from {scale * values[0]:.3g} to {scale * values[-1]:.3g}"


def _shares(page: TunePage) -> str:
    made, axes = figure(6.0, 3.0)
    for name, (colour, line) in _SHARES.items():
        values = [100 * share for share in page.shares[name]]
        axes.plot(page.bounds, values, color=colour, linestyle=line, marker="o", markersize=4, label=name)
    axes.set_ylim(0, 105)
    axes.set_ylabel("rows accepted, %", color=TRUE)
    _by_bound(axes, page.bounds)
    axes.legend(frameon=False)
    told = "; ".join(f"{name} {_span(page.shares[name], 100)} %" for name in _SHARES)
    return image(made, "svg", alt=f"Lines of the share of rows accepted by max_contributions: {told}")


def _by_bound(axes: Any, bounds: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(list(bounds), [f"{bound:,}" for bound in bounds], fontsize=9)
    axes.minorticks_off()
    axes.set_xlabel("max_contributions", color=TRUE)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    quiet(axes)
