"""Points on a map, true beside synthetic: at which size of area their counts agree, where they differ, how they went.

For every engine whose records lie somewhere. Counts are of squares of a grid over the public bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from agents.show.pages.plots import GREY, TRUE, figure, folded, image, quiet
from agents.show.pages.verdict import Scale, relative
from engines.spatial.domain.geojson import parsed, shape_of
from engines.spatial.domain.lines import LineDomain
from engines.spatial.domain.mapped import MappedDomain
from engines.spatial.domain.polygons import PolygonDomain
from schemas.arrays import FloatArray

MAP_PIXELS, DIFFERENCE_PIXELS, FRAME_PIXELS = 120, 32, 60
SIDES = tuple(1 << power for power in range(10))
"""Squares along a side of the domain, from coarse to fine."""
EVEN_IN_SQUARE = 10
LISTED = 10
_DRAWN = 8  # halvings of a map that is drawn only
METRES = 111_320.0
"""Of a degree of latitude."""
WORDS = ((200_000, "countries"), (20_000, "regions"), (2_000, "districts"), (500, "neighbourhoods"), (150, "blocks"))
"""Metres, and what areas of that size and more are called; smaller ones are streets."""


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Points of a map: `x`, `y`, `weights` are `(points,)`."""

    x: FloatArray
    y: FloatArray
    weights: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Area:
    """The public domain of points.

    Attributes: outline: of polygons, or lines; `(points, 2)` each. degrees: whether x and y are longitude and latitude.
    """

    bounds: tuple[float, float, float, float]
    fields: tuple[str, str]
    degrees: bool
    outline: Sequence[FloatArray] = ()

    def counts(self, points: Points, side: int) -> FloatArray:
        """`(side, side)` rows from south to north, of columns from west to east."""
        xmin, ymin, xmax, ymax = self.bounds
        grid, _, _ = np.histogram2d(
            points.y, points.x, bins=side, range=[[ymin, ymax], [xmin, xmax]], weights=points.weights
        )
        return np.maximum(np.asarray(grid, np.float64), 0.0)

    def units(self) -> tuple[float, float]:
        """Metres of one unit of x and y; NaN where they are not degrees."""
        if not self.degrees:
            return math.nan, math.nan
        middle = math.radians((self.bounds[1] + self.bounds[3]) / 2)
        return METRES * math.cos(middle), METRES

    def size(self, side: int) -> str:
        """How large a square of a grid of `side` x `side` is."""
        xmin, ymin, xmax, ymax = self.bounds
        width, height = (xmax - xmin) / side, (ymax - ymin) / side
        if not self.degrees:
            return f"{width:.3g} x {height:.3g}"
        east, north = self.units()
        return length(math.sqrt(width * east * height * north))

    def name(self, side: int) -> str:
        """A square as people say it: districts (3.6 km)."""
        if side == 1:
            return f"the whole ({self.size(1)})"
        if not self.degrees:
            return f"areas of {self.size(side)}"
        xmin, ymin, xmax, ymax = self.bounds
        east, north = self.units()
        metres = math.sqrt((xmax - xmin) * east * (ymax - ymin) * north) / side
        return f"{next((word for least, word in WORDS if metres >= least), 'streets')} ({length(metres)})"


def length(metres: float) -> str:
    """
    >>> length(3620.0), length(113.0), length(28_400.0)
    ('3.6 km', '110 m', '28 km')
    """
    if metres >= 10_000:
        return f"{metres / 1000:,.0f} km"
    return f"{metres / 1000:.1f} km" if metres >= 1000 else f"{float(f'{metres:.2g}'):.0f} m"


def map_of(content: bytes, fields: tuple[str, str]) -> MappedDomain:
    """The shapes of a GeoJSON file, to be drawn. Raises: EngineInputError."""
    shape = shape_of(parsed(content))
    return LineDomain(fields, shape, _DRAWN, reach_m=1.0) if shape.lines else PolygonDomain(fields, shape, _DRAWN)


