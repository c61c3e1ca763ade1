"""Spatial streams that engines are compared on: the papers' circles, and cities' events from ../shared/data.

A stream is a list of steps of inserted and deleted points in a public box, an initialisation time t0 (a tenth of the
steps, at least 200 events and one ttl), and steps at which it is evaluated.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from engines.contract import Columns
from engines.spatial import BoxDomain, SpatialEvaluator
from schemas.blocks import Folded

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
DEPTH = 18
EVALUATIONS = 12
DAY_S = 86_400
Bounds = tuple[float, float, float, float]
UNIT: Bounds = (0.0, 0.0, 1.0, 1.0)
NYC: Bounds = (-74.30, 40.48, -73.68, 40.95)
Points = np.ndarray


@dataclass(frozen=True)
class StreamData:
    """One stream. `inserts` and `deletes` hold `(events, 2)` points for each step; `ttl` deletes are not among them."""

    bounds: Bounds
    inserts: list[Points]
    deletes: list[Points]
    ttl: int | None
    initial_steps: int

    @property
    def domain(self) -> BoxDomain:
        return BoxDomain("x", "y", self.bounds, DEPTH)

    @property
    def evaluated(self) -> list[int]:
        """Steps after t0."""
        first = self.initial_steps + 2
        return np.unique(np.linspace(first, len(self.inserts) - 1, EVALUATIONS).astype(int)).tolist()

    def batch(self, step: int) -> Folded:
        """Events of a step, as an engine gets them."""
        return encoded(self.domain, self.inserts[step], self.deletes[step])

    def alive(self, step: int, domain: BoxDomain) -> Folded:
        """Everything inserted until `step` and neither deleted nor expired, in a domain's keys."""
        first = 0 if self.ttl is None else max(0, step - self.ttl + 1)
        return encoded(
            domain, np.concatenate(self.inserts[first : step + 1]), np.concatenate(self.deletes[first : step + 1])
        )

    @property
    def evaluator(self) -> SpatialEvaluator:
        return SpatialEvaluator.over(self.domain)


def encoded(domain: BoxDomain, inserts: Points, deletes: Points) -> Folded:
    points = np.concatenate([inserts, deletes])
    signs = np.repeat(np.array([1, -1], np.int8), [len(inserts), len(deletes)])
    keys, reasons = domain.encode(Columns({"x": points[:, 0], "y": points[:, 1]}, {}, signs))
    return Folded.of(keys[reasons == 0])


@dataclass(frozen=True)
class Source:
    """A stream to be made.

    Attributes:
        make: from a seed (only simulated streams differ with it).
        needs: file under ../shared/data, if any. tuned: whether constants of `default` were chosen on it.
    """

    make: Callable[[int], StreamData]
    needs: str | None = None
    tuned: bool = False

    @property
    def missing(self) -> str | None:
        """Why it must be skipped, if so."""
        if self.needs is None or (DATA / self.needs).exists():
            return None
        return f"{DATA / self.needs} is not there"


BURSTS = {20: (0.03, 0.03), 40: (0.95, 0.05), 60: (0.04, 0.96), 80: (0.96, 0.95)}
"""Steps at which 1,500 events come to a corner that is quiet before and after."""


def circles(seed: int, *, deletion: bool = False, bursts: bool = False) -> StreamData:
    """Papers' simulation: 5,000 points on two circles, then 500 a step that move from the outer to the inner one."""
    random = np.random.default_rng(100 + seed)
    nothing = np.zeros((0, 2))

    def ring(count: int, inner: float) -> Points:
        radius = np.where(random.random(count) < inner, 0.15, 0.4) + random.normal(0, 0.01, count)
        angle = random.uniform(0, 2 * np.pi, count)
        return np.stack([0.5 + radius * np.cos(angle), 0.5 + radius * np.sin(angle)], 1)

    points = ring(5000, 0.1)
    inserts, deletes = [points], [nothing]
    for step in range(100):
        gone = random.choice(len(points), 250 if deletion else 0, replace=False)
        deletes.append(points[gone])
        inserts.append(ring(500, step / 100))
        if bursts and step in BURSTS:
            inserts[-1] = np.concatenate([inserts[-1], BURSTS[step] + 0.01 * random.random((1500, 2))])
        points = np.concatenate([np.delete(points, gone, axis=0), inserts[-1]])
    return StreamData(UNIT, inserts, deletes, None, 1)


