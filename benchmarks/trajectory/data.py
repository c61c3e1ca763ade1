"""Trips to compare modes on, from ../shared/data, each over a public box.

| name | what | a trip is |
|---|---|---|
| cabs | San Francisco taxis, about a point a minute | the points under one state of the occupied flag |
| manhattan, manhattan 100k | SIMULATED: drives on Manhattan's road graph, a point each 27 s | a shortest path |
| jersey city | bike rides; only their ends are known: points a minute apart on the line between are made up | a ride |
| aircraft | over Switzerland, a point each 20 s | an aircraft's points without a gap of ten minutes |
| geolife | two people in Beijing, points some seconds apart | a person's points without a gap of two minutes |
| storms | Atlantic storms, a fix each six hours | a storm |
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from benchmarks.data import DATA
from benchmarks.size import sized
from engines.trajectory.trips import LATTICE, Trips

Bounds = tuple[float, float, float, float]
LARGE = sized(10_000, smallest=100)
"""Trips from which on a data set counts as large."""
SMALL = sized(2_000, smallest=100)


@dataclass(frozen=True)
class Source:
    """Trips to be made. `tuned`: constants of `default` were chosen by their figures."""

    needs: str
    make: Callable[[], Trips]
    tuned: bool = False

    @property
    def missing(self) -> str | None:
        return None if (DATA / self.needs).exists() else f"{DATA / self.needs} is absent"


def chosen(trips: Trips, which: np.ndarray) -> Trips:
    """Trips of these numbers, in their order; one can come several times."""
    sizes = trips.sizes[which]
    offsets = np.append(0, np.cumsum(sizes))
    at = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1] - trips.offsets[which], sizes)
    return Trips(trips.x[at], trips.y[at], offsets)


def joined(every: Sequence[Trips]) -> Trips:
    offsets = np.append(0, np.cumsum(np.concatenate([trips.sizes for trips in every])))
    return Trips(np.concatenate([t.x for t in every]), np.concatenate([t.y for t in every]), offsets)


def cut(trip: np.ndarray, time: np.ndarray, x: np.ndarray, y: np.ndarray, bounds: Bounds, *, gap: float) -> Trips:
    """Points of one `trip` number without a gap of `gap` seconds, inside the bounds, two points at least."""
    return cut_with_begins(trip, time, x, y, bounds, gap=gap)[0]


def cut_with_begins(
    trip: np.ndarray, time: np.ndarray, x: np.ndarray, y: np.ndarray, bounds: Bounds, *, gap: float
) -> tuple[Trips, np.ndarray, np.ndarray]:
    """Those trips, and the number and time with which each begins."""
    xmin, ymin, xmax, ymax = bounds
    inside = (x >= xmin) & (x < xmax) & (y >= ymin) & (y < ymax)
    trip, time, x, y = trip[inside], time[inside], x[inside], y[inside]
    order = np.lexsort((time, trip))
    trip, time, x, y = trip[order], time[order], x[order], y[order]
    new = np.append(True, (np.diff(trip) != 0) | (np.diff(time) > gap))
    owner = np.cumsum(new) - 1
    keep = np.bincount(owner)[owner] > 1
    sizes = np.bincount(owner[keep])
    column = ((x[keep] - xmin) / (xmax - xmin) * LATTICE).astype(np.int64)
    row = ((y[keep] - ymin) / (ymax - ymin) * LATTICE).astype(np.int64)
    made = Trips(column, row, np.append(0, np.cumsum(sizes[sizes > 0])))
    return made, trip[keep][made.offsets[:-1]], time[keep][made.offsets[:-1]]


def _seconds(values: np.ndarray) -> np.ndarray:
    return values.astype("datetime64[us]").astype(np.int64) / 1e6


def _rows(name: str) -> list[dict[str, str]]:
    with gzip.open(DATA / name, "rt") as file:
        return list(csv.DictReader(file))


def _column(rows: list[dict[str, str]], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows])


def _clock(rows: list[dict[str, str]], name: str) -> np.ndarray:
    times = (datetime.fromisoformat(row[name]).replace(tzinfo=UTC).timestamp() for row in rows)
    return np.array(list(times))


CABS = "sf_cab_traces/sf_cabs_10.parquet"


def cab_trips() -> tuple[Trips, np.ndarray, np.ndarray]:
    """Trips of cabs, the driver of each, and when it begins, in seconds."""
    import pyarrow.parquet as parquet

    table = parquet.read_table(DATA / CABS)
    cab = np.unique(table["cab_id"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)[1]
    time = table["unix_time"].to_numpy()
    order = np.lexsort((time, cab))
    cab, time, occupied = cab[order], time[order], table["occupied"].to_numpy()[order]
    trip = np.cumsum(np.append(True, (np.diff(cab) != 0) | (np.diff(occupied) != 0)))
    x, y = table["longitude"].to_numpy()[order], table["latitude"].to_numpy()[order]
    trips, numbers, begins = cut_with_begins(trip, time, x, y, (-122.52, 37.59, -122.34, 37.82), gap=600)
    return trips, cab[np.searchsorted(trip, numbers)], begins


def aircraft() -> Trips:
    import pyarrow.parquet as parquet

    table = parquet.read_table(DATA / AIRCRAFT)
    who = np.unique(table["icao24"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)[1]
    time = _seconds(table["timestamp"].to_numpy())
    some = (time // 10) % 2 == 0
    x, y = table["longitude"].to_numpy()[some], table["latitude"].to_numpy()[some]
    return cut(who[some], time[some], x, y, (5.5, 45.5, 11.0, 48.0), gap=600)


AIRCRAFT = "aircraft_adsb/switzerland_2018_08_01.parquet"
GEOLIFE = "geolife_sample/geolife_2_users.csv.gz"
STORMS = "atlantic_storms/atlantic_storms_1975_onward.csv.gz"
RIDES = "jersey_city_citibike/jc_citibike_trips.parquet"
NODES = "geometry/manhattan_road_nodes.csv.gz"


def geolife() -> Trips:
    rows = _rows(GEOLIFE)
    where = (_column(rows, "uid"), _clock(rows, "datetime"), _column(rows, "lng"), _column(rows, "lat"))
    return cut(*where, (116.15, 39.75, 116.60, 40.10), gap=120)


def storms() -> Trips:
    rows = _rows(STORMS)
    names = [f"{row['name']} {row['year']}" for row in rows]
    who = np.unique(names, return_inverse=True)[1]
    where = (who, _clock(rows, "utc_time"), _column(rows, "long"), _column(rows, "lat"))
    return cut(*where, (-110.0, 5.0, 0.0, 65.0), gap=30 * 86_400)


def rides(count: int = 60_000) -> Trips:
    import pyarrow.parquet as parquet

    table = parquet.read_table(DATA / RIDES)
    columns = ("start_station_longitude", "start_station_latitude", "end_station_longitude", "end_station_latitude")
    ends = np.stack([table[name].to_numpy() for name in columns])
    chosen = np.random.default_rng(0).permutation(table.num_rows)[:count]
    ends, lasted = ends[:, chosen], table["tripduration"].to_numpy()[chosen]
    points = np.clip(lasted // 60 + 1, 2, 60)
    trip = np.repeat(np.arange(count), points)
    rank = np.arange(len(trip)) - np.repeat(np.cumsum(points) - points, points)
    part = rank / np.repeat(points - 1, points)
    x = np.repeat(ends[0], points) * (1 - part) + np.repeat(ends[2], points) * part
    y = np.repeat(ends[1], points) * (1 - part) + np.repeat(ends[3], points) * part
    return cut(trip, rank * 60.0, x, y, (-74.10, 40.69, -74.02, 40.76), gap=1e9)


def drives(count: int) -> Trips:
    """Drives on the road graph at noon; crossings are popular by a smooth random field, far ones less."""
    rng = np.random.default_rng(5)
    nodes, edges = _rows(NODES), _rows("geometry/manhattan_road_edges.csv.gz")
    number = {row["node_id"]: at for at, row in enumerate(nodes)}
    x, y = _column(nodes, "lon"), _column(nodes, "lat")
    source = np.array([number[row["from_node"]] for row in edges])
    target = np.array([number[row["to_node"]] for row in edges])
    lasts = np.maximum(_column(_rows("geometry/manhattan_road_edge_travel_time_s.csv.gz"), "h12"), 2.0)
    shape = (len(x), len(x))
    hubs = rng.integers(0, len(x), 30)
    near = np.hypot((x[:, None] - x[hubs]) * 84, (y[:, None] - y[hubs]) * 111)
    popular = (rng.lognormal(0, 1, 30) * np.exp(-((near / 0.8) ** 2))).sum(axis=1) + 0.02
    parts: list[tuple[np.ndarray, ...]] = []
    made, group = 0, 0
    while made < count:
        # Each group of drives sees other delays.
        graph = csr_matrix((lasts * rng.lognormal(0, 0.3, len(lasts)), (source, target)), shape)
        starts = rng.choice(len(x), 40, p=popular / popular.sum())
        reach, before = dijkstra(graph, indices=starts, return_predecessors=True)
        for row, start in enumerate(starts):
            wish = np.where(np.isfinite(reach[row]), popular * np.exp(-reach[row] / 600), 0.0)
            wish[start] = 0.0
            if wish.sum() <= 0:
                continue
            for end in rng.choice(len(x), 40, p=wish / wish.sum()):
                way = [int(end)]
                while way[-1] != start:
                    way.append(int(before[row, way[-1]]))
                way = way[::-1]
                time = reach[row, way]
                at = np.append(np.arange(0, time[-1], 27.0), time[-1])
                parts.append((np.full(len(at), made), at, np.interp(at, time, x[way]), np.interp(at, time, y[way])))
                made += 1
        group += 1
    trip, time, east, north = (np.concatenate(column) for column in zip(*parts, strict=True))
    first = trip < count
    east = east + rng.normal(0, 1e-4, len(east))
    north = north + rng.normal(0, 1e-4, len(north))
    return cut(trip[first], time[first], east[first], north[first], (-74.025, 40.695, -73.905, 40.885), gap=1e9)


SOURCES: dict[str, Source] = {
    "cabs": Source(CABS, lambda: cab_trips()[0], tuned=True),
    "manhattan": Source(NODES, lambda: drives(34_000), tuned=True),
    "jersey city": Source(RIDES, rides),
    "manhattan 100k": Source(NODES, lambda: drives(100_000)),
    "aircraft": Source(AIRCRAFT, aircraft),
    "geolife": Source(GEOLIFE, geolife),
    "storms": Source(STORMS, storms),
}
