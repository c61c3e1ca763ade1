"""Streams of people, from ../shared/data, and the configurations under which they are compared.

Gowalla and Foursquare: check-ins in New York, weekly. Jersey City: rides, by what is protected of a bicycle, monthly (a
table of half a dozen attributes, a bicycle having hundreds of rides).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.data import DATA
from schemas.config import Config, config_from_mapping


@dataclass(frozen=True, slots=True)
class People:
    """A file whose rows name users.

    Attributes:
        bounds: tried on every side.
        errors: that are compared, by the end of their names; all if empty.
        tables: of the stream's configuration.
    """

    name: str
    path: str
    bounds: Sequence[int]
    tables: Mapping[str, Any]
    errors: Sequence[str] = ()

    def compared(self, errors: Mapping[str, float]) -> Mapping[str, float]:
        """Those of an engine's errors that are compared."""
        return {name: value for name, value in errors.items() if not self.errors or name in self.errors}

    @property
    def file(self) -> Path:
        return DATA / self.path

    def config(self, epsilon: Decimal, **privacy: Any) -> Config:
        """At the first bound, or with other privacy."""
        tables = {name: dict(table) for name, table in self.tables.items() if name != "engine"}
        bounded = {"epsilon": epsilon, "max_contributions": self.bounds[0], **tables.pop("privacy"), **privacy}
        stream = {
            "name": "people",
            "source": "raw",
            "engine": self.tables["engine"],
            "privacy": {key: value for key, value in bounded.items() if value is not None},
            **tables,
        }
        return config_from_mapping(
            {"job": {"name": "bench"}, "kafka": {"bootstrap": "localhost:9092"}, "streams": [stream]}
        )


def _checkins(field: str, start: str, bounds: Sequence[float]) -> Mapping[str, Any]:
    return {
        "engine": "spatial",
        "privacy": {"user": "user"},
        "time": {"field": field, "start": start, "timezone": "UTC", "step": "7d"},
        "domain": {"kind": "box", "x": "longitude", "y": "latitude", "bounds": list(bounds)},
    }


def _edges(field: str, *edges: int) -> dict[str, Any]:
    return {"field": field, "edges": list(edges), "integer": True}


SETS = (
    People(
        "Gowalla, New York",
        "gowalla_checkins/gowalla_nyc_checkins.csv.gz",
        (5, 10, 20, 50, 100),
        _checkins("checkin_time", "2010-01-01T00:00:00", (-74.26, 40.49, -73.69, 40.92)),
    ),
    People(
        "Foursquare, New York",
        "foursquare_nyc/foursquare_nyc_checkins.csv.gz",
        (10, 20, 50, 100, 200),
        _checkins("utc_time_approx", "2012-04-03T00:00:00", (-74.28, 40.5, -73.68, 40.99)),
    ),
    People(
        "Jersey City, bicycles",
        "jersey_city_citibike/jc_citibike_trips.parquet",
        (20, 50, 100, 200, 500),
        {
            "engine": "tabular",
            "privacy": {"user": "bikeid"},
            "time": {"field": "starttime", "start": "2017-02-01T00:00:00", "timezone": "UTC", "step": "28d"},
            "domain": {
                "kind": "table",
                "attributes": [
                    {"field": "usertype", "values": ["Subscriber", "Customer"], "missing": True},
                    {"field": "gender", "values": [0, 1, 2]},
                    _edges("tripduration", 0, 240, 360, 600, 1200, 3600, 10_000_000),
                    _edges("birth_year", 1880, 1965, 1975, 1980, 1985, 1990, 2020) | {"missing": True},
                    _edges("start_station_id", 3000, 3185, 3190, 3200, 3210, 3220, 3280, 3500, 10_000),
                ],
            },
        },
        # Relative errors are least for an empty table wherever a cell is rare.
        ("mean workload error (AvgWE)", "largest workload error (MaxWE)"),
    ),
)
