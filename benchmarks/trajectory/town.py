"""A town that does not exist, and who drove in it: the public example of trips. `python -m benchmarks.trajectory.town`.

Writes streets.geojson, drives.csv.gz and arrivals.csv.gz below examples/town, always the same. No data went into them.
Streets are a grid of avenues and streets, turned a little, with a park left out. Drives go from one crossing to another
by avenues and streets in turn, mostly to and from a station, a harbour and a market; home in the evening.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

FOLDER = Path(__file__).parents[2] / "examples" / "town"
AVENUES, STREETS = 11, 15
PARK = (range(4, 7), range(6, 10))
"""Avenues and streets whose crossings inside are not there."""
HUBS = ((1, 2), (9, 12), (8, 3))
DRIVES, DAYS = 4_500, 3
GAP_S, METRES_PER_S = 60, 8.0
METRES = 111_195
"""Of a degree, at the equator, where the town lies."""


def crossings() -> tuple[np.ndarray, np.ndarray]:
    """`(crossings, 2)` numbers of avenue and street, and longitudes and latitudes."""
    numbers = np.array([(a, s) for a in range(AVENUES) for s in range(STREETS) if not (a in PARK[0] and s in PARK[1])])
    east, north = numbers[:, 0] * 420.0, numbers[:, 1] * 260.0
    turn = np.deg2rad(20)
    places = np.stack([east * np.cos(turn) - north * np.sin(turn), east * np.sin(turn) + north * np.cos(turn)], axis=1)
    return numbers, (places - places.min(axis=0) + 300) / METRES


def blocks(numbers: np.ndarray) -> np.ndarray:
    """`(blocks, 2)` neighbouring crossings."""
    at = {tuple(number): index for index, number in enumerate(numbers.tolist())}
    pairs = [(at[a, s], at.get(near)) for a, s in at for near in ((a + 1, s), (a, s + 1))]
    return np.array([(left, right) for left, right in pairs if right is not None])


def drives(numbers: np.ndarray, places: np.ndarray, edges: np.ndarray) -> list[tuple[str, int, int, float, float, str]]:
    rng = np.random.default_rng(17)
    count = len(numbers)
    metres = np.hypot(*((places[edges[:, 0]] - places[edges[:, 1]]) * METRES).T)
    near = [np.exp(-(((numbers - hub) / [1.2, 1.6]) ** 2).sum(axis=1)) for hub in HUBS]
    busy = 3 * near[0] + 2 * near[1] + 1.5 * near[2] + 0.02
    homes = 0.1 + np.exp(-(((numbers - [5, 7]) / [4, 5]) ** 2).sum(axis=1))
    rows = []
    for drive in range(DRIVES):
        if drive % 50 == 0:
            # Other delays, other ways.
            weights = metres * rng.lognormal(0, 0.25, len(metres))
            graph = csr_matrix((weights, edges.T), (count, count))
            before = dijkstra(graph, directed=False, return_predecessors=True)[1]
        day, evening = drive % DAYS, rng.random() < 0.5
        start, end = (
            rng.choice(count, p=weight / weight.sum()) for weight in ((busy, homes) if evening else (homes, busy))
        )
        if start == end:
            continue
        way = [int(end)]
        while way[-1] != start:
            way.append(int(before[start, way[-1]]))
        along = places[way[::-1]]
        length = np.append(0, np.cumsum(np.hypot(*(np.diff(along, axis=0) * METRES).T)))
        speed = METRES_PER_S * rng.lognormal(0, 0.2)
        stops = np.append(np.arange(0, length[-1] / speed, GAP_S), length[-1] / speed)
        begin = 86_400 * day + int(3600 * np.clip(rng.normal(17.5 if evening else 8, 1.2), 1, 22))
        x, y = (np.interp(stops * speed, length, along[:, axis]) + rng.normal(0, 6e-5, len(stops)) for axis in (0, 1))
        who = f"d{rng.integers(0, 2400)}"
        for number, stop in enumerate(stops):
            last = "true" if number == len(stops) - 1 else ""
            rows.append((who, drive, begin + int(stop), round(x[number], 4), round(y[number], 4), last))
    return sorted(rows, key=lambda row: row[2])


def arrivals(
    rows: list[tuple[str, int, int, float, float, str]], numbers: np.ndarray, places: np.ndarray
) -> Iterator[tuple[str, int, str]]:
    """Yield of each drive's end who, when, and the name of the nearest crossing."""
    for who, _, at, x, y, last in rows:
        if last:
            avenue, street = numbers[np.hypot(*(places - [x, y]).T).argmin()]
            yield who, at, f"Avenue {'ABCDEFGHIJK'[avenue]}, Street {street + 1}"


def main() -> None:
    numbers, places = crossings()
    edges = blocks(numbers)
    FOLDER.mkdir(exist_ok=True)
    lines = [[[round(float(value), 5) for value in places[end]] for end in edge] for edge in edges]
    shape = {"type": "MultiLineString", "coordinates": lines}
    (FOLDER / "streets.geojson").write_text(json.dumps(shape, separators=(",", ":")) + "\n")
    rows = drives(numbers, places, edges)
    write("drives", ["driver", "trip", "time", "lon", "lat", "last"], rows)
    write("arrivals", ["driver", "time", "crossing"], arrivals(rows, numbers, places))


def write(name: str, head: list[str], rows: Iterable[tuple[object, ...]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    (FOLDER / f"{name}.csv.gz").write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


if __name__ == "__main__":
    main()