def scales(area: Area, true: Points, made: Points, even: Points | None) -> list[Scale]:
    """Errors of the counts of squares, from the whole domain to the finest ones; `even` knows nothing but the total.

    Of squares of which fewer than `EVEN_IN_SQUARE` even points are in each there is no baseline: which of them a point
    is in would be chance. Unless there is one in every finest square: then they are what is expected there.
    """
    finest = [area.counts(points, SIDES[-1]) for points in (true, made)]
    spread = None if even is None else area.counts(even, SIDES[-1])
    found = []
    for side in SIDES:
        t, m = (coarser(grid, side) for grid in finest)
        baseline = math.nan
        if even is not None and spread is not None:
            e = coarser(spread, side)
            if spread.all() or len(even.x) >= EVEN_IN_SQUARE * np.count_nonzero(e):
                baseline = relative(t, e)
        found.append(Scale(area.name(side), relative(t, m), baseline))
    return found


def expected(area: Area, total: float) -> Points:
    """Of a box: so many points spread evenly, as the count that is expected in each of the finest squares."""
    xmin, ymin, xmax, ymax = area.bounds
    middles = (np.arange(SIDES[-1]) + 0.5) / SIDES[-1]
    x, y = np.meshgrid(xmin + (xmax - xmin) * middles, ymin + (ymax - ymin) * middles)
    return Points(x.ravel(), y.ravel(), np.full(x.size, total / x.size))


def coarser(grid: FloatArray, side: int) -> FloatArray:
    """Sums of squares of a finer grid."""
    each = len(grid) // side
    return np.asarray(grid.reshape(side, each, side, each).sum(axis=(1, 3)), np.float64)


def pictures(area: Area, true: Points, made: Points, *, what: str, heading: str) -> str:
    """The true map, the synthetic one, and what the second has more or less; `what` is counted, in the plural."""
    grids = [area.counts(points, MAP_PIXELS) for points in (true, made)]
    top = max(float(grid.max()) for grid in grids)
    square = area.size(MAP_PIXELS)
    captions = ("true (private)", "synthetic (what the job publishes)")
    figures = [
        f"<figure>{_map(grid, area, top, what, caption, square)}<figcaption>{caption}</figcaption></figure>"
        for grid, caption in zip(grids, captions, strict=True)
    ]
    coarse = (area.counts(true, DIFFERENCE_PIXELS), area.counts(made, DIFFERENCE_PIXELS))
    figures.append(f"<figure>{_difference(*coarse, area, what)}<figcaption>synthetic less true</figcaption></figure>")
    return (
        f"<h2>{heading}</h2><p class=sub>After the last step. The first two maps share a logarithmic scale of {what} "
        f"in a square of {square}; the third has larger squares, of {area.size(DIFFERENCE_PIXELS)}, red where there "
        f"are too many synthetic ones and blue where there are too few.</p><div class=maps>{''.join(figures)}</div>"
        + _largest(*coarse, area, what)
    )


def _axes(area: Area, axes: Any) -> None:
    xmin, ymin, xmax, ymax = area.bounds
    for line in area.outline:
        axes.plot(line[:, 0], line[:, 1], color=GREY, linewidth=0.4, alpha=0.7)
    axes.set_xlim(xmin, xmax)
    axes.set_ylim(ymin, ymax)
    unit = " (degrees)" if area.degrees else ""
    axes.set_xlabel(area.fields[0] + unit, color=TRUE)
    axes.set_ylabel(area.fields[1] + unit, color=TRUE)
    axes.xaxis.label.set_size(8)
    axes.yaxis.label.set_size(8)
    axes.tick_params(labelsize=7)
    axes.locator_params(nbins=4)
    quiet(axes)


def _map(grid: FloatArray, area: Area, top: float, what: str, caption: str, square: str) -> str:
    from matplotlib.colors import LogNorm

    xmin, ymin, xmax, ymax = area.bounds
    made, axes = figure(3.8, 3.5)
    mesh = axes.imshow(
        np.ma.masked_less_equal(grid, 0.0), origin="lower", extent=(xmin, xmax, ymin, ymax), aspect="auto",
        cmap="magma_r", norm=LogNorm(vmin=0.7, vmax=max(top, 2.0)), interpolation="nearest",
    )  # fmt: skip
    _axes(area, axes)
    bar = made.colorbar(mesh, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label(f"{what} in a square of {square}", fontsize=8)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else "")
    bar.ax.tick_params(labelsize=7)
    told = f"{int(grid.sum()):,} {what} in {int((grid > 0).sum()):,} squares, at most {grid.max():,.0f} in one"
    return image(made, "png", alt=f"Map, {caption}: {told}")


