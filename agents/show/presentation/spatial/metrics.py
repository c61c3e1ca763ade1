"""What the figures of a spatial stream are called and mean."""

from __future__ import annotations

from collections.abc import Sequence

from agents.show.pages.metrics import Metric, percent
from schemas.config import Stream, ZonesDomainSection

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
NOTHING = "An empty release has at most 100 %."


def metrics(stream: Stream) -> Sequence[Metric]:
    zones = isinstance(stream.domain, ZonesDomainSection)
    return [_zones(size) if zones else _rectangles(size) for size in _RECTANGLES]


def _rectangles(size: str) -> Metric:
    return Metric(
        keys=(f"error_{size}",),
        label=f"error in {size} areas",
        meaning=f"Mean relative error of the counts in 500 random rectangles, {_RECTANGLES[size]}. {_FLOOR}",
        baseline=NOTHING,
        text=percent,
    )


def _zones(size: str) -> Metric:
    name, which = _ZONES[size]
    return Metric(
        keys=(f"error_{size}",),
        label=f"error of {name}",
        meaning=f"Mean relative error of the counts of {which}. {_FLOOR}",
        baseline=NOTHING,
        text=percent,
    )
