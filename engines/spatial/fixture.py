"""The streams that engine `spatial` is tried on, by contract tests and coupled runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from engines.checks.contract_case import WHOLE, Chance, EngineCase, Variant
from engines.checks.zones import named_zones
from engines.core.contract import Release
from schemas.config import Stream


def _cells(release: Release) -> dict[str, int]:
    """Noisy integers by cell and round: later rounds of a step look at what earlier ones released."""
    return {f"{m.get('cell', m.get('zones'))} {m.get('round', 0)}": int(m["increment"]) for m in release.measurements}


SPATIAL_DEPTH = 6
SHELL = [[-1.0, 40.0], [1.0, 40.1], [0.2, 40.4], [0.9, 41.0], [-0.6, 40.8], [-1.0, 40.0]]
HOLE = [[-0.4, 40.3], [-0.2, 40.6], [0.0, 40.3], [-0.4, 40.3]]


def _zones(names: Sequence[str]) -> Mapping[str, Any]:
    return {"kind": "zones", "field": "zone", "zones": names, "x": None, "y": None, "bounds": None}


def geojson(kind: str, coordinates: Any) -> Mapping[str, Any]:
    """A domain on a map, with what its file would hold."""
    content = json.dumps({"type": kind, "coordinates": coordinates}).encode()
    file = {"path": "shape.geojson", "sha256": hashlib.sha256(content).hexdigest(), "content": content}
    return {"kind": "geojson", "bounds": None, "file": file}


def point_at(domain: Any, chance: Chance) -> dict[str, Any]:
    """Somewhere in a box or on a map: fields of an event there."""
    if getattr(domain, "file", None) is not None and chance.random() < 0.8:
        # On the lines, or at the corners of the polygons.
        (x, y), (to_x, to_y) = chance.choice(_edges_of(domain.file.content))
        along = chance.random()
        return {domain.x: x + along * (to_x - x), domain.y: y + along * (to_y - y)}
    west, south, east, north = getattr(domain, "bounds", None) or (-1.0, 40.0, 1.0, 41.0)
    # Half of them in a corner: trees grow deep there.
    scale = chance.choice([1.0, 0.1])
    return {
        domain.x: west + (east - west) * chance.random() * scale,
        domain.y: south + (north - south) * chance.random() * scale,
    }


@lru_cache(8)
def _edges_of(content: bytes) -> tuple[tuple[list[float], list[float]], ...]:
    return tuple(_edges(json.loads(content)))


def _edges(shape: Any) -> Iterator[tuple[list[float], list[float]]]:
    """Pairs of points that follow each other, of all geometries in a piece of GeoJSON."""
    match shape:
        case {"coordinates": places}:
            yield from _edges(places)
        case {"geometry": inner} | {"geometries": inner} | {"features": inner}:
            yield from _edges(inner)
        case [[float() | int(), *_], *_]:
            yield from pairwise(shape)
        case list():
            for part in shape:
                yield from _edges(part)


def _event(domain: Any, chance: Chance) -> dict[str, Any]:
    if domain.kind == "zones":
        return {domain.field: chance.choice(domain.names[: chance.choice([3, len(domain.names)])])}
    return point_at(domain, chance)


def _reach(stream: Stream) -> float:
    """A tree's bits are charged for paths without end, at thresholds as close as can be: one of a few levels costs
    about two thirds of that, and bits have half of epsilon."""
    return WHOLE if stream.mode == "default" else 0.7


def _wide(mode: str) -> list[Variant]:
    """Many leaves; charges of two, several of them in a step."""
    return [
        {
            "options": {"depth": 18, "max_leaves": 2**17},
            "domain": {"ttl": "2h"},
            "privacy": {"max_contributions": 8, "max_per_step": 6},
        }
    ]


CONTRACT = EngineCase(
    wide=_wide,
    engine="spatial",
    tables={
        "domain": {"kind": "box", "x": "lon", "y": "lat", "bounds": [-1.0, 40.0, 1.0, 41.0]},
        "options": {"depth": SPATIAL_DEPTH, "initial_steps": 1, "max_leaves": 16},
    },
    keys=lambda pick: (pick(0, 2 ** (SPATIAL_DEPTH + 1) - 1),),
    event=_event,
    reach=_reach,
    crowd=(8,),
    foreign=(2 ** (SPATIAL_DEPTH + 1),),
    measured=_cells,
    variants=(
        {},
        {"options": {"initial_steps": 2}},
        {"options": {"initial_steps": 3}, "domain": {"ttl": "1h"}},
        {"domain": {"ttl": "2h"}},
        {"domain": geojson("Polygon", [SHELL, HOLE]), "options": {"initial_steps": 2}},
        {"domain": {**geojson("MultiLineString", [SHELL, HOLE]), "ttl": "1h"}},
        {"domain": _zones([f"zone {index}" for index in range(40)])},
    ),
    longer=(
        {"options": {"max_leaves": 64, "initial_steps": 4}, "domain": {"op": "what"}},
        {"privacy": {"unit": "event", "user": None, "max_contributions": None}},
        {"privacy": {"max_contributions": 9, "per": "8h"}},
    ),
    drawn=(
        {"domain": {**_zones(["a", "b", "c", "d"]), "measures": [12.5, 0.0, 3.0, 1e-3]}},
        {"domain": {**_zones([]), "zones": None, "file": named_zones("title"), "name_property": "title"}},
        {"domain": {**_zones([]), "zones": None, "file": named_zones("name"), "x": "lon", "y": "lat", "ttl": "2h"}},
        {"domain": {**geojson("MultiLineString", [SHELL, HOLE]), "reach_m": 5000.0}},
    ),
)
