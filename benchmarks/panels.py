"""Errors of many methods on many data sets as one picture: a panel for each data set, a line for each method."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from benchmarks.size import sized

Points = Sequence[tuple[float, float, float]]
"""x, y, and the spread of y."""


def draw_panels(
    panels: Mapping[str, Mapping[str, Points]],
    path: Path,
    *,
    x: str,
    y: str,
    columns: int = 4,
    linear: Collection[str] = (),
) -> None:
    """Draw lines by panel and method on logarithmic axes. At the smallest size one panel is enough: to draw all of them
    takes longer than what they show. Args: linear: panels whose x axis is not.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    panels = dict(list(panels.items())[: sized(None, smallest=1)])
    rows = -(-len(panels) // columns)
    height = 2.6 * rows + 0.9
    figure, axes = pyplot.subplots(rows, columns, figsize=(3.0 * columns, height), squeeze=False)
    methods = list(dict.fromkeys(method for lines in panels.values() for method in lines))
    # Black is none of the colours that the others take in turn.
    styles = {method: {"lw": 0.9, "color": f"C{at}"} for at, method in enumerate(methods)}
    styles["default"] = {"lw": 2.0, "color": "black"}
    handles = {}
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (title, lines) in zip(axes.flat, panels.items(), strict=False):
        for method, points in lines.items():
            at, values, spread = zip(*points, strict=True)
            handles[method] = axis.errorbar(at, values, yerr=spread, capsize=2, **styles[method])
        axis.set_title(title, fontsize=9)
        axis.set(xscale="linear" if title in linear else "log", yscale="log")
        there = sorted({point[0] for points in lines.values() for point in points})
        axis.set_xticks(there, [f"{value:g}" for value in there])
        axis.xaxis.minorticks_off()
        axis.tick_params(which="both", labelsize=7)
    figure.supxlabel(x, fontsize=9, y=0.55 / height)
    figure.supylabel(y, fontsize=9)
    figure.legend([handles[method] for method in methods], methods, loc="lower center", ncols=6, fontsize=8)
    figure.tight_layout(rect=(0.01, 0.6 / height, 1, 1))
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
