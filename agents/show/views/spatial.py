"""What engine `spatial` shows: maps, or counts of zones; at which size of area they can be read; errors over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any

import numpy as np

from agents.protocol.release.held_out import HeldOutAudit
from agents.show.charts import AMBER, BLUE, RED, pairs
from agents.show.noise import Answer, ErrorModel, laplace_interval, noise_facts
from agents.show.pictures import AttributeCells, Picture, PointPicture, TablePicture
from agents.show.view import GOOD, Judged, Metric, ReportSection, Scale, StepRow, View, over_time, percent, relative
from agents.show.views.maps import FRAME_PIXELS, Area, Frame, Points, expected, map_of, maps, scales, small_maps
from engines.core.counters.simple import SimpleCounter
from engines.core.intervals import NORMAL_95
from engines.core.registry import build_domain, uncorrected_engine
from engines.core.state import signs_of
from engines.spatial.domain.lines import LineDomain
from engines.spatial.domain.mapped import MappedDomain
from engines.spatial.evaluators import SIZES, ZoneEvaluator
from engines.spatial.held.engine import GROUPS, HeldLeaves
from engines.spatial.papers.phdstream import PHDStream
from engines.spatial.points import Placement, PointRecords, Prefixes
from schemas.arrays import IntArray
from schemas.config import Stream
from schemas.config.engines.spatial import (
    BoxDomainSection,
    GeoJsonDomainSection,
    SpatialOptions,
    ZonesDomainSection,
    are_degrees,
)
from schemas.errors import PrivstreamError
from schemas.guarantee import Guarantee

COUNTS = "event counts of the leaves"
"""What the mechanism is called, at its end, whose noise is in released counts; the others decide where to look."""
MOST_ZONES = 30
"""Zones that are drawn."""
COLOURS = (RED, AMBER, BLUE)
MOST_EVEN = 20_000
"""Points of a map of polygons or lines that knows nothing but how many there are."""
_FLOOR = "A count below 0.1 % of all events is divided by that, not by itself."
_RECTANGLES = {
    "small": "each 0.01 to 0.1 % of the domain",
    "medium": "each 0.1 to 1 % of the domain",
    "large": "each 1 to 10 % of the domain",
}
_ZONES = {
    "small": ("single zones", "all single zones"),
    "medium": ("runs of a tenth of the zones", "all runs of a tenth of the zones, neighbours in the table"),
    "large": ("runs of a third of the zones", "all runs of a third of the zones, neighbours in the table"),
}


def _domain(stream: Stream) -> str:
    domain, depth = stream.domain, SpatialOptions.from_stream(stream).depth
    if isinstance(domain, ZonesDomainSection):
        return _zones_sentence(domain)
    if isinstance(domain, GeoJsonDomainSection):
        name, digest = PurePath(domain.file.path).name, domain.file.sha256[:12]
        halved = f"whose bounds are halved {depth} times, by declaration and not from the data."
        if isinstance(build_domain(stream), LineDomain):
            where = f"moved onto the nearest line of {name} (SHA-256 {digest}...) within {domain.reach_m:g} m"
        else:
            where = f"inside the polygons of {name} (SHA-256 {digest}...), borders included"
        return f"{domain.x} and {domain.y} as longitude and latitude, {where}, {halved}"
    assert isinstance(domain, BoxDomainSection)
    (xmin, ymin), (xmax, ymax) = domain.bounds[:2], domain.bounds[2:]
    return (
        f"{domain.x} in [{xmin:g}, {xmax:g}) and {domain.y} in [{ymin:g}, {ymax:g}), halved {depth} "
        "times, by declaration and not from the data."
    )


def _warnings(stream: Stream) -> Iterator[str]:
    domain = build_domain(stream)
    if isinstance(domain, MappedDomain):
        yield from domain.remarks()


def _zones_sentence(domain: ZonesDomainSection) -> str:
    names = domain.names
    where = "as listed" if domain.file is None else f"with the outlines of SHA-256 {domain.file.sha256[:12]}..."
    return f"{domain.field} is one of {len(names):,} zones, {names[0]} to {names[-1]}, {where}, and not from the data."


@dataclass(frozen=True, slots=True)
class LeafNoise:
    """The noise in one leaf's count: its variance after so many releases, and the 95 % interval of a single draw.

    Leaves of a region have noise of their own each. tests/cli/test_explain.py compares it with the engine itself.
    """

    after: Callable[[int], float]
    single: float | None

    @staticmethod
    def of(stream: Stream, guarantee: Guarantee) -> LeafNoise:
        """Return the noise of a leaf. Raises: PrivstreamError if the engine does not say which mechanism counts."""
        engine = uncorrected_engine(stream)
        if isinstance(engine, PHDStream):
            counter = engine.config.leaf_counter
            last, nodes = counter.horizon, counter.node_noise(1)
            return LeafNoise(
                lambda releases: counter.variance(releases if last is None else min(releases, last)),
                laplace_interval(nodes[0]) if len(nodes) == 1 and counter.resolution == 1 else None,
            )
        counting = [mechanism for mechanism in guarantee if mechanism.name.endswith(COUNTS)]
        if len(counting) != 1:
            raise PrivstreamError(
                f'engine "{stream.engine}" does not say which of its mechanisms counts. Fix: name it.'
            )
        noise = noise_facts(counting[0])
        return LeafNoise(lambda releases: releases * noise.variance, noise.interval)

    def deviation(self, *, leaves: int, releases: int = 1) -> float:
        """Return the standard deviation of a region's count, in events."""
        return math.sqrt(leaves * self.after(releases))

    def interval(self, *, leaves: int, releases: int = 1) -> float:
        """Return the number of events within which 95 % of the errors lie."""
        if leaves * releases == 1 and self.single is not None:
            return self.single  # one draw is not normal: its tails are heavier
        return NORMAL_95 * self.deviation(leaves=leaves, releases=releases)

    def answer(self, name: str, leaves: int, what: str) -> Answer:
        """Return the error of a region of so many leaves."""
        deviation, interval = partial(self.deviation, leaves=leaves), partial(self.interval, leaves=leaves)
        return Answer.of(name, leaves, what, lambda t: deviation(releases=t), lambda t: interval(releases=t))


