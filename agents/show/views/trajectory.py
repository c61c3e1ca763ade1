"""What engine `trajectory` shows: flows and passages by size of area, maps, lengths of trips, errors over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from agents.protocol.release.held_out import HeldOutAudit
from agents.show.charts import BLUE, SYNTHETIC, TRUE, Curve, LineChart, Panel, Table, written
from agents.show.noise import Answer, ErrorModel, noise_facts
from agents.show.pictures import Picture, TripPicture
from agents.show.text import number_of
from agents.show.view import Judged, Metric, ReportSection, Scale, StepRow, Term, View, over_time, relative
from agents.show.views.maps import Area, Points, length, map_of, maps
from engines.core.registry import build_domain
from engines.trajectory.build import shares
from engines.trajectory.default.questions import FEW, pure_epsilon
from engines.trajectory.domain import TripDomain
from engines.trajectory.metrics import LONGEST, PATTERNS, TrajectoryEvaluator
from engines.trajectory.trips import LATTICE_BITS, Trips
from schemas.arrays import FloatArray, IntArray
from schemas.config import Stream
from schemas.config.engines.spatial import are_degrees
from schemas.config.engines.trajectory import TrajectoryOptions, TripsDomainSection
from schemas.guarantee import Guarantee

_CELLS = {"default": "starts", "paper": "pairs"}
POWERS = range(7)
"""Of two: squares along a side, for flows from each to each and for passages."""
FLOWS_SIDE, FLOWS_LISTED = 4, 10
BINS = 20


def _domain(stream: Stream) -> str:
    section = TripsDomainSection.from_stream(stream)
    xmin, ymin, xmax, ymax = section.bounds
    side = TrajectoryOptions.from_stream(stream).side
    cells = {
        "default": f"a grid of {side} x {side} cells at most",
        "paper": "cells that a private tree finds",
    }[stream.mode]
    return (
        f"trips named by {section.trip}, through points with {section.x} in [{xmin:g}, {xmax:g}) and {section.y} in "
        f"[{ymin:g}, {ymax:g}), by declaration and not from the data; counted on {cells}.{_map(section)}"
    )


def _map(section: TripsDomainSection) -> str:
    if section.file is None:
        return ""
    return (
        f" Trips keep to the map {section.file.path}: points off it are outside, nothing is measured in cells that it "
        "misses, and each synthetic point lies on it."
    )


def _error_model(stream: Stream, guarantee: Guarantee) -> ErrorModel:
    counts = {mechanism.name: mechanism for mechanism in guarantee}
    first = counts["trips"] if "trips" in counts else counts["pairs"]
    asked = [
        ("all trips", 1, first, "the number of trips of a step" if "trips" in counts else "one leaf of pairs"),
        ("one cell", 1, counts[_CELLS[stream.mode]], f"{_CELLS[stream.mode]} in one cell, in one step"),
        ("100 cells", 100, counts[_CELLS[stream.mode]], "the sum over so many cells, in one step"),
    ]
    if "moves" in counts:
        asked.append(("one way out", 1, counts["moves"], "moves from one cell in one direction, in one step"))
    return ErrorModel(
        tuple(Answer.steady(name, size, what, noise_facts(mechanism)) for name, size, mechanism, what in asked),
        sizes="cells",
        growth="The error does not grow: each step counts other trips",
        formula="sd(L) = sqrt(L · V),  V = variance of the noise in one cell",
        conditions="It is the noise of the measurements alone. Synthetic trips come of all of them together: what is "
        "empty is found out, neighbours lend to each other, and the error of an answer from the trips depends on the "
        "data. privstream simulate measures it on your own.",
    )


def _few_trips(stream: Stream) -> str:
    """Return the warning that data can be too small, whatever they are."""
    few = math.ceil(FEW / pure_epsilon(shares(stream)))
    return (
        f"steps with fewer than some {few:,} trips are too small for this epsilon; a coarse grid is used then, by the "
        "released number of trips, and little but large features is right. Make steps longer, or raise epsilon."
    )


def _warnings(stream: Stream) -> Iterator[str]:
    yield _few_trips(stream)


def _remarks(stream: Stream) -> Iterator[str]:
    section, options, shortest_us = (
        TripsDomainSection.from_stream(stream),
        TrajectoryOptions.from_stream(stream),
        stream.time.shortest_us,
    )
    yield f"One contribution is one trip with all its records. Warning: {_few_trips(stream)}"
    ends = f"on a record whose {section.end} is {section.end_value}, or " if section.end is not None else ""
    period = ", and at the end of each period of the bound" if stream.privacy.per_us is not None else ""
    yield (
        f"A trip closes {ends}after {number_of(options.idle_steps(shortest_us), 'step')} without a record, after "
        f"{number_of(options.life_steps(shortest_us), 'step')} in any case{period}; it is released in that step, once. "
        f"Only the first {options.max_points:,} points of a trip count."
    )
    if stream.privacy.delta and stream.privacy.max_per_step is None and stream.changes > 1:
        yield (
            f"All {stream.changes:,} trips of a user may close in one step, and the noise is for that. With "
            "max_per_step, which bounds trips that begin in a step, it grows with the root of a user's trips."
        )
    yield (
        f"Times of synthetic points are public: the step's. {section.order} holds the place of a point in its trip, "
        f"{section.trip} a name that stands for nobody."
    )


# The paper's figures, [kumar2024] section 5.6.2.
_ARE = "Mean relative error of"
_JSD = "Jensen-Shannon distance between the true and the synthetic shares of"
_PAIRS = "trips by their first and last cell on a grid of 40 x 40"
_ROUTES = f"the {PATTERNS} most frequent true routes of 2 to {LONGEST} cells of a 40 x 40 grid"
_COLLAPSED = f"{_ROUTES}, staying in a cell counted once,"
_WORST = (
    "0.83 is the worst, where the two have nothing in common; with fewer trips than pairs of cells, a second sample of "
    "the same trips is near it, too."
)
_NOTHING = "0.83 is the worst, where the two have nothing in common."
_EMPTY = "A release without any trips has 1."


TERMS = (
    Term("ARE", "Average relative error: differences divided by what is true, in the mean."),
    Term("JSD", "Jensen-Shannon distance of two distributions: the root of their divergence, in natural logarithms."),
    Term("SE, FP, CP, QE", "Start and end; frequent patterns; frequent patterns, collapsed; query error."),
    Term("flow", "Trips from one square to another: by where they begin and where they end."),
)


def metrics(stream: Stream) -> Sequence[Metric]:
    """Return the paper's figures."""

    def metric(key: str, label: str, meaning: str, baseline: str, *, tile: bool = False) -> Metric:
        return Metric(
            keys=(key,), label=label, short=key.upper(), meaning=meaning, baseline=baseline, tile=tile, error=tile
        )

    return [
        metric(
            "qe",
            "error of trips through small areas",
            f"{_ARE} how many trips touch a rectangle of 0.01 to 0.1 % of the domain; 500 of them. A count below 0.1 "
            "% of all trips is divided by that instead.",
            "A release without any trips has at most 1.",
            tile=True,
        ),
        # The others are near their worst unless there are many trips for each pair, or way, of cells.
        metric("fp_jsd", "distance of frequent routes", f"{_JSD} {_ROUTES}.", _NOTHING, tile=True),
        metric("fp_are", "error of frequent routes", f"{_ARE} how often {_ROUTES} are taken.", _EMPTY),
        metric("se_jsd", "distance of start-end pairs", f"{_JSD} {_PAIRS}.", _WORST),
        metric("se_are", "error of start-end pairs", f"{_ARE} the numbers of {_PAIRS}.", _EMPTY),
        metric("cp_are", "error of frequent ways", f"{_ARE} how often {_COLLAPSED} are taken.", _EMPTY),
        metric("cp_jsd", "distance of frequent ways", f"{_JSD} {_COLLAPSED[:-1]}.", _NOTHING),
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Travelled:
    """All trips so far, true and synthetic, in the public domain."""

    domain: TripDomain
    area: Area
    true: Trips
    made: Trips

    @staticmethod
    def of(stream: Stream, audit: HeldOutAudit) -> Travelled:
        evaluator, domain = audit.evaluator, build_domain(stream)
        assert isinstance(evaluator, TrajectoryEvaluator)
        assert isinstance(domain, TripDomain)
        columns = {name: [row.get(name) for row in audit.alive.values()] for name in evaluator.fields}
        fields = (domain.x_field, domain.y_field)
        degrees = domain.ground is not None or are_degrees(fields, domain.bounds)
        area = Area(domain.bounds, fields, degrees=degrees)
        return Travelled(domain, area, evaluator.true_trips(audit.truth), evaluator.synthetic_trips(columns))

    def lengths(self, trips: Trips) -> FloatArray:
        """Return the `(trips,)` way from point to point, in metres or in the coordinates' unit."""
        x, y = self.domain.coordinates(trips)
        east, north = self.area.units() if self.area.degrees else (1.0, 1.0)
        way = np.append(np.hypot(np.diff(x) * east, np.diff(y) * north), 0.0)
        way[trips.offsets[1:] - 1] = 0.0  # from a trip's last point to the next one's first
        return np.add.reduceat(way, trips.offsets[:-1]) if len(trips) else np.zeros(0)

    def long(self, value: float) -> str:
        return length(value) if self.area.degrees else f"{value:.3g}"


def _cells(trips: Trips, power: int) -> IntArray:
    shift = LATTICE_BITS - power
    return (trips.y >> shift << power) + (trips.x >> shift)


def flows(trips: Trips, power: int) -> tuple[IntArray, IntArray]:
    """Return pairs of first and last square that occur, as one number each, and how many trips have them."""
    cells = _cells(trips, power)
    if not len(trips):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    codes = (cells[trips.offsets[:-1]] << 2 * power) + cells[trips.offsets[1:] - 1]
    found, counts = np.unique(codes, return_counts=True)
    return found, counts.astype(np.int64)


def passages(trips: Trips, power: int) -> tuple[IntArray, IntArray]:
    """Return the squares that are touched, and by how many trips each."""
    pairs = np.unique((trips.owners.astype(np.int64) << 2 * power) + _cells(trips, power))
    found, counts = np.unique(pairs & ((1 << 2 * power) - 1), return_counts=True)
    return found, counts.astype(np.int64)


def aligned(
    true: tuple[IntArray, IntArray], made: tuple[IntArray, IntArray]
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return codes that either has, and the counts of both.

    >>> aligned((np.array([1, 5]), np.array([3, 2])), (np.array([5, 7]), np.array([4, 1])))[1:]
    (array([3., 2., 0.]), array([0., 4., 1.]))
    """
    codes = np.union1d(true[0], made[0])
    counts = []
    for found, number in (true, made):
        each = np.zeros(len(codes))
        each[np.searchsorted(codes, found)] = number
        counts.append(each)
    return codes, counts[0], counts[1]


def judged(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[Judged]:
    """Return errors of flows and of passages by size of area."""
    seen = Travelled.of(stream, audit)
    if not len(seen.true):
        return [Judged(what="Trips", scales=(), how="")]
    kinds = (
        (
            "Flows from area to area",
            flows,
            "Trips by the square where they begin and the one where they end, true and synthetic. Bars are the "
            "differences, added up, as a share of all true trips.",
            _lengths_said(seen),
        ),
        (
            "Trips through an area",
            passages,
            "How many trips touch a square. Bars are the differences, added up, as a share of the true counts.",
            "",
        ),
    )
    found = []
    for what, counted, how, more in kinds:
        scales = []
        for power in POWERS:
            _, true, made = aligned(counted(seen.true, power), counted(seen.made, power))
            name = "all trips" if power == 0 else seen.area.name(1 << power)
            scales.append(Scale(name, relative(true, made)))
        found.append(Judged(what=what, scales=scales, how=how, more=more))
    return found


def _lengths_said(seen: Travelled) -> str:
    true, made = seen.lengths(seen.true), seen.lengths(seen.made)
    if not len(made):
        return "There is no synthetic trip yet."
    t, m = float(np.median(true)), float(np.median(made))
    long_t, long_m = float(np.quantile(true, 0.9)), float(np.quantile(made, 0.9))
    return (
        f"Half of the trips are longer than {seen.long(t)}, of the synthetic ones longer than {seen.long(m)}; one in "
        f"ten longer than {seen.long(long_t)}, and {seen.long(long_m)}."
    )


def sections(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Iterator[ReportSection]:
    """Yield maps, the largest flows, lengths of trips and errors over time."""
    seen = Travelled.of(stream, audit)
    if not len(seen.true):
        return
    true, made = (Points(*seen.domain.coordinates(trips), np.ones(len(trips.x))) for trips in (seen.true, seen.made))
    yield maps(seen.area, true, made, what="points", heading="Where the trips go")
    yield _flows(seen)
    if len(seen.made):
        yield _lengths(seen)
    yield from over_time(
        "Error of trips through small areas over time",
        "Mean relative error of how many trips touch a small rectangle (QE), all trips so far. Less is better.",
        {next(metric for metric in metrics(stream) if metric.short == "QE"): BLUE},
        steps,
        what="mean relative error",
    )


def _flows(seen: Travelled) -> ReportSection:
    """Return the largest flows between the squares of a coarse grid, with their numbers."""
    power = FLOWS_SIDE.bit_length() - 1
    codes, true, made = aligned(flows(seen.true, power), flows(seen.made, power))
    rows = []
    for at in np.argsort(-np.maximum(true, made), kind="stable")[:FLOWS_LISTED].tolist():
        begin, end = divmod(int(codes[at]), 1 << 2 * power)
        t, m = float(true[at]), float(made[at])
        rows.append([_square(begin), _square(end), written(t), written(m), f"{m - t:+,.0f}"])
    head = ["from", "to", "true trips", "synthetic", "difference"]
    return ReportSection(
        "The largest flows",
        f"All trips so far, between {FLOWS_SIDE} x {FLOWS_SIDE} squares of {seen.area.size(FLOWS_SIDE)}; A1 is the one "
        f"in the south-west, A{FLOWS_SIDE} in the south-east.",
        [Table(head, rows, "The ten largest as a table", open=True)],
    )


def _square(cell: int) -> str:
    row, column = divmod(cell, FLOWS_SIDE)
    return f"{chr(ord('A') + row)}{column + 1}"


def _lengths(seen: Travelled) -> ReportSection:
    true, made = seen.lengths(seen.true), seen.lengths(seen.made)
    factor, unit = (1000.0, "km") if seen.area.degrees else (1.0, "units of the coordinates")
    top = max(float(np.quantile(np.append(true, made), 0.995)), 1e-12)
    edges = np.linspace(0.0, top, BINS + 1) / factor
    parts = [np.histogram(np.minimum(lengths, top) / factor, bins=edges)[0] / len(lengths) for lengths in (true, made)]
    digits = max(0, math.ceil(-math.log10(edges[1])) + 1)
    rows = [
        [f"{low:.{digits}f} to {high:.{digits}f}", f"{100 * t:.1f} %", f"{100 * m:.1f} %"]
        for low, high, t, m in zip(edges[:-1], edges[1:], *parts, strict=True)
    ]
    lines = {"true (private)": Curve(parts[0], TRUE), "synthetic": Curve(parts[1], SYNTHETIC, "--")}
    chart = LineChart(
        x=((edges[:-1] + edges[1:]) / 2).tolist(),
        panels=[Panel(lines=lines, what="trips, %", shares=True, stepped=True)],
        what=f"length of a trip, {unit}",
        size=(6.0, 3.0),
        alt=f"Shares of trips by length, true and synthetic. {_lengths_said(seen)}",
    )
    return ReportSection(
        "How long trips are",
        "From point to point; the last length holds all that are longer.",
        [chart, Table([f"length, {unit}", "true", "synthetic"], rows)],
    )


def _picture(stream: Stream) -> Picture:
    section = TripsDomainSection.from_stream(stream)
    outline = () if section.file is None else map_of(section.file.content, (section.x, section.y)).outline()
    degrees = section.in_degrees
    names = (section.trip, section.order, section.x, section.y)
    return TripPicture(*names, section.bounds, outline=outline, degrees=degrees)


VIEW = View(
    domain=_domain,
    error_model=_error_model,
    sections=sections,
    metrics=metrics,
    judged=judged,
    events=lambda stream: "points of trips",
    records=lambda stream: "points of synthetic trips",
    terms=TERMS,
    remarks=_remarks,
    warnings=_warnings,
    picture=_picture,
)
