"""Every stream that engines are compared on: the papers' circles, and cities' events from ../shared/data.

The papers' simulation is 5,000 points on two circles, then 500 a step that move from the outer to the inner one. Of
cities' events only errors are published, never the data.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import numpy as np

from benchmarks.data import DATA
from benchmarks.size import sized
from benchmarks.spatial.streams import NOTHING, Domain, Points, Source, StreamData, box, inside, on_map

STEPS = sized(100, smallest=5)
BURSTS = {20: (0.03, 0.03), 40: (0.95, 0.05), 60: (0.04, 0.96), 80: (0.96, 0.95)}
"""Steps at which 1,500 events come to a corner that is quiet before and after."""


def circles(seed: int, early: float, *, deletion: bool = False, bursts: bool = False) -> StreamData:
    """With `deletion` 250 of those alive are deleted at each step. A tenth of all come with the first step."""
    random = np.random.default_rng(100 + seed)

    def ring(count: int, inner: float) -> Points:
        radius = np.where(random.random(count) < inner, 0.15, 0.4) + random.normal(0, 0.01, count)
        angle = random.uniform(0, 2 * np.pi, count)
        return np.stack([0.5 + radius * np.cos(angle), 0.5 + radius * np.sin(angle)], 1)

    points = ring(5000, 0.1)
    inserts, deletes = [points], [NOTHING]
    for step in range(STEPS):
        gone = random.choice(len(points), 250 if deletion else 0, replace=False)
        deletes.append(points[gone])
        inserts.append(ring(500, step / STEPS))
        if bursts and step in BURSTS:
            inserts[-1] = np.concatenate([inserts[-1], BURSTS[step] + 0.01 * random.random((1500, 2))])
        points = np.concatenate([np.delete(points, gone, axis=0), inserts[-1]])
    return StreamData(box(0, 0, 1, 1)(), inserts, deletes, None, 1 + max(0, round(early * 1.1 * STEPS - 11)))


CIRCLES: Mapping[str, Source] = {
    "circles": Source(circles),
    "circles, deletion": Source(lambda seed, early: circles(seed, early, deletion=True), tuned=True),
    "circles, bursts": Source(lambda seed, early: circles(seed, early, bursts=True)),
}


DAY_S = 86_400
NYC = box(-74.30, 40.48, -73.68, 40.95)
_STATE, _ROADS = "geometry/new_york_state_from_counties.geojson", "geometry/manhattan_road_segments.geojson"
_BIKES = "jersey_city_citibike/jc_citibike_trips.parquet"


def _seconds(text: str) -> float:
    text = text.strip().rstrip("Z").replace("T", " ")
    form = "%Y-%m-%d %H:%M:%S" if len(text) > 16 else "%Y-%m-%d %H:%M" if len(text) > 10 else "%Y-%m-%d"
    return datetime.strptime(text[:19], form).replace(tzinfo=UTC).timestamp()


def events(file: str, *columns: str) -> Points:
    """`(events, 3)` seconds, x and y, sorted, of a CSV file. Columns: "time,x,y", and again for a row's other event."""
    rows = []
    with gzip.open(DATA / file, "rt") as lines:
        for row in csv.DictReader(lines):
            for names in columns:
                time, x, y = names.split(",")
                try:
                    rows.append((_seconds(row[time]), float(row[x]), float(row[y])))
                except ValueError:
                    continue
    return np.array(sorted(rows))