def error_model(stream: Stream, guarantee: Guarantee) -> ErrorModel:
    """Return the errors of regions from one leaf to the whole domain."""
    noise = LeafNoise.of(stream, guarantee)
    most = SpatialOptions.from_stream(stream).max_leaves
    answers = [noise.answer("one leaf", 1, "the smallest cell that is counted")]
    for name, (low, high) in SIZES.items():
        share = math.sqrt(low * high)
        leaves = max(1, math.ceil(share * most))
        answers.append(noise.answer(f"{name} region", leaves, f"about {share:.2%} of all leaves"))
    answers.append(noise.answer("whole domain", most, "all leaves"))
    engine, growth = uncorrected_engine(stream), "with the square root of the number of releases"
    if isinstance(engine, HeldLeaves):
        how = (
            f"L leaves of the region, of at most {most:,} in all (options.max_leaves), each measured once in every one "
            f"of t releases. That is the most, but for the first release and for bursts, which look up to {GROUPS} "
            "times"
        )
        if (longest := engine.config.counter.longest) > 1:
            how += (
                f": a quiet leaf holds its events and is measured every {longest} releases, which makes the noise "
                "smaller and the counts later"
            )
        how += "."
    else:
        assert isinstance(engine, PHDStream)
        how = (
            f"L leaves of the region, of {most:,} in all, say (mode {stream.mode} has no limit), each measured in "
            "every one of t releases."
        )
        if not isinstance(engine.config.leaf_counter, SimpleCounter):
            growth = "as that of the leaves' counter (options.counter)"
        if engine.config.leaf_counter.horizon is not None:
            how += f" After {engine.config.leaf_counter.horizon:,} releases (options.horizon) the stream stops."
    return ErrorModel(
        tuple(answers),
        sizes="leaves",
        growth=f"The error grows {growth}",
        formula="sd(L, t) = sqrt(L · V(t)),  V(t) = Var(noise of one leaf after t releases),  95 % in 1.96 · sd "
        "(one draw: its own law)",
        conditions=f"V(1) = {noise.after(1):.4g} events². {how} Busy places have more and smaller leaves than quiet "
        "ones. "
        "It is the noise alone: where inside a leaf its events lie is a further error, which depends on the data; "
        "counts that add up, none below zero, take some off. privstream simulate measures the error as a whole on your "
        "own data.",
    )


