"""Seconds and memory to make a map a domain, and microseconds an event and a point: `python -m benchmarks.maps`.

Needs the shared geometry beside the checkout. Processor time, of three builds the fastest, since other programs only
ever slow it down. `read_s` is what a tree kept on disk would not save: the file must be read for its outlines anyway.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.data import DATA
from benchmarks.size import QUICK, RESULTS, sized
from engines.spatial.domain.geojson import Shape, parsed, shape_of
from engines.spatial.domain.lines import LineDomain, map_of
from engines.spatial.domain.polygons import PolygonDomain
from engines.spatial.points import Placement

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MAPS = sized(DATA / "geometry", smallest=EXAMPLES)
CASES = sized(
    (
        ("ne_110m_land.geojson", 20),
        ("ne_50m_land.geojson", 20),
        ("nyc_boroughs.geojson", 18),
        ("nyc_boroughs.geojson", 24),
        ("manhattan_road_segments.geojson", 18),
    ),
    smallest=(("nyc_taxi/new_york_land.geojson", 12), ("town/streets.geojson", 12)),
)
EVENTS = sized(100_000, smallest=1_000)


def built(shape: Shape, depth: int) -> PolygonDomain | LineDomain:
    return map_of(shape, ("x", "y"), depth, reach_m=50.0)


def measured(name: str, depth: int, *, rounds: int) -> dict[str, Any]:
    """Figures of one map."""
    content = (MAPS / name).read_bytes()
    read, seconds, domain = np.inf, np.inf, None
    for _ in range(rounds):
        start = time.process_time()
        shape = shape_of(parsed(content))
        middle = time.process_time()
        domain = built(shape, depth)
        read, seconds = min(read, middle - start), min(seconds, time.process_time() - middle)
    assert domain is not None
    random = np.random.default_rng(1)
    # Events where events are: points of the shape itself.
    cells = domain.tree.start[random.integers(0, len(domain.tree.start), EVENTS)] + (1 << depth)
    placement = Placement("bench", domain)
    start = time.process_time()
    x, y = domain.points(placement, cells, random.integers(0, 100, EVENTS))
    points = time.process_time() - start
    start = time.process_time()
    rows, _, _, codes = domain.located(x, y)
    encode = time.process_time() - start
    assert np.array_equal(codes, cells - (1 << depth))
    assert len(rows) == EVENTS
    return {
        "map": name,
        "depth": depth,
        "read_s": round(read, 2),
        "build_s": round(seconds, 2),
        "cells": len(domain.tree.start),
        "megabytes": round(held_bytes(domain) / 1e6, 1),
        "encode_us": round(1e6 * encode / EVENTS, 2),
        "point_us": round(1e6 * points / EVENTS, 2),
    }


def held_bytes(held: Any) -> int:
    """Of the arrays of a domain and of what it is made of, beside the shape itself."""
    if isinstance(held, np.ndarray):
        return held.nbytes
    if not type(held).__module__.startswith("engines.spatial.domain"):
        return 0
    names = getattr(held, "__slots__", None) or vars(held)
    return sum(held_bytes(getattr(held, name)) for name in names if name != "grid")


def main() -> None:
    rounds = 1 if QUICK else 3
    console = Console(stderr=True)
    rows = [measured(name, depth, rounds=rounds) for name, depth in track(CASES, "maps", console=console)]
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    console.print(table)
    (RESULTS / "maps.json").write_text(json.dumps({"maps": rows}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({"maps": rows}))


if __name__ == "__main__":
    main()