def _city(
    file: str,
    *columns: str,
    domain: Callable[[], Domain],
    days: float,
    ttl_days: float | None = None,
    tuned: bool = False,
    needs: tuple[str, ...] = (),
) -> Source:
    """Steps of so many days."""

    def make(seed: int, early: float) -> StreamData:
        table, where = events(file, *columns), domain()
        table = table[inside(where, table[:, 1:])]
        steps = ((table[:, 0] - table[0, 0]) // (DAY_S * days)).astype(int)
        inserts = np.split(table[:, 1:], np.cumsum(np.bincount(steps))[:-1])
        ttl = None if ttl_days is None else round(ttl_days / days)
        return StreamData.of(where, inserts, [NOTHING] * len(inserts), ttl=ttl, early=early)

    return Source(make, needs=(file, *needs), tuned=tuned)


def bikes(seed: int, early: float) -> StreamData:
    """Parked bikes, three months in steps of half a day: one appears where a trip ends, and goes when the next begins.

    Trips from their beginning to their end would be the other reading: 5 of them are under way at a time.
    """
    import pyarrow.parquet as parquet

    names = ["starttime", "stoptime", "bikeid", "end_station_longitude", "end_station_latitude"]
    table = parquet.read_table(DATA / _BIKES, columns=names)
    start, stop, bike, x, y = (table[name].to_numpy() for name in names)
    first, last = np.datetime64("2017-02-01"), np.datetime64("2017-05-01")
    rows = np.flatnonzero((start >= first) & (start < last))
    rows = rows[np.lexsort((start[rows], bike[rows]))]
    where, half = box(-74.10, 40.68, -74.00, 40.78)(), np.timedelta64(12, "h")
    arrived = ((stop[rows] - first) // half).astype(int)
    left = np.append((start[rows[1:]] - first) // half, 0).astype(int)
    again = np.append(bike[rows[1:]] == bike[rows[:-1]], False)
    points = np.stack([x[rows], y[rows]], axis=1)
    steps = int((last - first) / half)

    def by_step(at: np.ndarray, chosen: np.ndarray) -> list[Points]:
        return [points[chosen & (at == step)] for step in range(steps)]

    # A trip that ends after its bike's next one begins is a mistake in the data.
    again &= left >= arrived
    every = np.ones(len(rows), bool)
    return StreamData.of(where, by_step(arrived, every), by_step(left, again), ttl=None, early=early)


_GOWALLA = ("gowalla_checkins/gowalla_nyc_checkins.csv.gz", "checkin_time,longitude,latitude")
_TAXI = ("nyc_taxi/yellow_2009_2015_sample.csv.gz", "pickup_datetime,pickup_longitude,pickup_latitude")
_TRIPS = "nyc_taxi/yellow_2016_01_sample_10k.csv.gz"

CITIES: Mapping[str, Source] = {
    "Gowalla": _city(*_GOWALLA, domain=NYC, days=3),
    "Gowalla, 30 days": _city(*_GOWALLA, domain=NYC, days=3, ttl_days=30),
    "taxi": _city(*_TAXI, domain=NYC, days=14),
    "taxi, New York State": _city(*_TAXI, domain=on_map(_STATE), days=14, needs=(_STATE,)),
    "taxi, Manhattan's roads": _city(
        _TRIPS,
        "pickup_datetime,pickup_longitude,pickup_latitude",
        "dropoff_datetime,dropoff_longitude,dropoff_latitude",
        domain=on_map(_ROADS),
        days=0.25,
        needs=(_ROADS,),
    ),
    "Uber": _city("uber_nyc_2014/uber_base_B02512_apr_sep_2014.csv.gz", "Date/Time,Lon,Lat", domain=NYC, days=1),
    "vehicle thefts": _city(
        "nyc_vehicle_thefts/nyc_vehicle_thefts_2014_2017.csv.gz",
        "date_single,longitude,latitude",
        domain=NYC,
        days=14,
    ),
    "Minneapolis stops": _city(
        "minneapolis_stops_2017/mpls_stops_2017.csv.gz",
        "date,long,lat",
        domain=box(-93.33, 44.89, -93.19, 45.05),
        days=3,
        tuned=True,
    ),
    "SF evictions": _city(
        "sf_evictions/eviction_notices_2011_2015.csv.gz",
        "File Date,Longitude,Latitude",
        domain=box(-122.52, 37.70, -122.35, 37.84),
        days=14,
    ),
    "Jersey City bikes": Source(bikes, needs=(_BIKES,)),
    "Foursquare": _city(
        "foursquare_nyc/foursquare_nyc_checkins.csv.gz", "utc_time_approx,longitude,latitude", domain=NYC, days=3
    ),
}


SOURCES: Mapping[str, Source] = {**CIRCLES, **CITIES}
"""Simulated ones first."""