def metrics(stream: Stream) -> Sequence[Metric]:
    """Return the errors of counts in areas of three sizes."""
    zones = isinstance(stream.domain, ZonesDomainSection)
    labels = {
        size: (f"error of {_ZONES[size][0]}", f"Mean relative error of the counts of {_ZONES[size][1]}. {_FLOOR}")
        if zones
        else (
            f"error in {size} areas",
            f"Mean relative error of the counts in 500 random rectangles, {_RECTANGLES[size]}. {_FLOOR}",
        )
        for size in _RECTANGLES
    }
    baseline = "An empty release has at most 100 %."
    return [
        Metric(keys=(f"error_{size}",), label=label, meaning=meaning, baseline=baseline, text=percent)
        for size, (label, meaning) in labels.items()
    ]


def area_of(audit: HeldOutAudit) -> Area:
    """Return the public domain of a stream that is not over zones."""
    grid: Any = audit.evaluator.domain
    fields, mapped = (grid.x_field, grid.y_field), getattr(grid, "mapped", None)
    if mapped is not None:
        return Area(grid.bounds, fields, degrees=True, outline=mapped.outline())
    return Area(grid.bounds, fields, degrees=are_degrees(fields, grid.bounds))


def points_of(audit: HeldOutAudit) -> tuple[Points, Points]:
    """Return true events in the middle of their cell of the evaluation grid, and the synthetic points."""
    grid: Any = audit.evaluator.domain
    truth = audit.truth
    codes = (truth.keys[:, 0] >> np.uint64(1)).astype(np.int64)
    xmin, ymin, xmax, ymax = grid.corners(codes + (1 << grid.depth), np.full(len(codes), grid.depth, np.int64))
    true = Points((xmin + xmax) / 2, (ymin + ymax) / 2, (truth.counts * signs_of(truth.keys)).astype(np.float64))
    return true, _placed(grid, audit.points)


def _placed(grid: Any, records: Sequence[Any]) -> Points:
    x, y = (np.array([row[name] for row in records], np.float64) for name in (grid.x_field, grid.y_field))
    if getattr(grid, "mapped", None) is not None:
        # Across the antimeridian the map goes on beyond 180 degrees.
        x = np.where(x < grid.bounds[0], x + 360.0, x)
    return Points(x, y, np.ones(len(x)))


