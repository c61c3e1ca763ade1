"""The series that releasers are compared on: simulated AR(1) processes, and real ones from ../shared/data.

One number per step; a user moves each of them by at most 1 ([zhang2022]'s setting), but for the drive cycle, which is
relative to the public range of speed. `tuned` series are those on which constants of `default` were chosen.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

import numpy as np

from benchmarks.data import DATA
from engines.series.bank import Clock

LONGEST = 1000
FloatArray = np.ndarray


@dataclass(frozen=True)
class SeriesData:
    """Values by step; the public clock; whether they cannot be negative."""

    values: FloatArray
    clock: Clock | None = None
    positive: bool = True


@dataclass(frozen=True)
class Source:
    """Attributes: `make` from a seed (only simulated series differ by it); `needs` a file of the shared data."""

    make: Callable[[int], SeriesData]
    needs: str | None = None
    tuned: bool = False

    @property
    def missing(self) -> bool:
        return self.needs is not None and not (DATA / self.needs).exists()


def autoregressive(correlation: float, seed: int, *, scale: float = 10.0, steps: int = LONGEST) -> SeriesData:
    """A stationary Gaussian AR(1) process around zero."""
    random = np.random.default_rng(100 + seed)
    moves = random.normal(size=steps) * scale
    values = np.empty(steps)
    values[0] = moves[0]
    for step in range(1, steps):
        values[step] = correlation * values[step - 1] + (1 - correlation**2) ** 0.5 * moves[step]
    return SeriesData(values, positive=False)


def _rows(file: str) -> Iterable[dict[str, str]]:
    with gzip.open(DATA / file, "rt") as lines:
        yield from csv.DictReader(lines)


def _clocked(values: FloatArray, first: datetime, period: int) -> SeriesData:
    return SeriesData(values[:LONGEST], Clock(period=period, phase=0, weekday=first.weekday()))


def _hourly(rows: Iterable[tuple[datetime, float]], start: datetime) -> FloatArray:
    """Values by hour from `start`, LONGEST of them; hours that the source leaves out count nothing."""
    values = np.zeros(LONGEST)
    for moment, value in rows:
        hour = (moment - start) // timedelta(hours=1)
        if 0 <= hour < LONGEST:
            values[hour] = value
    return values


@cache
def bike_hours() -> SeriesData:
    rows = _rows("bike_sharing_uci/hour.csv.gz")
    start = datetime(2011, 1, 1)
    hours = ((datetime.fromisoformat(r["dteday"]) + timedelta(hours=int(r["hr"])), float(r["cnt"])) for r in rows)
    return _clocked(_hourly(hours, start), start, 24)


@cache
def bike_days() -> SeriesData:
    values = np.array([float(row["cnt"]) for row in _rows("bike_sharing_uci/day.csv.gz")])
    return SeriesData(values, Clock(period=7, phase=5))


@cache
def capital_hours() -> SeriesData:
    start = datetime(2017, 5, 1)
    rows = _rows("capital_bikeshare_hourly/bikeshare_hourly_2010_2019.csv.gz")
    hours = ((datetime.fromisoformat(r["ts"]), float(r["count"])) for r in rows)
    return _clocked(_hourly(hours, start), start, 24)


@cache
def taxi_half_hours() -> SeriesData:
    values = np.array([float(row["value"]) for row in _rows("nyc_taxi_demand_30min/nyc_taxi_30min.csv.gz")])
    return _clocked(values, datetime(2014, 7, 1), 48)


@cache
def road_occupancy() -> SeriesData:
    """In parts of 10,000."""
    rows = _rows("sf_bay_road_occupancy/sf_traffic_hourly_2015_2016.csv.gz")
    return _clocked(np.array([1e4 * float(row["y"]) for row in rows]), datetime(2015, 1, 1), 24)


_HOURS = [f"h{hour:02d}" for hour in range(24)]


def _number(text: str) -> float:
    return float(text) if text else 0.0


@cache
def traffic() -> SeriesData:
    """All roadways of 2011-2012 together, days one after the other; one day is absent, so that weekends move by one."""
    days: dict[str, FloatArray] = defaultdict(lambda: np.zeros(24))
    for row in _rows("nyc_traffic_volume/traffic_volume_2011_2012.csv.gz"):
        days[row["Date"]] += [_number(row[hour]) for hour in _HOURS]
    first = datetime.fromisoformat(min(days))
    return _clocked(np.concatenate([days[day] for day in sorted(days)]), first, 24)


@cache
def segment() -> SeriesData:
    """The roadway segment with most days, 18 of them, in two weeks two years apart."""
    segments: dict[tuple[str, str], dict[str, FloatArray]] = defaultdict(dict)
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for row in _rows("nyc_traffic_volume/traffic_volume_2014_2018.csv.gz"):
        key = (row["Segment ID"], row["Direction"])
        sizes[key] += 1
        segments[key].setdefault(row["Date"], np.array([_number(row[hour]) for hour in _HOURS]))
    most = max(sorted(sizes, key=lambda key: (int(key[0]), key[1])), key=lambda key: sizes[key])
    days = segments[most]
    first = datetime.fromisoformat(min(days))
    return _clocked(np.concatenate([days[day] for day in sorted(days)]), first, 24)


@cache
def drive_cycle() -> SeriesData:
    """Speeds of the UDDS cycle relative to its public range."""
    speeds = np.array([float(row["speed_mph"]) for row in _rows("drive_cycles/udds.csv.gz")])
    return SeriesData(speeds[:LONGEST] / 56.7)


def _ar(correlation: float) -> Source:
    return Source(lambda seed: autoregressive(correlation, seed), tuned=True)


DRIVE = "drive cycle"
SOURCES: Mapping[str, Source] = {
    "AR(1) .5": _ar(0.5),
    "AR(1) .8": _ar(0.8),
    "AR(1) .95": _ar(0.95),
    "AR(1) .99": _ar(0.99),
    DRIVE: Source(lambda _: drive_cycle(), "drive_cycles/udds.csv.gz"),
    "bike days": Source(lambda _: bike_days(), "bike_sharing_uci/day.csv.gz", tuned=True),
    "road segment": Source(lambda _: segment(), "nyc_traffic_volume/traffic_volume_2014_2018.csv.gz", tuned=True),
    "taxi, 30 min": Source(lambda _: taxi_half_hours(), "nyc_taxi_demand_30min/nyc_taxi_30min.csv.gz"),
    "capital bikes": Source(lambda _: capital_hours(), "capital_bikeshare_hourly/bikeshare_hourly_2010_2019.csv.gz"),
    "road occupancy": Source(lambda _: road_occupancy(), "sf_bay_road_occupancy/sf_traffic_hourly_2015_2016.csv.gz"),
    "bike hours": Source(lambda _: bike_hours(), "bike_sharing_uci/hour.csv.gz", tuned=True),
    "traffic": Source(lambda _: traffic(), "nyc_traffic_volume/traffic_volume_2011_2012.csv.gz", tuned=True),
}
"""By name; the drive cycle is kept apart in the summary."""
