"""True and synthetic counts side by side, with their numbers on them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agents.show.pages.plots import SYNTHETIC, TRUE, figure, folded, image, quiet
from schemas.arrays import FloatArray


def written(value: float) -> str:
    """A count on a bar.

    >>> written(1234.0), written(12.0), written(123456.0), written(0.25)
    ('1,234', '12', '123k', '0.25')
    """
    if abs(value) >= 1e5:
        return f"{value / 1e6:,.3g}M" if abs(value) >= 1e6 else f"{value / 1e3:,.0f}k"
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 100 else f"{value:.3g}"


def pairs(names: Sequence[str], true: FloatArray, made: FloatArray, *, what: str) -> str:
    """Lying bars, the last name on top, and the same as a table; `what` is counted."""
    picture, axes = figure(5.4, 1.0 + 0.36 * len(names))
    rows = np.arange(len(names))
    for counts, offset, colour, label in (
        (true, 0.2, TRUE, "true (private)"),
        (made, -0.2, SYNTHETIC, "synthetic (what the job publishes)"),
    ):
        axes.barh(rows + offset, counts, height=0.38, color=colour, label=label)
        for row, count in zip(rows, counts, strict=True):
            axes.text(max(count, 0.0), row + offset, f" {written(float(count))}", va="center", fontsize=7, color=TRUE)
    axes.set_yticks(rows, [name if len(name) < 30 else f"{name[:28]}..." for name in names])
    axes.tick_params(axis="y", labelsize=8)
    axes.set_ylim(-0.6, len(names) - 0.4)
    most = max(float(true.max(initial=0.0)), float(made.max(initial=0.0)), 1.0)
    axes.set_xlim(0, 1.12 * most)
    axes.set_xlabel(what, color=TRUE, fontsize=9)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}")
    picture.legend(frameon=False, loc="outside upper left", ncols=2, fontsize=8)
    quiet(axes)
    told = "; ".join(
        f"{name} {written(float(t))} and {written(float(m))}"
        for name, t, m in reversed(list(zip(names, true, made, strict=True))[-8:])
    )
    table = [
        [name, written(float(t)), written(float(m)), f"{float(m - t):+,.4g}"]
        for name, t, m in reversed(list(zip(names, true, made, strict=True)))
    ]
    alt = f"Bars of {what}, true and synthetic: {told}{' and others' if len(names) > 8 else ''}"
    return image(picture, "svg", alt=alt) + folded(["", "true", "synthetic", "difference"], table)
