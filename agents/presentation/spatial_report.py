"""The report of a spatial stream: true and synthetic map side by side, and the errors of range queries over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.pages.plots import AMBER, BLUE, GREY, RED, TRUE, curves, figure, image, quiet
from agents.presentation import spatial_zones
from schemas.arrays import FloatArray
from schemas.config import Stream, ZonesDomainSection

if TYPE_CHECKING:
    from agents.pages.report import StepRow
    from agents.protocol.release.held_out import HeldOutAudit


COLOURS = {"small": RED, "medium": AMBER, "large": BLUE}
MAP_PIXELS = 120
_PREFIX = "error_"
_RANGES = (
    "<h2>Error of range queries over time</h2><p class=sub>Mean relative error of 500 random rectangles "
    "of each size; small covers 0.01 to 0.1 % of the domain, medium to 1 %, large to 10 %. "
    "Lower is better.</p>"
)


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Points of a map: `x`, `y`, `weights` are `(points,)`."""

    x: FloatArray
    y: FloatArray
    weights: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class MapPair:
    """True and synthetic points alive after the last step, and the public domain they lie in.

    Attributes:
        outline: of polygons, or lines; `(points, 2)` each.
    """

    true: Points
    synthetic: Points
    bounds: tuple[float, float, float, float]
    fields: tuple[str, str]
    outline: Sequence[FloatArray] = ()

    @staticmethod
    def of(stream: Stream, audit: HeldOutAudit) -> MapPair:
        """True events in the middle of their cell of the evaluation grid, and the synthetic points."""
        grid: Any = audit.evaluator.domain
        truth = audit.truth
        codes = (truth.keys[:, 0] >> np.uint64(1)).astype(np.int64)
        xmin, ymin, xmax, ymax = grid.corners(codes + (1 << grid.depth), np.full(len(codes), grid.depth, np.int64))
        signs = 1 - 2 * (truth.keys[:, 0] & np.uint64(1)).astype(np.int64)
        fields = (grid.x_field, grid.y_field)
        x, y = (np.array([row[name] for row in audit.alive.values()], np.float64) for name in fields)
        true = Points((xmin + xmax) / 2, (ymin + ymax) / 2, (truth.counts * signs).astype(np.float64))
        mapped = getattr(grid, "mapped", None)
        if mapped is None:
            return MapPair(true, Points(x, y, np.ones(len(x))), grid.bounds, fields)
        # Across the antimeridian the map goes on beyond 180 degrees.
        x = np.where(x < grid.bounds[0], x + 360.0, x)
        return MapPair(true, Points(x, y, np.ones(len(x))), grid.bounds, fields, mapped.outline())


def tiles(metrics: Mapping[str, float]) -> Sequence[tuple[str, str]]:
    return [(f"last error, {name.removeprefix(_PREFIX)}", f"{value:.1%}") for name, value in metrics.items()]


def errors(metrics: Mapping[str, float]) -> Mapping[str, float]:
    return {name.removeprefix(_PREFIX): value for name, value in metrics.items()}


def sections(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[str]:
    zones = isinstance(stream.domain, ZonesDomainSection)
    parts = [spatial_zones.bars(audit) if zones else _maps(MapPair.of(stream, audit))]
    released = [row for row in steps if not row.gathered]
    if released:
        names = [name.removeprefix(_PREFIX) for name in released[-1].metrics]
        lines = {name: [row.metrics[_PREFIX + name] for row in released] for name in names}
        heading = spatial_zones.ERRORS if zones else _RANGES
        parts += [heading, curves([row.start for row in released], lines, COLOURS)]
    return parts


def _maps(maps: MapPair) -> str:
    """The same colours mean the same number of events in both, or they could not be compared."""
    grids = [_density(points, maps.bounds) for points in (maps.true, maps.synthetic)]
    top = max(float(grid.max()) for grid in grids)
    figures = [
        f"<figure>{_map(grid, maps, top)}<figcaption>{caption}</figcaption></figure>"
        for grid, caption in zip(grids, ("true (private)", "synthetic (what the job publishes)"), strict=True)
    ]
    return (
        "<h2>Where the events are</h2><p class=sub>After the last step. Darker is denser, on a logarithmic scale that "
        f"both maps share.</p><div class=maps>{''.join(figures)}</div>"
    )


def _density(points: Points, bounds: tuple[float, float, float, float]) -> FloatArray:
    xmin, ymin, xmax, ymax = bounds
    grid, _, _ = np.histogram2d(
        points.y, points.x, bins=MAP_PIXELS, range=[[ymin, ymax], [xmin, xmax]], weights=points.weights
    )
    return np.maximum(np.asarray(grid, np.float64), 0.0)


def _map(grid: FloatArray, maps: MapPair, top: float) -> str:
    xmin, ymin, xmax, ymax = maps.bounds
    made, axes = figure(4.6, 4.8)
    colours = np.ma.masked_equal(np.log1p(grid), 0.0)  # where nothing is, the page shows
    axes.imshow(
        colours, origin="lower", extent=(xmin, xmax, ymin, ymax), aspect="auto", cmap="magma_r",
        vmin=0.0, vmax=max(float(np.log1p(top)), 1e-9), interpolation="nearest",
    )  # fmt: skip
    for line in maps.outline:
        axes.plot(line[:, 0], line[:, 1], color=GREY, linewidth=0.4, alpha=0.7)
    axes.set_xlim(xmin, xmax)
    axes.set_ylim(ymin, ymax)
    axes.set_xlabel(maps.fields[0], color=TRUE)
    axes.set_ylabel(maps.fields[1], color=TRUE)
    axes.locator_params(nbins=4)
    quiet(axes)
    return image(made, "png")
