"""Trips on a public map: every synthetic point lies on it, nothing is counted off it, and refusals say why."""

from __future__ import annotations

import csv
import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely

from engines.core.contract import Columns
from engines.core.noise import seeded
from engines.core.registry import build_domain
from engines.core.shares import PureShares
from engines.trajectory.default.mode import Default
from engines.trajectory.domain import TripDomain
from engines.trajectory.engine import Limits
from engines.trajectory.grid import Grid
from engines.trajectory.ground import Ground, ground_of
from engines.trajectory.trips import LATTICE, Trips
from schemas.config import Stream
from schemas.config.load import load_config
from schemas.errors import ConfigError, EngineInputError
from schemas.events import Reason
from tests.trajectory.trips import ways

BOUNDS = (8.0, 47.0, 9.0, 48.0)
# Two banks of a river that is too wide for a step, and a bridge; a lake in one of them.
LAND = {
    "type": "MultiPolygon",
    "coordinates": [
        [
            [[8, 47], [8.41, 47], [8.41, 47.7], [8.63, 47.7], [8.63, 47], [9, 47], [9, 48], [8, 48], [8, 47]],
            [[8.05, 47.1], [8.05, 47.4], [8.3, 47.4], [8.3, 47.1], [8.05, 47.1]],
        ]
    ],
}
ROADS = {
    "type": "MultiLineString",
    "coordinates": [
        [[8.02, 47.03], [8.9, 47.93]],
        [[8.1, 47.9], [8.5, 47.52], [8.95, 47.1]],
        [[8.1, 47.9], [8.9, 47.93]],
    ],
}
MAPS = {"land": LAND, "roads": ROADS}


def ground(name: str) -> Ground:
    return ground_of(json.dumps(MAPS[name]).encode(), BOUNDS, ("x", "y"), 500.0)


def shape(name: str) -> Any:
    return shapely.from_geojson(json.dumps(MAPS[name]))


