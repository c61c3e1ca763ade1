"""How engine `trajectory` is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator

from agents.show.pictures.contract import Picture
from agents.show.pictures.trips import TripPicture
from agents.show.presentation.contract import Presentation
from agents.show.presentation.error import NORMAL_95, Answer, ErrorModel
from agents.show.presentation.laws import noise_facts
from agents.show.presentation.maps import map_of
from agents.show.presentation.trajectory.metrics import TERMS, metrics
from agents.show.presentation.trajectory.report import judged, sections
from engines.trajectory.build import shares
from engines.trajectory.default.questions import FEW, pure_epsilon
from schemas.config import Stream
from schemas.config.domain.trips import TripsDomainSection
from schemas.config.options.trajectory import TrajectoryOptions
from schemas.guarantee import Guarantee

_CELLS = {"default": "starts", "paper": "pairs"}


def _section(stream: Stream) -> TripsDomainSection:
    section = stream.domain
    assert isinstance(section, TripsDomainSection)
    return section


def _domain(stream: Stream) -> str:
    section = _section(stream)
    xmin, ymin, xmax, ymax = section.bounds
    cells = {
        "default": f"a grid of {TrajectoryOptions.of(stream).side} x {TrajectoryOptions.of(stream).side} cells at most",
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
    answers = []
    asked = [
        ("all trips", 1, first, "the number of trips of a step" if "trips" in counts else "one leaf of pairs"),
        ("one cell", 1, counts[_CELLS[stream.mode]], f"{_CELLS[stream.mode]} in one cell, in one step"),
        ("100 cells", 100, counts[_CELLS[stream.mode]], "the sum over so many cells, in one step"),
    ]
    if "moves" in counts:
        asked.append(("one way out", 1, counts["moves"], "moves from one cell in one direction, in one step"))
    for name, size, mechanism, what in asked:
        facts = noise_facts(mechanism)
        deviation = math.sqrt(size) * facts.deviation
        interval = facts.interval if size == 1 else NORMAL_95 * deviation
        answers.append(Answer.of(name, size, what, lambda t, d=deviation: d, lambda t, i=interval: i))  # type: ignore[misc]
    return ErrorModel(
        tuple(answers),
        sizes="cells",
        growth="The error does not grow: each step counts other trips",
        formula="sd(L) = sqrt(L · V),  V = variance of the noise in one cell",
        conditions="It is the noise of the measurements alone. Synthetic trips come of all of them together: what is "
        "empty is found out, neighbours lend to each other, and the error of an answer from the trips depends on the "
        "data. privstream simulate measures it on your own.",
    )


def few_trips(stream: Stream) -> str:
    """The warning that data can be too small, whatever they are."""
    few = math.ceil(FEW / pure_epsilon(shares(stream)))
    return (
        f"steps with fewer than some {few:,} trips are too small for this epsilon; a coarse grid is used then, by the "
        "released number of trips, and little but large features is right. Make steps longer, or raise epsilon."
    )


def _warnings(stream: Stream) -> Iterator[str]:
    yield few_trips(stream)


def _remarks(stream: Stream) -> Iterator[str]:
    section, options, shortest_us = _section(stream), TrajectoryOptions.of(stream), stream.time.shortest_us
    yield f"One contribution is one trip with all its records. Warning: {few_trips(stream)}"
    ends = f"on a record whose {section.end} is {section.end_value}, or " if section.end is not None else ""
    period = ", and at the end of each period of the bound" if stream.privacy.per_us is not None else ""
    yield (
        f"A trip closes {ends}after {_steps(options.idle_steps(shortest_us))} without a record, after "
        f"{_steps(options.life_steps(shortest_us))} in any case{period}; it is released in that step, once. Only "
        f"the first {options.max_points:,} points of a trip count."
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


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"


def _picture(stream: Stream) -> Picture:
    section = _section(stream)
    outline = () if section.file is None else map_of(section.file.content, (section.x, section.y)).outline()
    degrees = section.in_degrees
    names = (section.trip, section.order, section.x, section.y)
    return TripPicture(*names, section.bounds, outline=outline, degrees=degrees)


PRESENTATION = Presentation(
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
