"""The report of a trajectory stream: flows and passages by size of area, the maps, the lengths, errors over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agents.show.pages.metrics import plain
from agents.show.pages.plots import BLUE, SYNTHETIC, TRUE, curves, figure, folded, image, quiet
from agents.show.pages.verdict import Judged, Scale, relative
from agents.show.presentation.bars import written
from agents.show.presentation.maps import Area, Points, length, pictures
from agents.show.presentation.trajectory.metrics import metrics
from engines.core.registry import build_domain
from engines.trajectory.domain import TripDomain
from engines.trajectory.metrics import TrajectoryEvaluator
from engines.trajectory.trips import LATTICE_BITS, Trips
from schemas.arrays import FloatArray, IntArray
from schemas.config import Stream
from schemas.config.domain.box import are_degrees

if TYPE_CHECKING:
    from agents.protocol.release.held_out import HeldOutAudit
    from agents.show.pages.report import StepRow

POWERS = range(7)
"""Of two: squares along a side, for flows from each to each and for passages."""
FLOWS_SIDE, FLOWS_LISTED = 4, 10
BINS = 20


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
        """`(trips,)` way from point to point, in metres or in the coordinates' unit."""
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
    """Pairs of first and last square that occur, as one number each, and how many trips have them."""
    cells = _cells(trips, power)
    if not len(trips):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    codes = (cells[trips.offsets[:-1]] << 2 * power) + cells[trips.offsets[1:] - 1]
    found, counts = np.unique(codes, return_counts=True)
    return found, counts.astype(np.int64)


def passages(trips: Trips, power: int) -> tuple[IntArray, IntArray]:
    """Squares that are touched, and by how many trips each."""
    pairs = np.unique((trips.owners.astype(np.int64) << 2 * power) + _cells(trips, power))
    found, counts = np.unique(pairs & ((1 << 2 * power) - 1), return_counts=True)
    return found, counts.astype(np.int64)


def aligned(
    true: tuple[IntArray, IntArray], made: tuple[IntArray, IntArray]
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Codes that either has, and the counts of both.

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


def sections(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[str]:
    seen = Travelled.of(stream, audit)
    if not len(seen.true):
        return []
    true, made = (Points(*seen.domain.coordinates(trips), np.ones(len(trips.x))) for trips in (seen.true, seen.made))
    parts = [pictures(seen.area, true, made, what="points", heading="Where the trips go"), _flows(seen)]
    if len(seen.made):
        parts.append(_lengths(seen))
    named = {metric.short: metric for metric in metrics(stream)}
    known = [(row.start, value) for row in steps if (value := named["QE"].value(row.metrics)) is not None]
    if known:
        drawn = curves(
            [start for start, _ in known],
            {named["QE"].name: [value for _, value in known]},
            {named["QE"].name: BLUE},
            what="mean relative error",
            text=plain,
            percent=False,
        )
        parts.append(
            "<h2>Error of trips through small areas over time</h2><p class=sub>Mean relative error of how many trips "
            f"touch a small rectangle (QE), all trips so far. Less is better.</p>{drawn}"
        )
    return parts


def _flows(seen: Travelled) -> str:
    """The largest flows between the squares of a coarse grid, with their numbers."""
    power = FLOWS_SIDE.bit_length() - 1
    codes, true, made = aligned(flows(seen.true, power), flows(seen.made, power))
    cells = 1 << 2 * power
    rows = [
        [_square(int(code) // cells), _square(int(code) % cells), written(t), written(m), f"{m - t:+,.0f}"]
        for code, t, m in (
            (codes[at], float(true[at]), float(made[at]))
            for at in np.argsort(-np.maximum(true, made), kind="stable")[:FLOWS_LISTED].tolist()
        )
    ]
    size = seen.area.size(FLOWS_SIDE)
    return (
        f"<h2>The largest flows</h2><p class=sub>All trips so far, between {FLOWS_SIDE} x {FLOWS_SIDE} squares of "
        f"{size}; A1 is the one in the south-west, A{FLOWS_SIDE} in the south-east.</p>"
        + folded(["from", "to", "true trips", "synthetic", "difference"], rows, title="The ten largest as a table")
    ).replace("<details>", "<details open>")


def _square(cell: int) -> str:
    row, column = divmod(cell, FLOWS_SIDE)
    return f"{chr(ord('A') + row)}{column + 1}"


def _lengths(seen: Travelled) -> str:
    true, made = seen.lengths(seen.true), seen.lengths(seen.made)
    factor, unit = (1000.0, "km") if seen.area.degrees else (1.0, "units of the coordinates")
    top = max(float(np.quantile(np.append(true, made), 0.995)), 1e-12)
    edges = np.linspace(0.0, top, BINS + 1) / factor
    picture, axes = figure(6.0, 3.0)
    shares = []
    for lengths, colour, label in ((true, TRUE, "true (private)"), (made, SYNTHETIC, "synthetic")):
        counts, _ = np.histogram(np.minimum(lengths, top) / factor, bins=edges)
        shares.append(100 * counts / len(lengths))
        axes.stairs(
            shares[-1], edges, color=colour, linewidth=1.8, label=label, linestyle="-" if colour == TRUE else "--"
        )
    axes.set_xlabel(f"length of a trip, {unit}", color=TRUE)
    axes.set_ylabel("trips, %", color=TRUE)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    quiet(axes)
    digits = max(0, math.ceil(-math.log10(edges[1])) + 1)
    rows = [
        [f"{low:.{digits}f} to {high:.{digits}f}", f"{t:.1f} %", f"{m:.1f} %"]
        for low, high, t, m in zip(edges[:-1], edges[1:], *shares, strict=True)
    ]
    return (
        "<h2>How long trips are</h2><p class=sub>From point to point; the last bar holds all that are longer.</p>"
        + image(picture, "svg", alt=f"Shares of trips by length, true and synthetic. {_lengths_said(seen)}")
        + folded([f"length, {unit}", "true", "synthetic"], rows)
    )