def crossing(count: int) -> Trips:
    """Straight ways between the corners, across whatever there is: through water, and off the roads."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 30, count)
    start, end = rng.choice([0.05, 0.95], (2, count, 2)) + rng.normal(0, 0.01, (2, count, 2))
    return ways(start, end, sizes)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("count", [0, 300, 2500])
def test_every_synthetic_point_lies_on_the_map(name: str, count: int) -> None:
    """Few trips and many: both plans."""
    mode = Default(ground=ground(name))
    made = mode.synthesise(crossing(count), shares=PureShares(Fraction(2)), limits=Limits(), noise=seeded(5))
    assert made.places is not None or not len(made.trips)
    if made.places is not None:
        assert len(made.trips) > count / 2
        away = shapely.distance(shape(name), shapely.points(*made.places))
        assert np.all(away < 1e-9)
        if name == "land":
            # Borders that were moved inside: a consumer who asks whether a point is in the polygon is told that it is.
            assert np.all(away == 0)


def test_without_the_map_points_would_be_off_it() -> None:
    """The check above can fail."""
    made = Default().synthesise(crossing(2500), shares=PureShares(Fraction(2)), limits=Limits(), noise=seeded(5))
    places = TripDomain("x", "y", BOUNDS).coordinates(made.trips)
    for name in MAPS:
        assert np.mean(shapely.distance(shape(name), shapely.points(*places)) > 1e-3) > 0.1


def test_places_stay_in_their_cells_and_come_back_as_records_on_the_map() -> None:
    rng = np.random.default_rng(2)
    for name in MAPS:
        here, grid = ground(name), Grid(40)
        cells = rng.choice(np.flatnonzero(here.over(grid).there), 3000)
        x = ((cells // 40 + rng.random(3000)) / 40 * LATTICE).astype(np.int64)
        y = ((cells % 40 + rng.random(3000)) / 40 * LATTICE).astype(np.int64)
        trips = Trips(x, y, np.arange(3001))
        cells = grid.cells(x, y)
        usable = here.over(grid).there[cells]
        places = here.placed(Trips(x[usable], y[usable], np.arange(usable.sum() + 1)), grid)
        domain = TripDomain("x", "y", BOUNDS, ground=here)
        numbers = {"x": places[0], "y": places[1]}
        keys, reasons = domain.encode(Columns(numbers, {}, np.ones(len(places[0]), np.int8), {}))
        assert np.all(reasons == Reason.ACCEPTED)
        back = grid.cells(
            (keys[:, 4] >> np.uint64(20)).astype(np.int64), (keys[:, 4] & np.uint64(2**20 - 1)).astype(np.int64)
        )
        assert np.array_equal(back, cells[usable])
        assert np.array_equal(here.moved(trips, grid).x[usable], x[usable])


def test_records_off_the_map_are_refused_and_counted_as_outside() -> None:
    numbers = {"x": np.array([8.2, 8.5, 8.7, 7.0]), "y": np.array([47.2, 47.2, 47.2, 47.2])}
    columns = Columns(numbers, {}, np.ones(4, np.int8), {})
    keys, reasons = TripDomain("x", "y", BOUNDS, ground=ground("land")).encode(columns)
    assert [Reason(reason).name for reason in reasons] == [
        "OUTSIDE_DOMAIN",
        "OUTSIDE_DOMAIN",
        "ACCEPTED",
        "OUTSIDE_DOMAIN",
    ]
    assert not keys[[0, 1, 3]].any()
    assert keys[2].any()


@pytest.mark.parametrize("name", MAPS)
def test_cells_with_a_part_of_the_map_are_those_that_it_meets(name: str) -> None:
    """By brute force, but for parts that only touch a cell."""
    grid = Grid(12)
    pieces = ground(name).over(grid)
    for cell in range(grid.size):
        west, south = 8 + cell // 12 / 12, 47 + cell % 12 / 12
        box = shapely.box(west, south, west + 1 / 12, south + 1 / 12)
        cut = shapely.intersection(shape(name), box)
        size = shapely.length(cut) if name == "roads" else shapely.area(cut)
        assert pieces.there[cell] == (size > 1e-7)
    assert np.all(pieces.there[pieces.nearest])
    assert np.array_equal(pieces.nearest[pieces.there], np.flatnonzero(pieces.there))


def test_a_map_elsewhere_is_refused() -> None:
    with pytest.raises(EngineInputError, match="no part inside"):
        ground_of(json.dumps(LAND).encode(), (20.0, 47.0, 21.0, 48.0), ("x", "y"), 50.0)


def test_the_mode_that_keeps_to_no_map_refuses_one() -> None:
    content = json.dumps(LAND).encode()
    file = {"path": "land.geojson", "sha256": "0" * 64, "content": content}
    document = {
        "name": "trips",
        "engine": "trajectory",
        "source": "raw.trips",
        "privacy": {"epsilon": 1.0, "unit": "user", "user": "u", "max_contributions": 2},
        "time": {"field": "t", "format": "s", "start": "1970-01-01T00:00:00", "step": "1h", "clock": "replay"},
        "domain": {"kind": "trips", "trip": "n", "x": "x", "y": "y", "bounds": list(BOUNDS), "file": file},
    }
    Stream.model_validate(document)
    with pytest.raises(ConfigError, match="does not use a map"):
        Stream.model_validate({**document, "mode": "paper"})


def test_the_example_is_on_its_streets() -> None:
    """Points of the file are within reach of the streets that the configuration names; 4 decimals are 11 metres."""
    folder = Path(__file__).parents[2] / "examples"
    (stream,) = load_config(folder / "trips.toml").streams
    with gzip.open(folder / "town" / "drives.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))[::20]
    numbers = {name: np.array([float(row[name]) for row in rows]) for name in ("lon", "lat")}
    columns = Columns(numbers, {}, np.ones(len(rows), np.int8), {"last": [row["last"] or None for row in rows]})
    keys, reasons = build_domain(stream).encode(columns)
    assert np.all(reasons == Reason.ACCEPTED)
    assert 0 < keys[:, 5].sum() < len(rows) / 4
