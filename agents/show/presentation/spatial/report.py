"""The report of a spatial stream: at which size of area it can be read, maps and their difference, errors over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.show.pages.metrics import percent
from agents.show.pages.plots import AMBER, BLUE, RED, curves
from agents.show.pages.verdict import Judged
from agents.show.presentation.maps import Area, Frame, Points, expected, multiples, pictures, scales
from agents.show.presentation.spatial import zones
from agents.show.presentation.spatial.metrics import metrics
from engines.core.registry import build_domain
from engines.spatial.points import Placement, PointRecords, Prefixes
from schemas.config import Stream, ZonesDomainSection
from schemas.config.domain.box import are_degrees

if TYPE_CHECKING:
    from agents.protocol.release.held_out import HeldOutAudit
    from agents.show.pages.report import StepRow

COLOURS = (RED, AMBER, BLUE)
MOST_EVEN = 20_000
"""Points of a map of polygons or lines that knows nothing but how many there are."""
_RANGES = (
    "<h2>Error of counts in random areas over time</h2><p class=sub>Mean relative error of 500 random rectangles of "
    "each size: small ones cover 0.01 to 0.1 % of the domain, medium ones to 1 %, large ones to 10 %. Less is "
    "better.</p>"
)
HOW = (
    "All events are counted in squares of each size, true and synthetic, after the last step. Bars are the "
    "differences, added up, as a share of all true events."
)


def area_of(audit: HeldOutAudit) -> Area:
    """The public domain of a stream that is not over zones."""
    grid: Any = audit.evaluator.domain
    fields, mapped = (grid.x_field, grid.y_field), getattr(grid, "mapped", None)
    if mapped is not None:
        return Area(grid.bounds, fields, degrees=True, outline=mapped.outline())
    return Area(grid.bounds, fields, degrees=are_degrees(fields, grid.bounds))


def points_of(audit: HeldOutAudit) -> tuple[Points, Points]:
    """True events in the middle of their cell of the evaluation grid, and the synthetic points."""
    grid: Any = audit.evaluator.domain
    truth = audit.truth
    codes = (truth.keys[:, 0] >> np.uint64(1)).astype(np.int64)
    xmin, ymin, xmax, ymax = grid.corners(codes + (1 << grid.depth), np.full(len(codes), grid.depth, np.int64))
    signs = 1 - 2 * (truth.keys[:, 0] & np.uint64(1)).astype(np.int64)
    true = Points((xmin + xmax) / 2, (ymin + ymax) / 2, (truth.counts * signs).astype(np.float64))
    return true, _placed(grid, list(audit.alive.values()))


def _placed(grid: Any, records: Sequence[Any]) -> Points:
    x, y = (np.array([row[name] for row in records], np.float64) for name in (grid.x_field, grid.y_field))
    if getattr(grid, "mapped", None) is not None:
        # Across the antimeridian the map goes on beyond 180 degrees.
        x = np.where(x < grid.bounds[0], x + 360.0, x)
    return Points(x, y, np.ones(len(x)))


def _even(stream: Stream, audit: HeldOutAudit, alive: int) -> Points | None:
    """As many points as are alive, spread over the domain by its measure: what one knows without any place.

    In a box what is expected in each square; on a map a limited number of points.
    """
    if not alive:
        return None
    if getattr(audit.evaluator.domain, "mapped", None) is None:
        return expected(area_of(audit), alive)
    domain: Any = build_domain(stream)
    count = min(alive, MOST_EVEN)
    one, first, last = np.ones(1, np.int64), np.zeros(1, np.int64), np.full(1, count, np.int64)
    spread = Prefixes.of(Placement("evenly"), one, first, last, depth=domain.depth)
    points = _placed(audit.evaluator.domain, [record.fields for record in PointRecords(domain, spread)])
    return Points(points.x, points.y, points.weights * (alive / count))


def judged(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[Judged]:
    if isinstance(stream.domain, ZonesDomainSection):
        return [zones.judged(audit)]
    true, made = points_of(audit)
    found = scales(area_of(audit), true, made, _even(stream, audit, len(made.x)))
    baseline = "as many points, spread evenly over the domain"
    return [Judged(what="Counts by place", scales=found, how=HOW, baseline=baseline)]


def frame(stream: Stream, audit: HeldOutAudit) -> Frame | None:
    if isinstance(stream.domain, ZonesDomainSection):
        return None
    return Frame.of(area_of(audit), *points_of(audit))


def sections(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[str]:
    over_zones = isinstance(stream.domain, ZonesDomainSection)
    if over_zones:
        parts = [zones.bars(audit)]
    else:
        parts = [pictures(area_of(audit), *points_of(audit), what="events", heading="Where the events are")]
        kept = [(row.start, row.frame) for row in steps if row.frame is not None]
        parts += [found] if (found := multiples(kept, what="events")) else []
    released = [row for row in steps if not row.gathered]
    if released:
        named = metrics(stream)
        lines = {each.label: [row.metrics[each.keys[0]] for row in released] for each in named}
        colours = dict(zip(lines, COLOURS, strict=True))
        heading = zones.ERRORS if over_zones else _RANGES
        drawn = curves([row.start for row in released], lines, colours, what="mean relative error, %", text=percent)
        parts += [heading, drawn]
    return parts