def _seconds(text: str) -> float:
    text = text.strip().rstrip("Z").replace("T", " ")
    form = "%Y-%m-%d %H:%M:%S" if len(text) > 16 else "%Y-%m-%d %H:%M" if len(text) > 10 else "%Y-%m-%d"
    return datetime.strptime(text[:19], form).replace(tzinfo=UTC).timestamp()


def city(
    file: str, columns: tuple[str, str, str], bounds: Bounds, step_days: int, ttl_days: int | None = None
) -> StreamData:
    """Events of a CSV file (time, x, y) inside a box, in steps of whole days."""
    rows = []
    with gzip.open(DATA / file, "rt") as lines:
        for row in csv.DictReader(lines):
            try:
                when, x, y = _seconds(row[columns[0]]), float(row[columns[1]]), float(row[columns[2]])
            except ValueError:
                continue
            if bounds[0] <= x < bounds[2] and bounds[1] <= y < bounds[3]:
                rows.append((when, x, y))
    table = np.array(sorted(rows))
    steps = ((table[:, 0] - table[0, 0]) // (DAY_S * step_days)).astype(int)
    sizes = np.bincount(steps)
    ttl = None if ttl_days is None else ttl_days // step_days
    start = max(len(sizes) // 10, int(np.searchsorted(np.cumsum(sizes), 200)), ttl or 0)
    inserts = np.split(table[:, 1:], np.cumsum(sizes)[:-1])
    return StreamData(bounds, inserts, [np.zeros((0, 2))] * len(inserts), ttl, start + 1)


def _city(file: str, columns: str, bounds: Bounds, step_days: int, *, ttl: int | None = None) -> Source:
    time, x, y = columns.split(",")
    return Source(lambda _: city(file, (time, x, y), bounds, step_days, ttl), needs=file)


_GOWALLA = ("gowalla_checkins/gowalla_nyc_checkins.csv.gz", "checkin_time,longitude,latitude", NYC, 3)
_STOPS = _city("minneapolis_stops_2017/mpls_stops_2017.csv.gz", "date,long,lat", (-93.33, 44.89, -93.19, 45.05), 3)

SOURCES: Mapping[str, Source] = {
    "circles": Source(circles),
    "circles, deletion": Source(lambda seed: circles(seed, deletion=True), tuned=True),
    "circles, bursts": Source(lambda seed: circles(seed, bursts=True)),
    "Minneapolis stops": Source(_STOPS.make, _STOPS.needs, tuned=True),
    "SF evictions": _city(
        "sf_evictions/eviction_notices_2011_2015.csv.gz",
        "File Date,Longitude,Latitude",
        (-122.52, 37.70, -122.35, 37.84),
        14,
    ),
    "taxi": _city(
        "nyc_taxi/yellow_2009_2015_sample.csv.gz", "pickup_datetime,pickup_longitude,pickup_latitude", NYC, 14
    ),
    "Gowalla": _city(*_GOWALLA),
    "Gowalla, 30 days": _city(*_GOWALLA, ttl=30),
    "Uber": _city("uber_nyc_2014/uber_base_B02512_apr_sep_2014.csv.gz", "Date/Time,Lon,Lat", NYC, 1),
    "vehicle thefts": _city(
        "nyc_vehicle_thefts/nyc_vehicle_thefts_2014_2017.csv.gz", "date_single,longitude,latitude", NYC, 14
    ),
    "Foursquare": _city("foursquare_nyc/foursquare_nyc_checkins.csv.gz", "utc_time_approx,longitude,latitude", NYC, 3),
}