def _even(stream: Stream, audit: HeldOutAudit, alive: int) -> Points | None:
    """Return as many points as are alive, spread over the domain by its measure: what one knows without any place.

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
    """Return at which size of area, or of groups of zones, counts can be read."""
    if isinstance(stream.domain, ZonesDomainSection):
        return [_zones_judged(audit)]
    true, made = points_of(audit)
    found = scales(area_of(audit), true, made, _even(stream, audit, len(made.x)))
    how = (
        "All events are counted in squares of each size, true and synthetic, after the last step. Bars are the "
        "differences, added up, as a share of all true events."
    )
    baseline = "as many points, spread evenly over the domain"
    return [Judged(what="Counts by place", scales=found, how=how, baseline=baseline)]


def _zones_judged(audit: HeldOutAudit) -> Judged:
    """Return errors of runs of zones, from all of them to single ones."""
    true, made = (counts.astype(np.float64) for counts in _zone_counts(audit))
    even = np.full(len(true), made.sum() / len(true))
    found = []
    runs = sorted({len(true), *(1 << power for power in range(len(true).bit_length() - 1))}, reverse=True)
    for run in runs:
        starts = np.arange(0, len(true), run)
        sums = [np.add.reduceat(counts, starts) for counts in (true, made, even)]
        name = "all zones" if run == len(true) else "single zones" if run == 1 else f"groups of {run} zones"
        found.append(Scale(name, relative(sums[0], sums[1]), relative(sums[0], sums[2])))
    there = true > 0
    good = int((np.abs(made - true)[there] <= GOOD * true[there]).sum())
    return Judged(
        what="Counts by zone",
        scales=found,
        how="Counts of neighbouring zones, taken together, true and synthetic, after the last step. Bars are the "
        "differences, added up, as a share of all true events.",
        baseline="as many events, the same number in each zone",
        more=f"Of {int(there.sum()):,} zones with events, {good:,} {'is' if good == 1 else 'are'} within {GOOD:.0%}.",
    )


def _zone_counts(audit: HeldOutAudit) -> tuple[IntArray, IntArray]:
    """Return true and released counts of every zone."""
    evaluator = audit.evaluator
    assert isinstance(evaluator, ZoneEvaluator)
    released = evaluator.synthetic_counts([row[evaluator.domain.field] for row in audit.points])
    return evaluator.true_counts(audit.truth), released


def _frame(stream: Stream, audit: HeldOutAudit) -> Frame | None:
    if isinstance(stream.domain, ZonesDomainSection):
        return None
    true, made = (area_of(audit).counts(points, FRAME_PIXELS) for points in points_of(audit))
    return true, made


def _sections(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Iterator[ReportSection]:
    if isinstance(stream.domain, ZonesDomainSection):
        yield _zones_section(audit)
        heading = "Error of zone counts over time"
        sub = (
            "Mean relative error of the counts of all single zones (small), and of all runs of a tenth (medium) and a "
            "third (large) of the zones. Less is better."
        )
    else:
        yield maps(area_of(audit), *points_of(audit), what="events", heading="Where the events are")
        kept = [(row.start, row.frame) for row in steps if row.frame is not None]
        yield from small_maps(kept, what="events")
        heading = "Error of counts in random areas over time"
        sub = (
            "Mean relative error of 500 random rectangles of each size: small ones cover 0.01 to 0.1 % of the domain, "
            "medium ones to 1 %, large ones to 10 %. Less is better."
        )
    colours = dict(zip(metrics(stream), COLOURS, strict=True))
    yield from over_time(heading, sub, colours, steps, what="mean relative error, %")


def _zones_section(audit: HeldOutAudit) -> ReportSection:
    """Return true and released counts of the zones that hold most."""
    evaluator = audit.evaluator
    assert isinstance(evaluator, ZoneEvaluator)
    names, counts = evaluator.domain.names, (each.astype(np.float64) for each in _zone_counts(audit))
    more = f" The {MOST_ZONES} zones that hold most." if len(names) > MOST_ZONES else ""
    bars = pairs(names, *counts, what="events of a zone", most=MOST_ZONES)
    return ReportSection("Where the events are", f"After the last step.{more}", [bars])


def _picture(stream: Stream) -> Picture:
    """Return a map; of zones without a place in them, how many are in each."""
    domain = stream.domain
    if isinstance(domain, BoxDomainSection):
        return PointPicture(domain.x, domain.y, domain.bounds, degrees=domain.in_degrees, weighted=stream.weighted)
    if isinstance(domain, ZonesDomainSection):
        if domain.x is None or domain.y is None or domain.file is None:
            return TablePicture([AttributeCells(domain.field, values=domain.names)], weighted=stream.weighted)
        fields, mapped = (domain.x, domain.y), map_of(domain.file.content, (domain.x, domain.y))
    else:
        built = build_domain(stream)
        assert isinstance(built, MappedDomain)
        assert isinstance(domain, GeoJsonDomainSection)
        fields, mapped = (domain.x, domain.y), built
    return PointPicture(*fields, mapped.bounds, outline=mapped.outline(), degrees=True, weighted=stream.weighted)


VIEW = View(
    domain=_domain,
    error_model=error_model,
    sections=_sections,
    metrics=metrics,
    judged=judged,
    frame=_frame,
    records=lambda stream: "synthetic points",
    error_unit="%",
    warnings=_warnings,
    picture=_picture,
)
