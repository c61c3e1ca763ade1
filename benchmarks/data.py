"""Where data sets are: in shared/data beside the checkout. At the smallest size they are made up, and below `FOLDER`.

What is made up has the columns, forms and places of the true files, so that what reads those reads it; a few hundred
rows, always the same, and in tables each column hangs on one hidden number, so that there are ties to keep. No data
went into it.
"""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.size import FOLDER, SMALLEST

Column = Sequence[Any] | np.ndarray
ROWS = 800
REASONS = (
    "Non Payment",
    "Breach",
    "Nuisance",
    "Owner Move In",
    "Ellis Act WithDrawal",
    "Late Payments",
    "Roommate Same Unit",
)
ADULT = {
    "age": 85,
    "workclass": 9,
    "fnlwgt": 100,
    "education-num": 16,
    "marital-status": 7,
    "occupation": 15,
    "relationship": 6,
    "race": 5,
    "sex": 2,
    "capital-gain": 100,
    "capital-loss": 100,
    "hours-per-week": 99,
    "native-country": 42,
    "income>50K": 2,
}
"""Columns, and how many codes each has."""


class Made:
    """Writes one data set after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.random = np.random.default_rng(11)

    def all(self) -> None:
        self.tables()
        self.places()
        self.trips()
        self.years()
        self.delays()
        self.words()

    def tied(self, values: Sequence[Any], hidden: np.ndarray) -> list[Any]:
        """Return one of the values for each row, which three times in four is that of the row's hidden number."""
        other = self.random.integers(0, len(values), len(hidden))
        which = np.where(self.random.random(len(hidden)) < 0.75, hidden % len(values), other)
        return [values[at] for at in which.tolist()]

    def near(self, x: float, y: float, count: int = ROWS, *, spread: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
        """Draw longitudes and latitudes around a place."""
        east, north = self.random.normal(0, spread, (2, count))
        return (x + east).round(6), (y + north).round(6)

    def moments(self, first: str, days: float, form: str, count: int = ROWS) -> list[str]:
        """Draw moments from a day on, in order."""
        begin = datetime.fromisoformat(first).replace(tzinfo=UTC)
        after = np.sort(self.random.random(count)) * days
        return [(begin + timedelta(days=day)).strftime(form) for day in after.tolist()]

    def tables(self) -> None:
        hidden = self.random.integers(0, 1000, ROWS)
        self.lines("adult/adult.csv.gz", {name: self.tied(range(size), hidden) for name, size in ADULT.items()})
        (self.folder / "adult/adult-domain.json").write_text(json.dumps(ADULT))
        x, y = self.near(-122.43, 37.76)
        self.lines(
            "sf_evictions/eviction_notices_2011_2015.csv.gz",
            {
                "File Date": self.moments("2011-01-01", 112, "%Y-%m-%d"),
                "Eviction Notice Source Zipcode": self.tied(["94110", "94114", "94133"], hidden),
                "Supervisor District": self.tied([str(at) for at in range(1, 12)], hidden),
                "Neighborhoods - Analysis Boundaries": self.tied(["Mission", "North Beach"], hidden),
                **{name: self.tied(["true", "false"], hidden) for name in REASONS},
                "Longitude": x,
                "Latitude": y,
            },
        )
        x, y = self.near(-93.26, 44.97)
        self.lines(
            "minneapolis_stops_2017/mpls_stops_2017.csv.gz",
            {
                "date": self.moments("2017-01-01", 40, "%Y-%m-%dT%H:%M:%SZ"),
                "problem": self.tied(["suspicious", "traffic"], hidden),
                **{
                    name: self.tied(["NO", "YES"], hidden)
                    for name in ("citationIssued", "personSearch", "vehicleSearch")
                },
                **{name: self.tied(["Black", "Unknown", "White"], hidden) for name in ("preRace", "race")},
                "MDC": self.tied(["MDC", "other"], hidden),
                "gender": self.tied(["Female", "Male", "Unknown"], hidden),
                "lat": y,
                "long": x,
                "policePrecinct": self.tied(["1", "2", "3", "4", "5"], hidden),
                "neighborhood": self.tied(["Cedar Riverside", "Downtown West"], hidden),
            },
        )
        self.lines("bike_sharing_uci/day.csv.gz", {"cnt": self.random.integers(500, 5000, 60)})

    def delays(self) -> None:
        begin = np.datetime64("2013-01-01", "us")
        after = np.sort(self.random.integers(0, 28 * 86_400, ROWS)).astype("timedelta64[s]")
        delay = (self.random.gamma(0.5, 40.0, ROWS) - 10).astype(np.int16)
        carrier = self.tied(["AA", "UA"], np.arange(ROWS))
        columns: dict[str, Column] = {"sched_dep_local": begin + after, "dep_delay": delay, "carrier": carrier}
        self.parquet("nyc_flights_2013/nyc_flights_2013.parquet", columns)

    def places(self) -> None:
        x, y = self.near(-73.95, 40.75)
        self.lines(
            "nyc_vehicle_thefts/nyc_vehicle_thefts_2014_2017.csv.gz",
            {"date_single": self.moments("2014-01-01", 60, "%Y-%m-%d %H:%M"), "longitude": x, "latitude": y},
        )
        users = self.random.integers(0, 40, ROWS)
        where = {"user": users, "longitude": x, "latitude": y}
        self.lines(
            "gowalla_checkins/gowalla_nyc_checkins.csv.gz",
            {
                "checkin_time": self.moments("2010-01-01", 42, "%Y-%m-%dT%H:%M:%SZ"),
                **where,
                "location_id": np.arange(ROWS) % 7,
            },
        )
        self.lines(
            "foursquare_nyc/foursquare_nyc_checkins.csv.gz",
            {"utc_time_approx": self.moments("2012-04-03", 42, "%Y-%m-%d %H:%M:%S"), **where},
        )
        hidden, lasted = self.random.integers(0, 1000, ROWS), self.random.integers(60, 3000, ROWS)
        begin = np.datetime64("2017-02-01", "us") + np.sort(self.random.integers(0, 80 * 86_400, ROWS)) * 1_000_000
        self.parquet(
            "jersey_city_citibike/jc_citibike_trips.parquet",
            {
                "starttime": begin,
                "stoptime": begin + lasted * 1_000_000,
                "tripduration": lasted,
                "start_station_id": self.random.integers(3000, 3500, ROWS),
                "bikeid": users,
                "usertype": self.tied(["Subscriber", "Customer"], hidden),
                "birth_year": self.tied([1960, 1970, 1978, 1983, 1992], hidden),
                "gender": self.tied([0, 1, 2], hidden),
            },
        )

    def trips(self) -> None:
        """Write cabs whose passengers change every eighth minute; storms."""
        cabs, minutes = 12, 300
        walks = 0.002 * self.random.normal(size=(2, cabs, minutes)).cumsum(axis=2)
        turn = np.arange(minutes)
        self.parquet(
            "sf_cab_traces/sf_cabs_10.parquet",
            {
                "cab_id": [f"cab{at}" for at in range(cabs) for _ in range(minutes)],
                "latitude": np.clip(37.75 + walks[0], 37.6, 37.8).ravel(),
                "longitude": np.clip(-122.43 + walks[1], -122.5, -122.35).ravel(),
                "occupied": np.tile(turn // 8 % 2, cabs),
                "unix_time": np.tile(1_211_000_000 + 60 * turn, cabs),
            },
        )
        count, fixes = 60, 12
        begin = datetime(1990, 1, 1, tzinfo=UTC)
        moments = [begin + timedelta(days=30 * storm, hours=6 * fix) for storm in range(count) for fix in range(fixes)]
        x, y = (self.random.normal(size=(2, count, fixes))).cumsum(axis=2).round(1)
        self.lines(
            "atlantic_storms/atlantic_storms_1975_onward.csv.gz",
            {
                "utc_time": [moment.strftime("%Y-%m-%d %H:%M:%S") for moment in moments],
                "name": np.repeat([f"storm{at}" for at in range(count)], fixes),
                "year": [moment.year for moment in moments],
                "lat": (25 + y).ravel(),
                "long": (-60 + x).ravel(),
            },
        )

    def words(self) -> None:
        days, users = np.arange(ROWS) // 20, np.arange(ROWS) % 40
        for name in ("ansible", "recipes"):
            words = [f"word{at}" for at in (np.arange(ROWS) % 7).tolist()]
            self.lines(f"commit_words/{name}.csv.gz", {"day": days, "user": users, "word": words})

    def years(self) -> None:
        x, y = self.near(-87.7, 41.8)
        self.lines(
            "chicago_crimes/chicago_crimes_sample_50k.csv.gz",
            {
                "datetime_hour": self.moments("2001-01-01", 400, "%Y-%m-%d %H:00:00"),
                "longitude": x,
                "latitude": y,
            },
        )
        self.lines(
            "earthquakes_world/earthquakes_1965_2016.csv.gz",
            {"Date": self.moments("1965-01-01", 400, "%Y-%m-%d"), "Longitude": x, "Latitude": y},
        )

    def lines(self, path: str, columns: Mapping[str, Column]) -> None:
        (self.folder / path).parent.mkdir(exist_ok=True)
        with gzip.open(self.folder / path, "wt", encoding="utf-8", newline="", compresslevel=1) as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))

    def parquet(self, path: str, columns: Mapping[str, Column]) -> None:
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        (self.folder / path).parent.mkdir(exist_ok=True)
        parquet.write_table(
            arrow.table({name: arrow.array(values) for name, values in columns.items()}), self.folder / path
        )


def made_up() -> Path:
    """Return the folder of made-up data. What a process has written, its children find."""
    folder = FOLDER / "data"
    if not folder.exists():
        partly = Path(tempfile.mkdtemp(dir=FOLDER))
        Made(partly).all()
        try:
            partly.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(partly)
    return folder


DATA = made_up() if SMALLEST else Path(__file__).resolve().parents[2] / "shared" / "data"