def _difference(true: FloatArray, made: FloatArray, area: Area, what: str) -> str:
    xmin, ymin, xmax, ymax = area.bounds
    gaps = made - true
    sizes = np.abs(gaps[gaps != 0])
    most = max(float(np.percentile(sizes, 98)), 1.0) if len(sizes) else 1.0
    picture, axes = figure(3.8, 3.5)
    mesh = axes.imshow(
        np.ma.masked_where((true == 0) & (made == 0), gaps), origin="lower", extent=(xmin, xmax, ymin, ymax),
        aspect="auto", cmap="RdBu_r", vmin=-most, vmax=most, interpolation="nearest",
    )  # fmt: skip
    _axes(area, axes)
    bar = picture.colorbar(mesh, ax=axes, shrink=0.8, pad=0.02, extend="both")
    bar.ax.tick_params(labelsize=7)
    bar.set_label(f"too few    {what}    too many", fontsize=8)
    told = f"at most {max(gaps.max(), 0):,.0f} too many in a square, and {max(-gaps.min(), 0):,.0f} too few"
    return image(picture, "png", alt=f"Map of the difference, synthetic less true: {told}")


def _largest(true: FloatArray, made: FloatArray, area: Area, what: str) -> str:
    xmin, ymin, xmax, ymax = area.bounds
    side, gaps = len(true), np.abs(made - true)
    rows = []
    for flat in np.argsort(-gaps, axis=None, kind="stable")[:LISTED].tolist():
        row, column = divmod(flat, side)
        if gaps[row, column]:
            x, y = xmin + (column + 0.5) * (xmax - xmin) / side, ymin + (row + 0.5) * (ymax - ymin) / side
            t, m = true[row, column], made[row, column]
            rows.append([f"{x:.5g}, {y:.5g}", f"{t:,.0f}", f"{m:,.0f}", f"{m - t:+,.0f}"])
    head = [f"middle of a square ({', '.join(area.fields)})", f"true {what}", "synthetic", "difference"]
    return folded(head, rows, title="The largest differences as a table")


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Counts after a step, `(FRAME_PIXELS, FRAME_PIXELS)`."""

    true: FloatArray
    made: FloatArray

    @staticmethod
    def of(area: Area, true: Points, made: Points) -> Frame:
        return Frame(area.counts(true, FRAME_PIXELS), area.counts(made, FRAME_PIXELS))


def multiples(frames: Sequence[tuple[datetime, Frame]], *, what: str) -> str:
    """How the map filled: true above, synthetic below; nothing where there are too few."""
    if len(frames) < 3:
        return ""
    from matplotlib.colors import LogNorm

    chosen = [frames[at] for at in np.unique(np.linspace(0, len(frames) - 1, 5).round().astype(int)).tolist()]
    made, grid = figure(1.7 * len(chosen), 3.7, rows=2, columns=len(chosen), squeeze=False)
    top = max(float(part.max()) for _, frame in chosen for part in (frame.true, frame.made))
    norm = LogNorm(vmin=0.7, vmax=max(top, 2.0))
    mesh = None
    for column, (start, frame) in enumerate(chosen):
        for row, (name, counts) in enumerate((("true", frame.true), ("synthetic", frame.made))):
            axes = grid[row][column]
            mesh = axes.imshow(
                np.ma.masked_less_equal(counts, 0.0), origin="lower", aspect="auto", cmap="magma_r", norm=norm,
                interpolation="nearest",
            )  # fmt: skip
            axes.set_xticks([])
            axes.set_yticks([])
            for spine in axes.spines.values():
                spine.set_color(GREY)
            if row == 0:
                axes.set_title(f"{start:%Y-%m-%d %H:%M}".removesuffix(" 00:00"), color=TRUE, fontsize=8)
            if column == 0:
                axes.set_ylabel(name, color=TRUE, fontsize=8)
    bar = made.colorbar(mesh, ax=grid, shrink=0.8, pad=0.02)
    bar.set_label(f"{what} in a square", fontsize=8)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else "")
    bar.ax.tick_params(labelsize=7)
    told = "; ".join(
        f"{start:%Y-%m-%d}: {frame.true.sum():,.0f} true, {frame.made.sum():,.0f}" for start, frame in chosen
    )
    alt = f"Small maps over time, true above and synthetic below. {what} after the step of {told}"
    return (
        f"<h2>How the map filled</h2><p class=sub>After the steps that began at these times; true (private) above, "
        f"synthetic below, on one logarithmic scale.</p>{image(made, 'png', alt=alt)}"
    )
