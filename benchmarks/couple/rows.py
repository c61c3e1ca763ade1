"""Raw fields of random events, by what the configuration of a domain says in public."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import orjson

from schemas.config.domain import Domain

Fields = dict[str, Any]


def event(domain: Domain, chance: random.Random, *, hot: bool, place: int = 0) -> Fields:
    """Fields of one event. `hot`: all such events of one `place` are alike."""
    return ROWS[domain.kind](domain, random.Random(7 + place) if hot else chance)


def other(domain: Domain, chance: random.Random, fields: Fields) -> Fields:
    """What may stand in the place of an event's fields under replacement: another event, or a reading as near as is
    declared.
    """
    if getattr(domain, "readings", False):
        return {
            field.name: fields[field.name]
            + chance.choice([-1, 1]) * chance.choice([1.0, chance.random()]) * field.sensitivity
            for field in domain.series  # type: ignore[union-attr]
        }
    return next(found for found in iter(lambda: ROWS[domain.kind](domain, chance), None) if found != fields)


def _point(domain: Any, chance: random.Random) -> Fields:
    if getattr(domain, "file", None) is not None and chance.random() < 0.8:
        # On the lines, or at the corners of the polygons.
        (x, y), (to_x, to_y) = chance.choice(_edges(orjson.loads(domain.file.content)["coordinates"]))
        along = chance.random()
        return {domain.x: x + along * (to_x - x), domain.y: y + along * (to_y - y)}
    west, south, east, north = getattr(domain, "bounds", None) or (-1.0, 40.0, 1.0, 41.0)
    # Half of them in a corner: trees grow deep there.
    scale = chance.choice([1.0, 0.1])
    return {
        domain.x: west + (east - west) * chance.random() * scale,
        domain.y: south + (north - south) * chance.random() * scale,
    }


def _edges(coordinates: list[Any]) -> list[tuple[list[float], list[float]]]:
    if isinstance(coordinates[0][0], float | int):
        return list(pairwise(coordinates))
    return [edge for part in coordinates for edge in _edges(part)]


def _zone(domain: Any, chance: random.Random) -> Fields:
    return {domain.field: chance.choice(domain.zones[: chance.choice([3, len(domain.zones)])])}


def _state(domain: Any, chance: random.Random) -> Fields:
    return {domain.field: chance.choice(domain.values)}


def _series(domain: Any, chance: random.Random) -> Fields:
    fields = {}
    for field in domain.series:
        if field.of != "count":
            low, high = field.limits
            # Values at a limit move most.
            fields[field.name] = chance.choice([high, high, low, low + (high - low) * chance.random()])
    return fields


def _row(domain: Any, chance: random.Random) -> Fields:
    fields: Fields = {}
    for attribute in domain.attributes:
        if attribute.missing and chance.random() < 0.2:
            continue
        if attribute.values is not None:
            fields[attribute.field] = chance.choice(attribute.values)
        else:
            at = chance.uniform(attribute.edges[0], attribute.edges[-1])
            fields[attribute.field] = int(at) if attribute.integer else at
    return fields


def _trip(domain: Any, chance: random.Random) -> Fields:
    end = {} if domain.end is None else {domain.end: chance.choice([domain.end_value, "no", "no"])}
    return {**_point(domain, chance), **end, domain.trip: f"trip {chance.randint(0, 2)}"}


ROWS: Mapping[str, Callable[[Any, random.Random], Fields]] = {
    "box": _point,
    "geojson": _point,
    "zones": _zone,
    "states": _state,
    "series": _series,
    "table": _row,
    "trips": _trip,
}
"""By kind of domain."""
