"""Points on a map, true beside synthetic: at which size of area their counts agree, where they differ, how they went.

Any engine whose records lie somewhere can use it. Counts are of squares of a grid over the public bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from agents.show.charts import Gallery, HeatMap, Table
from agents.show.view import ReportSection, Scale, relative
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
        """Return `(side, side)` sums of weights: rows from south to north, columns from west to east."""
        xmin, ymin, xmax, ymax = self.bounds
        grid, _, _ = np.histogram2d(
            points.y, points.x, bins=side, range=[[ymin, ymax], [xmin, xmax]], weights=points.weights
        )
        return np.maximum(np.asarray(grid, np.float64), 0.0)

    def units(self) -> tuple[float, float]:
        """Return metres of one unit of x and y; NaN where they are not degrees."""
        if not self.degrees:
            return math.nan, math.nan
        middle = math.radians((self.bounds[1] + self.bounds[3]) / 2)
        return METRES * math.cos(middle), METRES

    def metres(self, side: int) -> float:
        """Return the side of a square of a grid of `side` x `side`; NaN where x and y are not degrees."""
        xmin, ymin, xmax, ymax = self.bounds
        east, north = self.units()
        return math.sqrt((xmax - xmin) * east * (ymax - ymin) * north) / side

    def size(self, side: int) -> str:
        """Return how large a square of a grid of `side` x `side` is."""
        if self.degrees:
            return length(self.metres(side))
        xmin, ymin, xmax, ymax = self.bounds
        return f"{(xmax - xmin) / side:.3g} x {(ymax - ymin) / side:.3g}"

    def name(self, side: int) -> str:
        """Return a square's size as people say it: districts (3.6 km)."""
        if side == 1:
            return f"the whole ({self.size(1)})"
        if not self.degrees:
            return f"areas of {self.size(side)}"
        metres = self.metres(side)
        return f"{next((word for least, word in WORDS if metres >= least), 'streets')} ({length(metres)})"


def length(metres: float) -> str:
    """Return a length as a person reads it.

    >>> length(3620.0), length(113.0), length(28_400.0)
    ('3.6 km', '110 m', '28 km')
    """
    if metres >= 10_000:
        return f"{metres / 1000:,.0f} km"
    return f"{metres / 1000:.1f} km" if metres >= 1000 else f"{float(f'{metres:.2g}'):.0f} m"


def map_of(content: bytes, fields: tuple[str, str]) -> MappedDomain:
    """Return the shapes of a GeoJSON file, to be drawn. Raises: EngineInputError."""
    shape = shape_of(parsed(content))
    return LineDomain(fields, shape, _DRAWN, reach_m=1.0) if shape.lines else PolygonDomain(fields, shape, _DRAWN)


def scales(area: Area, true: Points, made: Points, even: Points | None) -> list[Scale]:
    """Return errors of the counts of squares, from the whole domain to the finest; `even` knows only the total.

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
    """Return `total` points spread evenly over a box, as the count to expect in each of the finest squares."""
    xmin, ymin, xmax, ymax = area.bounds
    middles = (np.arange(SIDES[-1]) + 0.5) / SIDES[-1]
    x, y = np.meshgrid(xmin + (xmax - xmin) * middles, ymin + (ymax - ymin) * middles)
    return Points(x.ravel(), y.ravel(), np.full(x.size, total / x.size))


def coarser(grid: FloatArray, side: int) -> FloatArray:
    """Return sums of squares of a finer grid."""
    each = len(grid) // side
    return np.asarray(grid.reshape(side, each, side, each).sum(axis=(1, 3)), np.float64)


def maps(area: Area, true: Points, made: Points, *, what: str, heading: str) -> ReportSection:
    """Return the true map, the synthetic one, and what the second has more or less; `what` is counted."""
    grids = {
        "true (private)": area.counts(true, MAP_PIXELS),
        "synthetic (what the job publishes)": area.counts(made, MAP_PIXELS),
    }
    top, square = max(float(grid.max()) for grid in grids.values()), area.size(MAP_PIXELS)
    charts = [
        _heat(
            area, grid, f"{what} in a square of {square}", top, caption,
            f"Map, {caption}: {int(grid.sum()):,} {what} in {int((grid > 0).sum()):,} squares, at most "
            f"{grid.max():,.0f} in one",
        )
        for caption, grid in grids.items()
    ]  # fmt: skip
    coarse = (area.counts(true, DIFFERENCE_PIXELS), area.counts(made, DIFFERENCE_PIXELS))
    gaps = coarse[1] - coarse[0]
    sizes = np.abs(gaps[gaps != 0])
    most = max(float(np.percentile(sizes, 98)), 1.0) if len(sizes) else 1.0
    empty = (coarse[0] == 0) & (coarse[1] == 0)
    said = f"at most {max(gaps.max(), 0):,.0f} too many in a square, and {max(-gaps.min(), 0):,.0f} too few"
    difference = _heat(
        area, np.where(empty, math.nan, gaps), f"too few    {what}    too many", most, "synthetic less true",
        f"Map of the difference, synthetic less true: {said}", signed=True,
    )  # fmt: skip
    return ReportSection(
        heading,
        f"After the last step. The first two maps share a logarithmic scale of {what} in a square of {square}; the "
        f"third has larger squares, of {area.size(DIFFERENCE_PIXELS)}, red where there are too many synthetic ones and "
        "blue where there are too few.",
        [Gallery([*charts, difference]), _largest(*coarse, area, what)],
    )


def _heat(
    area: Area, grid: FloatArray, what: str, top: float, caption: str, alt: str, *, signed: bool = False
) -> HeatMap:
    unit = " (degrees)" if area.degrees else ""
    return HeatMap(
        panels=[("", grid)],
        what=what,
        scale="signed" if signed else "log",
        top=top,
        extent=area.bounds,
        axes=(area.fields[0] + unit, area.fields[1] + unit),
        outline=area.outline,
        caption=caption,
        alt=alt,
    )


def _largest(true: FloatArray, made: FloatArray, area: Area, what: str) -> Table:
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
    return Table(head, rows, "The largest differences as a table")


Frame = tuple[FloatArray, FloatArray]
"""True and synthetic counts after a step, `(FRAME_PIXELS, FRAME_PIXELS)` each."""


def small_maps(frames: Sequence[tuple[datetime, Frame]], *, what: str) -> Sequence[ReportSection]:
    """Return how the map filled: true above, synthetic below; nothing where there are too few frames."""
    if len(frames) < 3:
        return []
    chosen = [frames[at] for at in np.unique(np.linspace(0, len(frames) - 1, 5).round().astype(int)).tolist()]
    said = "; ".join(f"{start:%Y-%m-%d}: {true.sum():,.0f} true, {made.sum():,.0f}" for start, (true, made) in chosen)
    above = [(f"{start:%Y-%m-%d %H:%M}".removesuffix(" 00:00"), true) for start, (true, _) in chosen]
    chart = HeatMap(
        panels=[*above, *(("", made) for _, (_, made) in chosen)],
        what=f"{what} in a square",
        scale="log",
        size=(1.7 * len(chosen), 3.7),
        rows=2,
        row_names=("true", "synthetic"),
        alt=f"Small maps over time, true above and synthetic below. {what} after the step of {said}",
    )
    sub = "After the steps that began at these times; true (private) above, synthetic below, on one logarithmic scale."
    return [ReportSection("How the map filled", sub, [chart])]
